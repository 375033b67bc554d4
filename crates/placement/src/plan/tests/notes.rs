//! The notes of a step, with the observations that they depend on.

use super::held::limited;
use super::*;
use crate::node::NodeFacts;
use crate::notes::{Reason, of_event};
use crate::requests::Operation;
use serde_json::json;

fn reasons(scene: &Scene, event: &Event) -> Vec<Reason> {
    let notes = of_event(&scene.observation(), event).into_iter();
    notes.map(|note| note.reason).collect()
}

fn released_by(cause: ReleaseCause) -> Event {
    Event::Released {
        cause,
        enrolment: Some(default_enrolment()),
        node: None,
        message: None,
    }
}

#[test]
fn only_a_release_at_the_deadline_reports_the_deadline() {
    let deadline = released_by(ReleaseCause::Deadline);
    assert_eq!(
        reasons(&held(), &deadline),
        [Reason::HoldDeadlineExceeded, Reason::Released]
    );
    let created = released_by(ReleaseCause::PlaceholderCreated);
    assert_eq!(reasons(&held(), &created), [Reason::Released]);
}

#[test]
fn the_note_about_a_deadline_names_why_the_placeholder_has_no_pod_and_what_helps() {
    let text = |scene: Scene| {
        let deadline = released_by(ReleaseCause::Deadline);
        of_event(&scene.observation(), &deadline).remove(0).text
    };
    let rejected = text(held().with_statefulset().failed_create("exceeded quota: few"));
    assert!(
        rejected.contains("exceeded quota: few. The run is released without a node; raise the quota"),
        "{rejected}"
    );
    let unschedulable = text(
        held()
            .placeholder_unschedulable(600)
            .failed_create("exceeded quota: few"),
    );
    assert!(
        unschedulable.contains(&format!(
            "{NO_NODE}. The run is released without a node; add nodes"
        )),
        "{unschedulable}"
    );
}

#[test]
fn the_note_about_a_narrowed_isolation_names_the_quota() {
    assert_eq!(reasons(&held(), &Event::Created(None)), []);
    let notes = of_event(&limited(held()).observation(), &Event::Created(None));
    let [narrowed] = notes.as_slice() else {
        panic!("{notes:?}")
    };
    assert_eq!(narrowed.reason, Reason::IsolationNarrowed);
    assert!(narrowed.text.contains("the ResourceQuota tight"), "{narrowed:?}");
}

#[test]
fn a_change_that_gives_a_placeholder_the_size_of_a_limit_range_counts_as_its_creation() {
    let operation = |cpu: &str, is_within: bool| {
        let observed = held().with_statefulset().spec(|spec| spec.within_limits = true);
        let wanted = Spec {
            replicas: 0,
            size: amounts(&format!("cpu={cpu},memory=100Mi")),
            within_limits: is_within,
            ..spec()
        };
        let requests = Action::Placeholder(wanted).requests(&observed.observation(), "image");
        requests[0].operation
    };
    assert_eq!(operation("200m", true), Operation::Placeholder);
    assert_eq!(operation("50m", true), Operation::Change);
    assert_eq!(operation("200m", false), Operation::Change);
}

#[test]
fn a_node_excludes_a_waiting_pod_by_its_labels_or_by_its_taints() {
    let node = |labels, taints| {
        let node = json!({
            "metadata": {"name": "n1", "labels": labels},
            "spec": {"taints": taints},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        NodeFacts::from_node(&serde_json::from_value(node).unwrap()).unwrap()
    };
    let selector = [("kind".to_owned(), "arm".to_owned())].into();
    let pod = WaitingPod {
        requires: crate::node::selector::NodeRequirements::new(selector, None),
        ..WaitingPod::default()
    };
    let excludes = |node: Option<&NodeFacts>| pod.clone().beside(node).excludes_node;
    let (arm, amd) = (json!({"kind": "arm"}), json!({"kind": "amd"}));
    let taint = json!([{"key": "ci", "effect": "NoSchedule"}]);
    assert!(!excludes(None) && !excludes(Some(&node(arm.clone(), json!([])))));
    assert!(excludes(Some(&node(amd, json!([])))) && excludes(Some(&node(arm, taint))));
}
