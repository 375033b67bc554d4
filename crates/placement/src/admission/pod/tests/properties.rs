//! What holds for the verdict of the pod webhook on any document.

use super::*;
use crate::arbitrary::{any_json, document, list, object, one_of, text};
use crate::bounded::Decoded;
use crate::tally::tally;
use proptest::strategy::{BoxedStrategy, Strategy as _};
use proptest::test_runner::Config as Cases;
use proptest::{prop_assert, prop_assert_eq, prop_oneof, proptest};

fn any_pod() -> BoxedStrategy<Value> {
    let labels = object(vec![
        (keys::GROUP, text(&["u1", "u1", "u1", "u2", "u2", ""])),
        (keys::OPT_IN, text(&["true", "colocateAlways", "false"])),
        (
            keys::STRATEGY,
            text(&["colocateAlways", "colocateCompleted", "isolateAlways", "x"]),
        ),
        (
            keys::ISOLATION,
            text(&[
                "cluster-all",
                "cluster-enrolled",
                "namespace-all",
                "namespace-enrolled",
            ]),
        ),
    ]);
    let [affinity, anti_affinity] = own_terms();
    let term = one_of(vec![
        affinity,
        anti_affinity,
        users_term(),
        tektons_term(),
        json!({"topologyKey": "zone"}),
    ]);
    let pod_affinity = object(vec![
        (REQUIRED, list(term)),
        (
            "preferredDuringSchedulingIgnoredDuringExecution",
            list(any_json()),
        ),
    ]);
    let affinity = object(vec![
        ("podAffinity", pod_affinity.clone()),
        ("podAntiAffinity", pod_affinity),
        ("nodeAffinity", any_json()),
    ]);
    let metadata = object(vec![("labels", labels)]);
    let spec = object(vec![("affinity", affinity)]);
    let pod = document(vec![("metadata", metadata), ("spec", spec)]);
    prop_oneof![8 => pod.clone(), 1 => pod.prop_map(injected)].boxed()
}

fn injected(pod: Value) -> Value {
    Doc(pod).injected().0
}

/// Makes the preferred terms required again.
fn strict(mut pod: Value) -> Value {
    let is_relaxed = |term: &mut Value| term.get("podAffinityTerm").is_some();
    let kind = pod.pointer_mut("/spec/affinity/podAffinity");
    let Some(Value::Array(preferred)) = kind.and_then(|kind| kind.get_mut(PREFERRED)) else {
        return pod;
    };
    let mut relaxed: Vec<_> = preferred.extract_if(.., is_relaxed).collect();
    if relaxed.is_empty() {
        return pod;
    }
    let relaxed = relaxed.iter_mut().map(|term| term["podAffinityTerm"].take());
    pod.pointer_mut(AFFINITY)
        .unwrap()
        .as_array_mut()
        .unwrap()
        .extend(relaxed);
    pod["metadata"].as_object_mut().unwrap().remove("annotations");
    pod
}

/// Removes the terms of the group, the parents that were added for them, and Tekton's term.
fn without_own_terms(pod: Value, terms: &[Value]) -> Value {
    let mut pod = strict(pod);
    for list in [AFFINITY, ANTI_AFFINITY] {
        if let Some(Value::Array(items)) = pod.pointer_mut(list) {
            items.retain(|item| !terms.contains(item) && (list != AFFINITY || *item != tektons_term()));
        }
    }
    let steps = [
        "spec",
        "affinity",
        "podAffinity",
        "podAntiAffinity",
        REQUIRED,
        PREFERRED,
    ];
    for depth in (1..steps.len()).rev() {
        drop_empty(&mut pod, depth, &steps);
    }
    pod
}

fn drop_empty(at: &mut Value, depth: usize, steps: &[&str]) {
    let Value::Object(members) = at else { return };
    for value in members
        .iter_mut()
        .filter(|(key, _)| depth > 0 && steps.contains(&key.as_str()))
    {
        drop_empty(value.1, depth - 1, steps);
    }
    let empty = [json!({}), json!([]), Value::Null];
    members.retain(|key, value| !steps.contains(&key.as_str()) || !empty.contains(value));
}

fn terms_of(pod: &Value) -> Vec<Value> {
    let label = |key: &str| {
        pod["metadata"]["labels"][key]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let strategy = label(keys::STRATEGY).parse().unwrap_or_default();
    let isolation = label(keys::ISOLATION).parse().unwrap_or_default();
    let terms = terms(&Group::of(label(keys::GROUP)), strategy, isolation);
    let terms = [Some(terms.affinity), terms.anti_affinity];
    terms
        .into_iter()
        .flatten()
        .map(|term| serde_json::to_value(term).unwrap())
        .collect()
}

proptest! {
    #![proptest_config(Cases::with_cases(2000))]

    #[test]
    fn any_patch_of_a_pod_applies_is_idempotent_and_removes_only_terms_of_tekton(
        document in any_pod(), met in tally(&[
            ("injected", 50), ("relaxed", 50), ("already_there", 20), ("not_enrolled", 300), ("declined", 50),
            ("wrong_type", 50),
        ]),
    ) {
        let (patch, outcome) = patched(&document);
        let Decoded { value: reduced, over_limit: None } = FIELDS.decode(&document).unwrap() else {
            panic!("{document} is over a limit")
        };
        prop_assert_eq!(patched(&reduced), (patch.clone(), outcome), "the fields in FIELDS are sufficient");
        met.count(outcome.as_str());
        let mut injected = document.clone();
        prop_assert!(json_patch::patch(&mut injected, &patch).is_ok(), "{patch} does not apply");
        prop_assert_eq!(matches!(outcome, Outcome::Injected | Outcome::Relaxed), !patch.is_empty());
        prop_assert!(patched(&injected).0.is_empty());
        let terms = terms_of(&document);
        prop_assert_eq!(without_own_terms(document, &terms), without_own_terms(injected, &terms));
    }

    #[test]
    fn an_injected_pod_has_each_of_its_terms_once(document in any_pod(), met in tally(&[("injected", 50)])) {
        let (_, Outcome::Injected) = patched(&document) else { return Ok(()) };
        met.count("injected");
        let injected = injected(document.clone());
        let wanted = terms_of(&document);
        for (list, term) in [AFFINITY, ANTI_AFFINITY].iter().zip(&wanted) {
            let before = Doc(document.clone()).terms(list).iter().filter(|other| *other == term).count();
            let after = Doc(injected.clone()).terms(list).iter().filter(|other| *other == term).count();
            prop_assert_eq!(after, before.max(1));
        }
    }

    #[test]
    fn a_pod_of_a_group_has_no_required_pod_affinity_but_the_term_of_its_group(
        document in any_pod(), met in tally(&[("injected", 100), ("relaxed", 50), ("already_there", 20)]),
    ) {
        let (_, outcome) = patched(&document);
        if matches!(outcome, Outcome::NotEnrolled | Outcome::Declined | Outcome::WrongType) {
            return Ok(());
        }
        met.count(outcome.as_str());
        let injected = injected(document.clone());
        let own = &terms_of(&document)[0];
        prop_assert!(Doc(injected).terms(AFFINITY).iter().all(|term| term == own));
    }
}
