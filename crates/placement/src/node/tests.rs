//! Which nodes are usable, and which node comes nearest.

use super::*;
use serde_json::{Value, json};

fn node(changes: &Value) -> NodeFacts {
    let mut node = json!({
        "metadata": {"name": "n1"},
        "spec": {},
        "status": {"conditions": [
            {"type": "MemoryPressure", "status": "False"},
            {"type": "Ready", "status": "True"},
        ]},
    });
    json_patch::merge(&mut node, changes);
    NodeFacts::from_node(&serde_json::from_value(node).unwrap()).unwrap()
}

fn tainted(key: &str, effect: &str) -> Value {
    json!({"spec": {"taints": [{"key": key, "value": "v", "effect": effect}]}})
}

fn not_ready(status: &str) -> Value {
    json!({"status": {"conditions": [{"type": "Ready", "status": status}]}})
}

fn toleration(fields: Value) -> Toleration {
    serde_json::from_value(fields).unwrap()
}

fn judged(changes: &Value) -> NodeState {
    state(Some(&node(changes)), &[])
}

#[test]
fn a_cause_has_the_form_of_a_metric_label() {
    assert_eq!(Cause::NotReady.as_str(), "not_ready");
}

#[test]
fn a_ready_node_without_taints_is_usable() {
    assert_eq!(judged(&json!({})), NodeState::Usable);
}

#[test]
fn a_cordoned_node_is_unusable_with_and_without_its_taint() {
    let cordoned = NodeState::Unusable(Cause::Cordoned);
    assert_eq!(judged(&json!({"spec": {"unschedulable": true}})), cordoned);
    assert_eq!(judged(&tainted(CORDON, NO_SCHEDULE)), cordoned);
}

#[test]
fn a_node_is_not_ready_by_its_condition_without_a_condition_or_by_its_taint() {
    for status in ["False", "Unknown"] {
        assert_eq!(
            judged(&not_ready(status)),
            NodeState::Unusable(Cause::NotReady),
            "{status}"
        );
    }
    assert_eq!(
        judged(&json!({"status": null})),
        NodeState::Unusable(Cause::NotReady)
    );
    for (key, effect) in [(NOT_READY, "NoExecute"), (UNREACHABLE, NO_SCHEDULE)] {
        assert_eq!(
            judged(&tainted(key, effect)),
            NodeState::Unusable(Cause::NotReady),
            "{key}"
        );
    }
}

#[test]
fn only_taints_with_no_schedule_or_no_execute_make_a_node_unusable() {
    let table = [
        (NO_SCHEDULE, NodeState::Unusable(Cause::Tainted)),
        ("NoExecute", NodeState::Unusable(Cause::Tainted)),
        ("PreferNoSchedule", NodeState::Usable),
    ];
    for (effect, expected) in table {
        assert_eq!(judged(&tainted("ci", effect)), expected, "{effect}");
    }
}

#[test]
fn a_missing_node_is_gone() {
    assert_eq!(state(None, &[]), NodeState::Unusable(Cause::Gone));
}

#[test]
fn the_worst_of_several_causes_is_reported() {
    let mut all = tainted("ci", NO_SCHEDULE);
    all["spec"]["unschedulable"] = json!(true);
    assert_eq!(judged(&all), NodeState::Unusable(Cause::Cordoned));
    json_patch::merge(&mut all, &not_ready("Unknown"));
    assert_eq!(judged(&all), NodeState::Unusable(Cause::NotReady));
    let mut by_taints = tainted("ci", NO_SCHEDULE);
    let unreachable = json!({"key": UNREACHABLE, "effect": NO_SCHEDULE});
    by_taints["spec"]["taints"]
        .as_array_mut()
        .unwrap()
        .push(unreachable);
    assert_eq!(judged(&by_taints), NodeState::Unusable(Cause::NotReady));
}

#[test]
fn a_tolerated_taint_does_not_make_a_node_unusable() {
    let fit = |fields: Value| {
        state(Some(&node(&tainted("ci", NO_SCHEDULE))), &[toleration(fields)]) == NodeState::Usable
    };
    let tolerating = [
        json!({"operator": "Exists"}),
        json!({"key": "ci", "operator": "Exists"}),
        json!({"key": "ci", "value": "v"}),
        json!({"key": "ci", "operator": "Equal", "value": "v", "effect": "NoSchedule"}),
        json!({"key": "ci", "operator": "Exists", "effect": ""}),
    ];
    for fields in tolerating {
        assert!(fit(fields.clone()), "{fields}");
    }
    let others = [
        json!({"key": "other", "operator": "Exists"}),
        json!({"key": "ci", "value": "w"}),
        json!({"key": "ci"}),
        json!({"value": "v"}),
        json!({"key": "ci", "operator": "Exists", "effect": "NoExecute"}),
        json!({"key": "ci", "operator": "Gt", "value": "v"}),
        json!({"key": "ci", "operator": "Near", "value": "v"}),
        json!({}),
    ];
    for fields in others {
        assert!(!fit(fields.clone()), "{fields}");
    }
}

#[test]
fn a_toleration_can_compare_the_number_in_a_taint() {
    let taint = json!({"spec": {"taints": [{"key": "sla", "value": "950", "effect": "NoSchedule"}]}});
    let fits = |operator: &str, value: &str| {
        let tolerations = [toleration(
            json!({"key": "sla", "operator": operator, "value": value}),
        )];
        state(Some(&node(&taint)), &tolerations) == NodeState::Usable
    };
    let bounds = ["949", "950", "951", "high"];
    assert_eq!(bounds.map(|bound| fits("Gt", bound)), [true, false, false, false]);
    assert_eq!(bounds.map(|bound| fits("Lt", bound)), [false, false, true, false]);
}

#[test]
fn a_run_that_tolerates_all_taints_can_start_on_any_existing_node() {
    let everything = [toleration(json!({"operator": "Exists"}))];
    for changes in [json!({"spec": {"unschedulable": true}}), not_ready("Unknown")] {
        assert_eq!(state(Some(&node(&changes)), &everything), NodeState::Usable);
    }
    assert_eq!(state(None, &everything), NodeState::Unusable(Cause::Gone));
}

fn sized(name: &str, cpu: &str, memory: &str) -> NodeFacts {
    node(&json!({
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": cpu, "memory": memory}},
    }))
}

fn asked(pairs: Value) -> Resources {
    Resources::from_quantities(&serde_json::from_value(pairs).unwrap())
}

fn nearest(nodes: &[NodeFacts], asks: Value) -> String {
    largest(nodes.iter(), &asked(asks))
        .map(|offer| offer.to_string())
        .unwrap_or_default()
}

#[test]
fn the_nearest_node_is_named_with_its_missing_resources() {
    let nodes = [
        sized("small", "2", "64Gi"),
        sized("large", "8", "16Gi"),
        sized("lean", "8", "1Gi"),
    ];
    assert_eq!(
        nearest(&nodes, json!({"cpu": "12", "memory": "4Gi"})),
        "large has cpu 8 of 12"
    );
    assert_eq!(
        nearest(&nodes, json!({"cpu": "1", "memory": "32Gi"})),
        "small is large enough"
    );
    assert_eq!(
        nearest(&nodes, json!({"nvidia.com/gpu": "1"})),
        "large has nvidia.com/gpu 0 of 1"
    );
}

#[test]
fn an_offer_fits_if_it_is_short_of_no_resource() {
    let offer =
        |cpu: &str| largest([&sized("n", "2", "1Gi")].into_iter(), &asked(json!({"cpu": cpu}))).unwrap();
    assert!(offer("2000m").fits() && !offer("2001m").fits());
    assert_eq!(offer("3").short().count(), 1);
}
