//! The dry runs as pod-affinity answers them, and the findings on other programs that change pods.

use super::*;
use crate::doctor::tests::{healthy, problems};
use crate::fixture::{forbidden, not_served, object};
use placement::admission::Verdict;
use runtime::install;

fn admitted(pod: &Pod) -> Pod {
    let mut pod = serde_json::to_value(pod).unwrap();
    let Verdict::Allow { patch, .. } = placement::admission::pod::admit(&pod) else {
        panic!("not admitted: {pod}")
    };
    json_patch::patch(&mut pod, &patch).unwrap();
    serde_json::from_value(pod).unwrap()
}

#[test]
fn pod_affinity_gives_both_trial_pods_their_terms_and_marks_the_second() {
    let (first, second) = (admitted(&pod()), admitted(&pod_to_mark()));
    assert!(has_terms(&first) && !is_marked(&first));
    assert!(has_terms(&second) && is_marked(&second));
}

#[test]
fn a_pod_with_another_required_term_does_not_have_the_terms_of_its_group() {
    let mut undone = admitted(&pod());
    let affinity = undone.spec.as_mut().unwrap().affinity.as_mut().unwrap();
    let together = affinity.pod_affinity.as_mut().unwrap();
    let terms = together
        .required_during_scheduling_ignored_during_execution
        .as_mut();
    terms
        .unwrap()
        .push(k8s_openapi::api::core::v1::PodAffinityTerm::default());
    assert!(!has_terms(&undone) && !has_terms(&pod()));
}

fn rule(group: &str, resource: &str, operation: &str) -> Value {
    json!([{"apiGroups": [group], "apiVersions": ["*"], "resources": [resource], "operations": [operation]}])
}

fn webhook(name: &str, rules: &Value) -> MutatingWebhookConfiguration {
    let hook = json!({"name": name, "rules": rules, "admissionReviewVersions": ["v1"], "clientConfig": {}, "sideEffects": "None"});
    object(
        json!({"metadata": {"name": name}, "webhooks": [hook]}),
        &json!({}),
    )
}

fn policy(name: &str, rules: &Value) -> DynamicObject {
    let policy = json!({"metadata": {"name": name}, "spec": {"matchConstraints": {"resourceRules": rules}}});
    object(policy, &json!({}))
}

fn printed(others: OtherMutators) -> String {
    let mut snapshot = healthy();
    snapshot.trial.others = Some(others);
    problems(&snapshot)
}

#[test]
fn other_mutators_are_named_when_an_affinity_was_changed() {
    let webhooks = vec![
        webhook("sidecars", &rule("", "pods", "CREATE")),
        webhook("all", &rule("*", "*/*", "*")),
        webhook("evictions", &rule("", "pods/eviction", "CREATE")),
        webhook("jobs", &rule("batch", "jobs", "CREATE")),
        webhook("removals", &rule("", "pods", "DELETE")),
        webhook(install::POD_WEBHOOK, &rule("", "pods", "CREATE")),
    ];
    let policies = vec![
        policy("placement", &rule("", "pods", "CREATE")),
        policy("terms.pod.pod-affinity.tekton.dev", &rule("", "pods", "CREATE")),
        policy("odd", &json!("none")),
    ];
    insta::assert_snapshot!(printed(OtherMutators::new(Ok(webhooks), Ok(policies))));
}

#[test]
fn without_other_mutators_the_admission_plugins_are_named() {
    let none = OtherMutators::new(Ok(Vec::new()), Err(not_served("mutatingadmissionpolicies")));
    insta::assert_snapshot!(printed(none));
}

#[test]
fn a_list_that_could_not_be_read_is_named() {
    let one = vec![webhook("sidecars", &rule("", "pods", "CREATE"))];
    let error = forbidden("list", "mutatingadmissionpolicies.admissionregistration.k8s.io");
    let printed = printed(OtherMutators::new(Ok(one), Err(error)));
    let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        printed.contains("MutatingWebhookConfiguration sidecars. Not read: you lack the right to list"),
        "{printed}"
    );
}
