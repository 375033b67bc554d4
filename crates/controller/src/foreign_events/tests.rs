use super::*;
use crate::fixture::{Caches, run};
use crate::index::index;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::Event::Apply;
use serde_json::{Value, json};

/// An event about an object, with the name that a client gives to the event.
fn about(object: &str, changes: &Value) -> EventView {
    let mut event = json!({
        "metadata": {"namespace": "ns", "name": format!("{object}.18a5b")}, "involvedObject": {"name": object},
    });
    json_patch::merge(&mut event, changes);
    serde_json::from_value(event).unwrap()
}

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
    // The name of this event ends with 10, and comes before the name that ends with 7.
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
    let event = |name: &str| of_statefulset(&about(name, &json!({}))).is_some();
    assert!(event(run().key.placeholder().as_str()));
    assert!(!event("database"));
}

#[test]
fn the_answer_of_an_autoscaler_is_known_by_its_reporter_and_its_reason() {
    let is_kept =
        |name: &str, fields: &Value| of_autoscaler(&about(name, fields)).is_some_and(|(_, it)| it.is_some());
    let event = |fields: &Value| is_kept(&run().key.placeholder().pod(), fields);
    assert!(event(
        &json!({"reason": "NotTriggerScaleUp", "source": {"component": "cluster-autoscaler"}})
    ));
    assert!(event(
        &json!({"reason": "FailedScheduling", "reportingComponent": "karpenter"})
    ));
    assert!(!event(
        &json!({"reason": "FailedScheduling", "reportingComponent": "my-scheduler"})
    ));
    let answer = json!({"reason": "NotTriggerScaleUp", "source": {"component": "cluster-autoscaler"}});
    assert!(!is_kept("database-0", &answer));
}

#[test]
fn a_long_message_is_cut_between_two_characters() {
    let message = json!({"message": "ä".repeat(LONGEST)});
    let event = about(run().key.placeholder().as_str(), &message);
    let length = |(_, event): Reduced<_, ObservedEvent>| event.unwrap().message.len();
    assert_eq!(of_statefulset(&event).map(length), Some(LONGEST));
    assert_eq!(
        of_task_run(&event).map(length),
        Some(0),
        "the TaskRun has the message"
    );
}

#[test]
fn an_event_is_kept_only_under_the_object_in_its_name_and_with_a_short_uid() {
    let is_kept = |changes: &Value| of_task_run(&about("x", changes)).unwrap().1.is_some();
    assert!(is_kept(&json!({})));
    assert!(!is_kept(&json!({"involvedObject": {"name": "y"}})));
    assert!(!is_kept(
        &json!({"involvedObject": {"uid": "u".repeat(LONGEST_UID + 1)}})
    ));
    assert_eq!(
        of_task_run(&about("x", &json!({"metadata": {"name": "other"}}))),
        None
    );
}

#[test]
fn an_event_whose_object_changes_leaves_the_cache() {
    let (cache, mut writer) = index();
    writer.take(Apply(about("x", &json!({}))), of_task_run);
    assert_eq!(cache.read().len(), 1);
    let other = json!({"involvedObject": {"name": "y"}});
    writer.take(Apply(about("x", &other)), of_task_run);
    assert!(cache.read().is_empty());
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
