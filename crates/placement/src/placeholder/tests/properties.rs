//! Any observed placeholder, and any wanted placeholder.

use super::*;
use crate::resources::Resources;
use crate::tally::tally;
use proptest::collection::btree_set;
use proptest::option;
use proptest::prelude::any;
use proptest::sample::{select, subsequence};
use proptest::strategy::{BoxedStrategy, Strategy as Arbitrary};
use proptest::test_runner::Config as Cases;
use proptest::{prop_assert, prop_assert_eq, prop_oneof, proptest};

/// The size has CPU, memory and a GPU, if they are among these.
fn sizes() -> BoxedStrategy<Resources> {
    let amounts = [
        ("cpu", "50m"),
        ("cpu", "4"),
        ("memory", "1Gi"),
        ("nvidia.com/gpu", "1"),
    ];
    let amounts = amounts.map(|(name, amount)| (name.to_owned(), amount.to_owned()));
    let size = |amounts: Strings| Resources::from_texts(&amounts);
    btree_set(select(amounts.to_vec()), 0..4)
        .prop_map(move |amounts| size(amounts.into_iter().collect()))
        .boxed()
}

fn tolerations() -> BoxedStrategy<Vec<Toleration>> {
    let all = ["ci", "gpu"].map(|key| Toleration {
        key: Some(key.to_owned()),
        ..Toleration::default()
    });
    subsequence(all.to_vec(), 0..=2).boxed()
}

fn specs() -> BoxedStrategy<Spec> {
    let nodes = || select(vec!["n1".to_owned(), "n2".to_owned()]);
    let left = prop_oneof![nodes(), select(vec![String::new()])];
    let claims = subsequence(vec!["source".to_owned(), "cache".to_owned()], 0..=2);
    let images = subsequence(vec!["golang".to_owned(), "node".to_owned()], 0..=2);
    let fields = (
        0..2,
        sizes(),
        option::of(select(vec!["cpu=2".to_owned()])),
        any::<bool>(),
        option::of(nodes()),
        option::of(left),
        tolerations(),
        claims,
        images,
    );
    fields
        .prop_map(
            |(replicas, size, reserve, within_limits, node, left, tolerations, claims, images)| Spec {
                replicas,
                size,
                reserve,
                within_limits,
                node,
                previous_node: left,
                tolerations,
                claims,
                images: images.into_iter().collect(),
                ..Spec::default()
            },
        )
        .boxed()
}

fn one<T: Clone>(is_other: bool, this: &T, other: &T) -> T {
    if is_other { other.clone() } else { this.clone() }
}

/// The observed placeholder with some fields of the wanted placeholder.
fn mix(of: &Spec, with: &Spec, fields: [bool; 9]) -> Spec {
    let [
        replicas,
        size,
        reserve,
        within_limits,
        node,
        left,
        tolerations,
        claims,
        images,
    ] = fields;
    Spec {
        replicas: one(replicas, &of.replicas, &with.replicas),
        size: one(size, &of.size, &with.size),
        reserve: one(reserve, &of.reserve, &with.reserve),
        within_limits: one(within_limits, &of.within_limits, &with.within_limits),
        node: one(node, &of.node, &with.node),
        previous_node: one(left, &of.previous_node, &with.previous_node),
        tolerations: one(tolerations, &of.tolerations, &with.tolerations),
        claims: one(claims, &of.claims, &with.claims),
        images: one(images, &of.images, &with.images),
        affinity: of.affinity.clone(),
    }
}

/// The StatefulSet of the run's placeholder after other clients changed its fields to these.
fn document(run: &Run, spec: &Spec) -> Value {
    let mut set = serde_json::to_value(placeholder(run, Strategy::default())).unwrap();
    set["metadata"]["uid"] = json!(SET);
    set["spec"]["replicas"] = json!(spec.replicas);
    let template = &mut set["spec"]["template"];
    let amounts = spec.size.iter().map(|(name, amount)| (name, amount.to_string()));
    let amounts: BTreeMap<_, _> = amounts.collect();
    template["spec"]["containers"][0]["resources"] = json!({"requests": amounts, "limits": amounts});
    template["spec"]["tolerations"] = json!(spec.tolerations);
    template["spec"]["volumes"] = json!(volumes(&spec.claims, &spec.images));
    let annotations = &mut template["metadata"]["annotations"];
    if let Some(reserve) = &spec.reserve {
        annotations[keys::RESERVE] = json!(reserve);
    }
    if spec.within_limits {
        annotations[keys::WITHIN_LIMITS] = json!("true");
    }
    if let Some(left) = &spec.previous_node {
        annotations[keys::LEFT] = json!(left);
    }
    if let Some(node) = &spec.node {
        annotations[keys::PINNED] = json!(node);
        pin(&mut template["spec"]["affinity"]["nodeAffinity"], node);
    }
    set
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

fn pin(affinity: &mut Value, node: &str) {
    if affinity[REQUIRED].is_null() {
        affinity[REQUIRED] = json!({"nodeSelectorTerms": [{}]});
    }
    for term in affinity[REQUIRED]["nodeSelectorTerms"].as_array_mut().unwrap() {
        term["matchFields"] = json!([{"key": "metadata.name", "operator": "In", "values": [node]}]);
    }
}

fn patched(mut set: Value, patch: &Patch) -> Result<Value, json_patch::PatchError> {
    json_patch::patch(&mut set, patch).map(|()| set)
}

proptest! {
    #![proptest_config(Cases::with_cases(1000))]

    #[test]
    fn the_patch_is_empty_exactly_if_the_placeholder_is_as_wanted(
        of in specs(), with in specs(), fields in any::<[bool; 9]>(), is_demanding in any::<bool>(),
        met in tally(&[("as wanted", 10), ("scaled", 100), ("pinned", 50), ("resized", 100)]),
    ) {
        let run = if is_demanding { demanding_run() } else { run() };
        let affinity = spec_of(&document(&run, &of)).affinity;
        let of = Spec { affinity, ..of };
        let wanted = mix(&of, &with, fields);
        let patch = spec::patch(SET, &of, &wanted);
        prop_assert_eq!(patch.is_empty(), of == wanted, "{:?}", patch);
        let before = document(&run, &of);
        prop_assert_eq!(spec_of(&before), of.clone());
        let after = patched(before.clone(), &patch).unwrap();
        prop_assert_eq!(spec_of(&after), wanted.clone());
        let affinity = |set: &Value| set["spec"]["template"]["spec"]["affinity"].clone();
        let mut expected = affinity(&document(&run, &wanted));
        if expected["nodeAffinity"].is_null() && after["spec"]["template"]["spec"]["affinity"]["nodeAffinity"] == json!({}) {
            expected["nodeAffinity"] = json!({});
        }
        prop_assert_eq!(affinity(&after), expected);
        if of == wanted {
            met.count("as wanted");
            return Ok(());
        }
        let changed = |pointer: &str, value: Value| {
            let mut changed = before.clone();
            *changed.pointer_mut(pointer).unwrap() = value;
            patched(changed, &patch)
        };
        prop_assert!(changed("/metadata/uid", json!("other")).is_err());
        if of.replicas != wanted.replicas {
            met.count("scaled");
            prop_assert!(changed("/spec/replicas", json!(7)).is_err());
        }
        if of.size != wanted.size {
            met.count("resized");
            prop_assert!(changed("/spec/template/spec/containers/0/name", json!("sidecar")).is_err());
        }
        if of.node != wanted.node && wanted.node.is_some() {
            met.count("pinned");
        }
    }
}
