use super::*;
use crate::fixture::{Caches, run};
use kube::runtime::reflector::ObjectRef;
use serde_json::{Value, json};

fn failed_create(caches: &Caches, uid: &str) -> Option<String> {
    let name = run().key.placeholder();
    latest(&caches.stores.failed_creates, "ns", name.as_str(), uid)
}

#[test]
fn the_latest_event_about_an_object_counts_in_any_order_of_arrival() {
    let mut caches = Caches::ready();
    caches.add_failed_create(&run(), 7, "newer");
    caches.add_failed_create(&run(), 3, "older");
    assert_eq!(failed_create(&caches, "s1").as_deref(), Some("newer"));
    // The name of this event, e10, is before the name e7.
    caches.add_failed_create(&run(), 10, "newest");
    assert_eq!(failed_create(&caches, "s1").as_deref(), Some("newest"));
    assert_eq!(
        failed_create(&caches, "another"),
        None,
        "the name was used before"
    );
}

#[test]
fn an_event_about_a_statefulset_of_a_user_is_not_kept() {
    let event = |name: &str| {
        let event = json!({"metadata": {"namespace": "ns", "name": "e"}, "involvedObject": {"name": name}});
        of_statefulset(&serde_json::from_value(event).unwrap()).is_some()
    };
    assert!(event(run().key.placeholder().as_str()));
    assert!(!event("database"));
}

#[test]
fn the_answer_of_an_autoscaler_is_known_by_its_reporter_and_its_reason() {
    let event = |fields: &Value| {
        let mut event = json!({
            "metadata": {"namespace": "ns", "name": "e"}, "involvedObject": {"name": run().key.placeholder().pod()},
        });
        json_patch::merge(&mut event, fields);
        of_autoscaler(&serde_json::from_value(event).unwrap()).is_some()
    };
    assert!(event(
        &json!({"reason": "NotTriggerScaleUp", "source": {"component": "cluster-autoscaler"}})
    ));
    assert!(event(
        &json!({"reason": "FailedScheduling", "reportingComponent": "karpenter"})
    ));
    assert!(!event(
        &json!({"reason": "FailedScheduling", "reportingComponent": "my-scheduler"})
    ));
    let pod_of_a_user = json!({"reason": "NotTriggerScaleUp", "involvedObject": {"name": "database-0"}});
    assert!(!event(&pod_of_a_user));
}

#[test]
fn a_long_message_is_cut_between_two_characters() {
    let event = json!({
        "metadata": {"namespace": "ns", "name": "e"}, "message": "ä".repeat(LONGEST),
        "involvedObject": {"name": run().key.placeholder().as_str()},
    });
    let event: EventView = serde_json::from_value(event).unwrap();
    let length = |(_, event): Reduced<_, ObservedEvent>| event.unwrap().message.len();
    assert_eq!(of_statefulset(&event).map(length), Some(LONGEST));
    assert_eq!(
        of_task_run(&event).map(length),
        Some(0),
        "the TaskRun has the message"
    );
}

#[test]
fn an_event_about_an_object_that_cannot_exist_is_not_kept() {
    let reduced = |name: &str, uid: &str| {
        let event = json!({"metadata": {"namespace": "ns", "name": "e"}, "involvedObject": {"name": name, "uid": uid}});
        of_task_run(&serde_json::from_value(event).unwrap()).is_some()
    };
    assert!(reduced("x", "u1"));
    assert!(!reduced(&"x".repeat(LONGEST_NAME + 1), "u1"));
    assert!(!reduced("x", &"u".repeat(LONGEST_UID + 1)));
}

#[test]
fn a_rejected_task_concerns_its_run_and_not_the_other_runs_of_the_namespace() {
    let mut caches = Caches::ready();
    let rejected = |caches: &Caches, run: &str| latest_of_tasks(&caches.stores.rejected_tasks, "ns", run);
    let changed = caches.add_rejected_task("ns", "build-test", "7");
    assert_eq!(changed.len(), 1);
    assert!(
        caches.add_rejected_task("ns", "build-test", "7").is_empty(),
        "the event is the same"
    );
    assert_eq!(rejected(&caches, "build").as_deref(), Some("7"));
    assert_eq!(rejected(&caches, "other"), None);
    caches.add_rejected_task("ns", "build-test", "10");
    assert_eq!(rejected(&caches, "build").as_deref(), Some("10"));
    let digest = "a".repeat(63);
    assert!(
        can_be_task_of(&digest, "build"),
        "the name has a digest instead of the name of the run"
    );
}

#[test]
fn an_event_triggers_the_run_of_its_placeholder() {
    let mut caches = Caches::ready();
    caches.add_set(&run(), "s1");
    let name = run().key.placeholder();
    let build = Some(ObjectRef::new("build").within("ns"));
    assert_eq!(caches.stores.run_of_placeholder("ns", name.as_str()), build);
    assert_eq!(caches.stores.run_of_placeholder("other", name.as_str()), None);
}
