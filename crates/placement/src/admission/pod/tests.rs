//! The rules of the pod webhook, with a test for each. `properties` has what holds for any document.

use super::*;
use crate::strategy::{Isolation, Strategy};
use serde_json::json;

mod properties;

const AFFINITY: &str = "/spec/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution";
const ANTI_AFFINITY: &str = "/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution";

/// A task pod of an enrolled run. The methods below change it.
struct Doc(Value);

fn pod() -> Doc {
    Doc(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "build-pod", "labels": {
            keys::TEKTON_PIPELINE_RUN: "build",
            keys::OPT_IN: "true",
            keys::GROUP: "u1",
            keys::STRATEGY: "colocateCompleted",
            keys::ISOLATION: "cluster-all"
        }},
        "spec": {"containers": [{"name": "step"}]}
    }))
}

impl Doc {
    fn set(mut self, path: &[&str], value: impl Into<Value>) -> Self {
        let leaf = path.iter().fold(&mut self.0, |at, key| &mut at[*key]);
        *leaf = value.into();
        self
    }

    fn label(self, key: &str, value: impl Into<Value>) -> Self {
        self.set(&["metadata", "labels", key], value)
    }

    fn without_label(mut self, key: &str) -> Self {
        self.0["metadata"]["labels"].as_object_mut().unwrap().remove(key);
        self
    }

    fn affinity(self, value: Value) -> Self {
        self.set(&["spec", "affinity"], value)
    }

    fn decided(&self) -> (Patch, Outcome) {
        patched(&self.0)
    }

    fn outcome(&self) -> Outcome {
        self.decided().1
    }

    fn patch(&self) -> Value {
        serde_json::to_value(self.decided().0).unwrap()
    }

    fn paths(&self) -> Vec<String> {
        self.decided()
            .0
            .iter()
            .map(|operation| operation.path().to_string())
            .collect()
    }

    fn injected(mut self) -> Self {
        let (patch, _) = self.decided();
        json_patch::patch(&mut self.0, &patch).unwrap();
        self
    }

    fn terms(&self, list: &str) -> Vec<Value> {
        self.0
            .pointer(list)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    }
}

/// The patch and the outcome of a verdict that admits the pod, as every verdict does.
fn patched(pod: &Value) -> (Patch, Outcome) {
    match admit(pod) {
        Verdict::Allow { patch, outcome } => (patch, outcome),
        verdict => panic!("{verdict:?}"),
    }
}

fn own_terms() -> [Value; 2] {
    let terms = terms(
        &Group::of("u1"),
        Strategy::ColocateCompleted,
        Isolation::default(),
    );
    [terms.affinity, terms.anti_affinity.unwrap()].map(|term| serde_json::to_value(term).unwrap())
}

/// Terms with the hostname as topology key that a comparison of single fields would take for the group's term.
fn users_term() -> Value {
    json!({"topologyKey": keys::HOSTNAME, "labelSelector": {"matchLabels": {"app": "cache"}}})
}

#[test]
fn a_pod_without_affinity_gets_its_affinity_in_one_operation() {
    assert_eq!(pod().outcome(), Outcome::Injected);
    insta::assert_json_snapshot!("bare_pod", pod().patch());
}

/// The term that Tekton adds to a pod that mounts a PVC.
fn tektons_term() -> Value {
    let labels = json!({
        "app.kubernetes.io/component": "affinity-assistant",
        "app.kubernetes.io/instance": "affinity-assistant-5e2a",
    });
    json!({"topologyKey": keys::HOSTNAME, "labelSelector": {"matchLabels": labels}})
}

#[test]
fn the_term_of_the_group_replaces_the_terms_of_the_affinity_assistants() {
    let required = json!([tektons_term(), tektons_term()]);
    let pod = pod().affinity(json!({"podAffinity": {REQUIRED: required}}));
    let [affinity, _] = own_terms();
    assert_eq!(pod.injected().terms(AFFINITY), [affinity]);
}

#[test]
fn a_pod_without_a_group_or_with_an_opt_out_keeps_the_term_of_the_affinity_assistant() {
    let tied = json!({"podAffinity": {REQUIRED: [tektons_term()]}});
    for pod in [
        pod().without_label(keys::GROUP),
        pod().label(keys::OPT_IN, "false"),
    ] {
        assert_eq!(pod.affinity(tied.clone()).patch(), json!([]));
    }
}

#[test]
fn a_pod_with_colocate_always_gets_only_the_affinity_term() {
    insta::assert_json_snapshot!(
        "colocate_always",
        pod().label(keys::STRATEGY, "colocateAlways").patch()
    );
}

#[test]
fn the_isolation_label_of_the_pod_determines_its_anti_affinity_term() {
    for isolation in Isolation::NAMES {
        let terms = pod()
            .label(keys::ISOLATION, *isolation)
            .injected()
            .terms(ANTI_AFFINITY);
        let everywhere = terms[0].get("namespaceSelector").is_some();
        let first = &terms[0]["labelSelector"]["matchExpressions"][0]["key"];
        assert_eq!(everywhere, isolation.starts_with("cluster"), "{isolation}");
        assert_eq!(
            first == keys::GROUP,
            isolation.ends_with("enrolled"),
            "{isolation}"
        );
    }
}

#[test]
fn a_missing_or_unknown_strategy_or_isolation_label_means_the_default() {
    for (key, meaningless) in [(keys::STRATEGY, "isolate"), (keys::ISOLATION, "everywhere")] {
        assert_eq!(pod().without_label(key).patch(), pod().patch());
        assert_eq!(pod().label(key, meaningless).patch(), pod().patch());
    }
}

#[test]
fn a_pod_without_a_group_is_admitted_unchanged() {
    let strangers = [
        pod().without_label(keys::GROUP),
        pod().label(keys::GROUP, ""),
        pod().label(keys::GROUP, 7),
        pod().set(&["metadata", "labels"], Value::Null),
        pod().set(&["metadata"], Value::Null),
    ];
    for doc in strangers {
        assert_eq!(doc.outcome(), Outcome::NotEnrolled, "{}", doc.0);
        assert_eq!(doc.patch(), json!([]));
    }
}

#[test]
fn a_pod_of_an_opted_out_task_is_admitted_unchanged_even_with_a_group() {
    let doc = pod().label(keys::OPT_IN, "false");
    assert_eq!(doc.outcome(), Outcome::Declined);
    assert_eq!(doc.patch(), json!([]));
}

#[test]
fn a_pod_with_a_group_gets_its_terms_even_with_an_unknown_or_missing_opt_in_label() {
    assert_eq!(pod().without_label(keys::OPT_IN).patch(), pod().patch());
    assert_eq!(pod().label(keys::OPT_IN, "nonsense").patch(), pod().patch());
}

#[test]
fn only_missing_parents_are_created() {
    let required = |kind: &str, list: Value| json!({ kind: { REQUIRED: list } });
    let table = [
        (json!(null), vec!["/spec/affinity"]),
        (
            json!({}),
            vec!["/spec/affinity/podAffinity", "/spec/affinity/podAntiAffinity"],
        ),
        (
            json!({"nodeAffinity": {}}),
            vec!["/spec/affinity/podAffinity", "/spec/affinity/podAntiAffinity"],
        ),
        (
            json!({"podAffinity": {}}),
            vec![AFFINITY, "/spec/affinity/podAntiAffinity"],
        ),
        (
            json!({"podAffinity": null, "podAntiAffinity": {}}),
            vec!["/spec/affinity/podAffinity", ANTI_AFFINITY],
        ),
        (
            required("podAffinity", json!(null)),
            vec![AFFINITY, "/spec/affinity/podAntiAffinity"],
        ),
    ];
    for (affinity, paths) in table {
        let doc = pod().affinity(affinity);
        assert_eq!(doc.paths(), paths, "{}", doc.0);
        let doc = doc.injected();
        assert_eq!(
            [doc.terms(AFFINITY), doc.terms(ANTI_AFFINITY)].concat(),
            own_terms()
        );
    }
}

#[test]
fn existing_terms_are_kept_before_the_terms_of_the_group() {
    let doc = pod().affinity(json!({
        "nodeAffinity": {PREFERRED: []},
        "podAffinity": {REQUIRED: [], PREFERRED: [{"weight": 1}]},
        "podAntiAffinity": {REQUIRED: [users_term()]}
    }));
    insta::assert_json_snapshot!("beside_others", doc.patch());
    let [affinity, anti_affinity] = own_terms();
    let doc = doc.injected();
    assert_eq!(doc.terms(AFFINITY), [affinity]);
    assert_eq!(doc.terms(ANTI_AFFINITY), [users_term(), anti_affinity]);
}

#[test]
fn another_required_pod_affinity_becomes_preferred_and_the_pod_gets_an_annotation() {
    let doc = pod().affinity(json!({
        "podAffinity": {REQUIRED: [users_term(), tektons_term()], PREFERRED: [{"weight": 1}]}
    }));
    assert_eq!(doc.outcome(), Outcome::Relaxed);
    insta::assert_json_snapshot!("relaxed", doc.patch());
    let doc = doc.injected();
    let [affinity, anti_affinity] = own_terms();
    assert_eq!(doc.terms(AFFINITY), [affinity]);
    assert_eq!(doc.terms(ANTI_AFFINITY), [anti_affinity]);
    let theirs = json!({"weight": 100, "podAffinityTerm": users_term()});
    assert_eq!(
        doc.0["spec"]["affinity"]["podAffinity"][PREFERRED],
        json!([{"weight": 1}, theirs])
    );
    assert_eq!(doc.0["metadata"]["annotations"][keys::RELAXED], "true");
    assert_eq!(doc.outcome(), Outcome::AlreadyThere);
}

#[test]
fn the_annotation_about_a_relaxed_affinity_is_added_to_existing_annotations() {
    let required = json!({"podAffinity": {REQUIRED: [users_term()]}});
    let doc = pod()
        .affinity(required)
        .set(&["metadata", "annotations"], json!({"a": "b"}));
    let annotations = json!({"a": "b", keys::RELAXED: "true"});
    assert_eq!(doc.injected().0["metadata"]["annotations"], annotations);
}

#[test]
fn only_the_missing_term_is_added() {
    let [affinity, anti_affinity] = own_terms();
    let doc = pod().affinity(json!({"podAffinity": {REQUIRED: [affinity]}}));
    assert_eq!(doc.paths(), ["/spec/affinity/podAntiAffinity"]);
    let doc = pod().affinity(json!({"podAntiAffinity": {REQUIRED: [users_term(), anti_affinity]}}));
    assert_eq!(doc.paths(), ["/spec/affinity/podAffinity"]);
}

#[test]
fn a_second_admission_of_a_pod_changes_nothing() {
    let doc = pod().injected();
    assert_eq!(doc.outcome(), Outcome::AlreadyThere);
    assert_eq!(doc.patch(), json!([]));
}

#[test]
fn a_term_of_another_group_does_not_replace_the_term_of_the_group() {
    let doc = pod().injected().label(keys::GROUP, "u2");
    assert_eq!(doc.outcome(), Outcome::Relaxed);
    assert!(
        doc.paths().contains(&format!("{ANTI_AFFINITY}/-")),
        "{:?}",
        doc.paths()
    );
}

#[test]
fn the_order_of_a_terms_fields_does_not_matter() {
    let [affinity, _] = own_terms();
    let reordered: Value = serde_json::from_str(&format!(
        r#"{{"topologyKey": {}, "labelSelector": {}}}"#,
        affinity["topologyKey"], affinity["labelSelector"]
    ))
    .unwrap();
    let doc = pod()
        .label(keys::STRATEGY, "colocateAlways")
        .affinity(json!({"podAffinity": {REQUIRED: [reordered]}}));
    assert_eq!(doc.outcome(), Outcome::AlreadyThere);
}

#[test]
fn a_malformed_pod_is_left_to_the_validation_of_the_api_server() {
    let odd = [
        Doc(json!(null)),
        Doc(json!("pod")),
        pod().set(&["metadata"], 1),
        pod().set(&["metadata", "labels"], json!(["a"])),
        pod().set(&["spec"], Value::Null),
        pod().set(&["spec"], json!([])),
        pod().affinity(json!("a")),
        pod().affinity(json!({"podAffinity": 1})),
        pod().affinity(json!({"podAntiAffinity": {REQUIRED: {}}})),
    ];
    for doc in odd {
        assert_eq!(doc.decided(), (Patch::default(), Outcome::WrongType), "{}", doc.0);
    }
}

#[test]
fn an_affinity_assistant_follows_other_pods_of_its_group_and_is_never_the_first_pod() {
    let assistant = pod().label(keys::COMPONENT, keys::ASSISTANT).injected();
    let [own, _] = own_terms();
    let [term] = &assistant.terms(AFFINITY)[..] else {
        panic!("one term")
    };
    let selector = |term: &Value| {
        term["labelSelector"]["matchExpressions"]
            .as_array()
            .unwrap()
            .clone()
    };
    let others = json!({"key": keys::COMPONENT, "operator": "NotIn", "values": [keys::ASSISTANT]});
    assert_eq!(selector(term), [selector(&own), vec![others]].concat());
    assert_eq!(assistant.outcome(), Outcome::AlreadyThere);
}
