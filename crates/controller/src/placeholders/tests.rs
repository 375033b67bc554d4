use super::*;
use placement::plan::Unschedulable;
use placement::strategy::{Isolation, Strategy};
use serde_json::{Value, json};

fn metadata(suffix: &str) -> Value {
    let name = format!("{}{suffix}", PlaceholderName::of_uid("u1"));
    json!({
        "name": name, "namespace": "ns", "uid": "s1", "generation": 4,
        "labels": {
            keys::GROUP: "u1", keys::STRATEGY: "isolateAlways", keys::ISOLATION: "cluster-all",
            keys::TEKTON_PIPELINE_RUN: "build", keys::COMPONENT: keys::PLACEHOLDER,
        },
        "annotations": {"a": "b"},
        "managedFields": [{"manager": "m"}],
        "ownerReferences": [
            {"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "build", "uid": "u1", "controller": true},
        ],
    })
}

fn watched(changes: &Value) -> OfRun<Placeholder> {
    let mut object = json!({"metadata": metadata(""), "spec": {"replicas": 1, "template": {}}, "status": {}});
    json_patch::merge(&mut object, changes);
    super::set(&serde_json::from_value(object).unwrap())
        .unwrap()
        .1
        .unwrap()
}

fn set(changes: &Value) -> Placeholder {
    watched(changes).it
}

fn pod(changes: &Value) -> PlaceholderPod {
    let mut object = json!({"metadata": metadata("-0"), "spec": {}, "status": {"phase": "Pending"}});
    json_patch::merge(&mut object, changes);
    super::pod(&serde_json::from_value(object).unwrap())
        .unwrap()
        .1
        .unwrap()
        .it
}

#[test]
fn a_placeholder_of_the_run_is_seen_with_its_strategy() {
    let expected = Placeholder {
        uid: "s1".into(),
        owned: true,
        deleting: false,
        generation: 4,
        observed: false,
        strategy: Some(Strategy::IsolateAlways),
        isolation: Some(Isolation::default()),
        warm_nodes: Some(WarmNodes::of_runs(["n1".to_owned()])),
        spec: Spec {
            replicas: 1,
            claims: vec!["source".into()],
            images: ["golang".to_owned()].into_iter().collect(),
            ..Spec::default()
        },
    };
    let volumes = json!([
        {"name": "workspace-0", "persistentVolumeClaim": {"claimName": "source"}},
        {"name": "image-0", "image": {"reference": "golang", "pullPolicy": "IfNotPresent"}},
    ]);
    let changes = json!({
        "metadata": {"annotations": {keys::WARM_NODES: "n1"}},
        "spec": {"template": {"spec": {"volumes": volumes}}},
    });
    assert_eq!(set(&changes), expected);
    assert_eq!(set(&json!({})).warm_nodes, None);
}

#[test]
fn a_placeholder_of_another_run_or_with_malformed_labels_is_recognized() {
    let another = json!({"name": PlaceholderName::of_uid("u2").as_str(), "labels": {keys::STRATEGY: "?"}});
    let odd = set(&json!({"metadata": another, "spec": {"replicas": null}}));
    assert!(!odd.owned);
    assert_eq!((odd.strategy, odd.spec.replicas), (None, 1));
}

#[test]
fn a_placeholder_is_observed_once_its_controller_has_tried() {
    assert!(!set(&json!({})).observed);
    assert!(!set(&json!({"status": {"observedGeneration": 0}})).observed);
    assert!(set(&json!({"status": {"observedGeneration": 1}})).observed);
}

#[test]
fn a_placeholder_leads_to_its_run() {
    let run = run_of("ns", &watched(&json!({})));
    assert_eq!(run, Some(ObjectRef::new("build").within("ns")));
}

#[test]
fn a_pod_is_seen_with_its_node() {
    assert_eq!(pod(&json!({})).node, None);
    assert_eq!(pod(&json!({"spec": {"nodeName": ""}})).node, None);
    assert_eq!(
        pod(&json!({"spec": {"nodeName": "n1"}})).node.as_deref(),
        Some("n1")
    );
}

#[test]
fn a_pod_that_is_deleted_or_finished_is_ending() {
    assert!(!pod(&json!({})).ending);
    assert!(pod(&json!({"status": {"phase": "Failed"}})).ending);
    assert!(pod(&json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})).ending);
}

#[test]
fn the_message_of_the_scheduler_is_kept_only_until_the_pod_has_a_node() {
    let condition = |status: &str| {
        json!({"status": {"conditions": [
            {"type": "Ready", "status": "False", "message": "no"},
            {
                "type": "PodScheduled", "status": status, "reason": "Unschedulable", "message": "0/3 nodes",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            },
        ]}})
    };
    let expected = Unschedulable {
        message: "0/3 nodes".into(),
        since: "2026-01-01T00:00:00Z".parse().unwrap(),
    };
    assert_eq!(pod(&condition("False")).unschedulable, Some(expected));
    assert_eq!(pod(&condition("True")).unschedulable, None);
}

#[test]
fn the_condition_of_another_scheduler_counts_with_its_reason() {
    for (condition, message) in [
        (
            json!({"reason": "MATCH_NODE_SELECTOR_FAILED", "message": "no"}),
            "MATCH_NODE_SELECTOR_FAILED: no",
        ),
        (
            json!({"reason": "SchedulingGated", "message": "blocked"}),
            "SchedulingGated: blocked",
        ),
        (json!({"message": "no"}), "no"),
    ] {
        let mut condition = condition;
        (condition["type"], condition["status"]) = (json!("PodScheduled"), json!("False"));
        let unschedulable = pod(&json!({"status": {"conditions": [condition]}})).unschedulable;
        assert_eq!(unschedulable.unwrap().message, message);
    }
}

#[test]
fn the_shape_of_a_pod_ignores_additions_of_other_controllers() {
    let of = |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
    let made = pod(&json!({
        "metadata": {"annotations": {keys::RESERVE: "cpu=4", keys::PINNED: ""}},
        "spec": {"containers": [of("sidecar", "1"), of(keys::PLACEHOLDER, "4")]},
    }))
    .shape;
    assert_eq!(made.requests.to_string(), "cpu=4");
    assert_eq!(
        (made.reserves, made.pinned, made.resize),
        (true, false, Resize::Possible)
    );
}

#[test]
fn a_resize_that_a_kubelet_will_never_carry_out_counts_as_refused() {
    let pending = |reason: &str| json!({"type": "PodResizePending", "status": "True", "reason": reason});
    for (status, resize) in [
        (json!({"conditions": [pending("Infeasible")]}), Resize::Refused),
        (json!({"conditions": [pending("Deferred")]}), Resize::Possible),
    ] {
        assert_eq!(pod(&json!({"status": status})).shape.resize, resize, "{status}");
    }
}

#[test]
fn a_set_whose_template_names_a_node_is_pinned() {
    let template = |node: &str| {
        set(&json!({"spec": {"template": {"metadata": {"annotations": {keys::PINNED: node}}}}}))
            .spec
            .node
    };
    assert_eq!((template("n1").as_deref(), template("")), (Some("n1"), None));
}

#[test]
fn a_placeholder_that_made_room_gave_up_no_node_and_is_not_one_that_never_left() {
    let left = |node: &Value| {
        set(&json!({"spec": {"template": {"metadata": {"annotations": {keys::LEFT: node}}}}})).spec
    };
    let [moved, made_room, stayed] = [json!("n1"), json!(""), Value::Null].map(|node| left(&node));
    assert_eq!(moved.node_given_up(), Some("n1"));
    assert_eq!(
        (made_room.previous_node.as_deref(), made_room.node_given_up()),
        (Some(""), None)
    );
    assert_eq!(stayed.previous_node, None);
}
