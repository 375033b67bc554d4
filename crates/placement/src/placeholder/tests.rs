//! What a placeholder takes over from its run, and what it must never take over.

use super::*;
use crate::admission::Outcome;
use crate::admission::pod;
use crate::fixture::{run, spec_of};
use crate::strategy::{Isolation, Strategy};
use json_patch::Patch;
use k8s_openapi::api::core::v1::{LocalObjectReference, Toleration};
use serde_json::{Value, json};
use spec::Spec;

mod additions;
mod properties;
mod size;

/// A run whose pod template has every field that the placeholder takes over, and a required podAffinity, which no run
/// may have.
fn demanding_run() -> Run {
    let affinity = json!({
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]
        },
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}],
            "preferredDuringSchedulingIgnoredDuringExecution":
                [{"weight": 2, "podAffinityTerm": {"topologyKey": "rack"}}]
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "host"}],
            "preferredDuringSchedulingIgnoredDuringExecution":
                [{"weight": 3, "podAffinityTerm": {"topologyKey": "row"}}]
        }
    });
    let template = PodTemplate {
        node_selector: strings([("disk", "ssd")]),
        tolerations: vec![Toleration {
            key: Some("ci".to_owned()),
            operator: Some("Exists".to_owned()),
            ..Toleration::default()
        }],
        affinity: Some(serde_json::from_value(affinity).unwrap()),
        scheduler_name: Some("other-scheduler".to_owned()),
        priority_class_name: Some("urgent".to_owned()),
        runtime_class_name: Some("gvisor".to_owned()),
        image_pull_secrets: vec![LocalObjectReference {
            name: "registry".to_owned(),
        }],
        service_account: Some("builder".to_owned()),
    };
    Run {
        template,
        claims: vec!["source".to_owned(), "cache".to_owned()],
        ..run()
    }
}

fn enrolment(strategy: Strategy) -> Enrolment {
    Enrolment {
        strategy,
        isolation: Isolation::default(),
    }
}

fn placeholder(run: &Run, strategy: Strategy) -> StatefulSet {
    stateful_set(
        run,
        enrolment(strategy),
        &Strings::new(),
        &Images::default(),
        &Config::default(),
        "registry/pod-affinity:1",
    )
}

const SET: &str = "set-uid";

/// The patch that changes this StatefulSet from its observed state.
fn change(set: &Value, change: impl FnOnce(&mut Spec)) -> Patch {
    let spec = spec_of(set);
    let mut wanted = spec.clone();
    change(&mut wanted);
    spec::patch(SET, &spec, &wanted)
}

fn template_of(set: &StatefulSet) -> Value {
    serde_json::to_value(&set.spec.as_ref().unwrap().template).unwrap()
}

fn pod_of(run: &Run, strategy: Strategy) -> Value {
    template_of(&placeholder(run, strategy))
}

#[test]
fn a_run_without_a_pod_template_gets_a_small_restricted_pod() {
    insta::assert_yaml_snapshot!("plain", placeholder(&run(), Strategy::ColocateCompleted));
}

#[test]
fn a_placeholder_has_the_node_requirements_and_the_pvcs_of_its_run() {
    insta::assert_yaml_snapshot!(
        "demanding",
        placeholder(&demanding_run(), Strategy::IsolateAlways)
    );
}

#[test]
fn the_pod_of_a_placeholder_has_all_terms_that_the_webhook_would_add() {
    for name in Strategy::NAMES {
        for isolation in Isolation::NAMES {
            let enrolment = Enrolment {
                strategy: name.parse().unwrap(),
                isolation: isolation.parse().unwrap(),
            };
            let set = stateful_set(
                &demanding_run(),
                enrolment,
                &Strings::new(),
                &Images::default(),
                &Config::default(),
                "i",
            );
            let verdict = pod::admit(&template_of(&set));
            assert_eq!(verdict.outcome(), Outcome::AlreadyThere, "{name} {isolation}");
        }
    }
}

#[test]
fn a_placeholder_with_colocate_always_has_no_anti_affinity() {
    let pod = pod_of(&run(), Strategy::ColocateAlways);
    assert!(pod["spec"]["affinity"].get("podAntiAffinity").is_none());
    assert!(pod["spec"]["affinity"].get("podAffinity").is_some());
}

#[test]
fn the_selector_matches_the_pod_and_does_not_depend_on_the_strategy() {
    let selector = |strategy| {
        let set = placeholder(&run(), strategy);
        set.spec.unwrap().selector.match_labels.unwrap()
    };
    let labels = pod_of(&run(), Strategy::ColocateCompleted)["metadata"]["labels"].clone();
    for (key, value) in selector(Strategy::ColocateCompleted) {
        assert_eq!(labels[&key], value);
    }
    assert_eq!(
        selector(Strategy::ColocateCompleted),
        selector(Strategy::IsolateAlways)
    );
}

#[test]
fn statefulset_and_pod_have_the_same_fixed_set_of_labels() {
    let set = placeholder(&demanding_run(), Strategy::ColocateCompleted);
    let labels = set.metadata.labels.clone().unwrap();
    assert_eq!(
        serde_json::to_value(&labels).unwrap(),
        template_of(&set)["metadata"]["labels"]
    );
    let known = [
        keys::COMPONENT,
        keys::MANAGED_BY,
        keys::APP,
        keys::GROUP,
        keys::ISOLATION,
        keys::KEPT_BY,
        keys::STRATEGY,
        keys::TEKTON_PIPELINE_RUN,
    ];
    assert_eq!(labels.keys().map(String::as_str).collect::<Vec<_>>(), known);
}

#[test]
fn the_configured_size_is_the_request_and_the_limit() {
    let config = Config {
        placeholder_cpu: "10m".to_owned(),
        placeholder_memory: "32Mi".to_owned(),
        ..Config::default()
    };
    let set = stateful_set(
        &run(),
        enrolment(Strategy::default()),
        &Strings::new(),
        &Images::default(),
        &config,
        "i",
    );
    let resources = template_of(&set)["spec"]["containers"][0]["resources"].clone();
    let size = json!({"cpu": "10m", "memory": "32Mi"});
    assert_eq!(resources, json!({"requests": size, "limits": size}));
}

#[test]
fn the_required_anti_affinity_of_the_tasks_is_a_preferred_one_of_the_placeholder() {
    let pod = pod_of(&demanding_run(), Strategy::ColocateAlways);
    let away = &pod["spec"]["affinity"]["podAntiAffinity"];
    let preferred = json!([
        {"weight": 100, "podAffinityTerm": {"topologyKey": "host"}},
        {"weight": 3, "podAffinityTerm": {"topologyKey": "row"}}
    ]);
    assert_eq!(
        away,
        &json!({"preferredDuringSchedulingIgnoredDuringExecution": preferred})
    );
}

#[test]
fn the_applied_placeholder_has_no_empty_field() {
    let set = serde_json::to_value(placeholder(&run(), Strategy::ColocateCompleted)).unwrap();
    assert!(
        has_no_empty_field(&set["spec"]) && has_no_empty_field(&set["metadata"]),
        "{set}"
    );
    assert!(set.get("status").is_none());
}

/// In `namespaceSelector`, an empty object has a meaning.
fn has_no_empty_field(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty() && items.iter().all(has_no_empty_field),
        Value::Object(fields) => fields.iter().all(|(key, field)| {
            key == "namespaceSelector" || *field != json!({}) && has_no_empty_field(field)
        }),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}
