use super::*;
use crate::fixture::{Caches, at, node as node_json, run, stuck_task};
use kube::runtime::reflector::ObjectRef;
use serde_json::{Value, json};

fn changed(mut pod: Value, changes: &Value) -> Value {
    json_patch::merge(&mut pod, changes);
    pod
}

#[test]
fn a_pod_waits_until_its_binding_or_its_deletion() {
    let mut caches = Caches::ready();
    let pod = stuck_task(&run(), "build-large-pod", at(0));
    assert_eq!(caches.add_task(pod.clone()).len(), 1);
    let waiting = waiting_in(&caches.stores.waiting, &run().key);
    assert_eq!(waiting.len(), 1);
    assert_eq!(waiting[0].task_run.as_deref(), Some("build-large"));
    assert_eq!(waiting[0].requests.to_string(), "cpu=12");
    assert_eq!(waiting[0].unschedulable.as_ref().unwrap().since, at(0));
    for end in [
        json!({"spec": {"nodeName": "n1"}}),
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
    ] {
        caches.add_task(pod.clone());
        assert_eq!(caches.add_task(changed(pod.clone(), &end)).len(), 1, "{end}");
        assert!(waiting_in(&caches.stores.waiting, &run().key).is_empty(), "{end}");
    }
}

#[test]
fn a_pod_that_is_gated_or_waits_for_a_claim_is_not_unschedulable() {
    let gated = json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]);
    let pod = changed(
        stuck_task(&run(), "pod", at(0)),
        &json!({"status": {"conditions": gated}}),
    );
    let mut caches = Caches::ready();
    caches.add_task(pod);
    assert_eq!(
        waiting_in(&caches.stores.waiting, &run().key)[0].unschedulable,
        None
    );
}

#[test]
fn pods_of_another_namespace_have_no_say_though_they_bear_the_group() {
    let mut caches = Caches::ready();
    let forged = changed(
        stuck_task(&run(), "pod", at(0)),
        &json!({"metadata": {"namespace": "other"}}),
    );
    caches.add_task(forged);
    assert!(waiting_in(&caches.stores.waiting, &run().key).is_empty());
}

#[test]
fn a_pod_whose_group_changes_is_in_the_last_group_only() {
    let mut caches = Caches::ready();
    let pod = stuck_task(&run(), "pod", at(0));
    caches.add_task(pod.clone());
    caches.add_task(changed(
        pod,
        &json!({"metadata": {"labels": {keys::GROUP: "u2"}}}),
    ));
    assert!(waiting_in(&caches.stores.waiting, &run().key).is_empty());
    assert_eq!(caches.stores.waiting.read().len(), 1);
}

#[test]
fn only_a_change_that_matters_wakes_anybody() {
    let mut caches = Caches::ready();
    assert_eq!(caches.add_node(node_json("n2", &json!({}))), ["n2"]);
    let heartbeat = json!({
        "metadata": {"resourceVersion": "9"},
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]},
    });
    assert!(caches.add_node(node_json("n2", &heartbeat)).is_empty());
    let cordoned = json!({"spec": {"unschedulable": true}});
    assert_eq!(caches.add_node(node_json("n2", &cordoned)), ["n2"]);
}

#[test]
fn a_node_triggers_the_runs_whose_placeholders_are_on_the_node() {
    let mut caches = Caches::ready();
    caches.add_pod(&run(), "p1", Some("n1"));
    let on = |node: &str| caches.stores.runs_on(&[node.to_owned()].into());
    assert_eq!(on("n1"), [ObjectRef::new("build").within("ns")]);
    assert!(on("n2").is_empty());
}

#[test]
fn a_pod_leads_to_the_run_of_its_group_though_a_nested_run_made_it() {
    let mut caches = Caches::ready();
    caches.add_held_run("build", "u1");
    let nested = json!({"metadata": {"labels": {keys::TEKTON_PIPELINE_RUN: "nested"}}});
    for pod in [
        stuck_task(&run(), "pod", at(0)),
        changed(stuck_task(&run(), "pod", at(0)), &nested),
    ] {
        let ((namespace, _), waiting) = super::pod(&serde_json::from_value(pod).unwrap()).unwrap();
        let found = caches.stores.run_of_pod(&namespace, &waiting.unwrap());
        assert_eq!(found, Some(ObjectRef::new("build").within("ns")));
    }
    let elsewhere = json!({"metadata": {"namespace": "other"}});
    let pod = changed(stuck_task(&run(), "pod", at(0)), &elsewhere);
    let ((namespace, _), waiting) = super::pod(&serde_json::from_value(pod).unwrap()).unwrap();
    assert_eq!(
        caches.stores.run_of_pod(&namespace, &waiting.unwrap()),
        None,
        "another namespace"
    );
}

#[test]
fn the_runs_of_a_namespace_that_have_placeholders_are_found() {
    let mut caches = Caches::ready();
    caches.add_set(&run(), "s1");
    let runs = caches.stores.runs_in("ns");
    assert_eq!(runs, [ObjectRef::new("build").within("ns")]);
    assert!(caches.stores.runs_in("n").is_empty());
}

#[test]
fn a_pod_whose_affinity_the_webhook_relaxed_bears_its_mark() {
    let relaxed = |pod: Value| {
        let (_, waiting) = super::pod(&serde_json::from_value(pod).unwrap()).unwrap();
        waiting.unwrap().pod.it.relaxed
    };
    let pod = stuck_task(&run(), "pod", at(0));
    let mark = json!({"metadata": {"annotations": {keys::RELAXED: "true"}}});
    assert!(!relaxed(pod.clone()));
    assert!(relaxed(changed(pod, &mark)));
}
