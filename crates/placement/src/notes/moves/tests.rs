use super::*;
use crate::fixture::run;
use crate::node::NodeFacts;
use crate::placeholder::spec::Spec;
use crate::plan::{Placeholder, PlaceholderPod, Shape, Unschedulable, WaitingPod};
use std::sync::Arc;

fn nothing() -> Observation {
    Observation::new(run(), Arc::default(), Timestamp::UNIX_EPOCH)
}

fn placeholder_that_left(node: &str) -> Placeholder {
    Placeholder {
        uid: "s1".into(),
        owned: true,
        deleting: false,
        generation: 4,
        observed: true,
        strategy: None,
        isolation: None,
        warm_nodes: None,
        spec: Spec {
            previous_node: Some(node.into()),
            ..Spec::default()
        },
    }
}
use std::collections::BTreeMap;

fn cpu(amount: &str) -> Resources {
    Resources::from_texts(&BTreeMap::from([("cpu".to_owned(), amount.to_owned())]))
}

fn on_node() -> Observation {
    let pod = PlaceholderPod {
        uid: "p1".into(),
        node: Some("small-0".into()),
        ending: false,
        unschedulable: None,
        tolerations: Vec::new(),
        adopted: false,
        shape: Shape::default(),
    };
    let waiting = WaitingPod {
        name: "large-pod".into(),
        requests: cpu("12"),
        unschedulable: Some(Unschedulable {
            message: "0/1".into(),
            since: Timestamp::UNIX_EPOCH,
        }),
        ..WaitingPod::default()
    };
    Observation {
        pod: Some(pod),
        waiting: vec![waiting],
        ..nothing()
    }
}

fn all(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn the_event_of_moving_off_names_the_pod_the_reason_and_the_node() {
    let told = moves_off(&on_node(), MoveCause::TaskDoesNotFit, Some("large-pod"));
    all(
        &told.text,
        &["node small-0", "pod large-pod", "cpu=12", "does not fit"],
    );
    let waiting = moves_off(&nothing(), MoveCause::PlaceholderDoesNotFit, Some("task"));
    all(&waiting.text, &["its node", "has no room", "pod task waits"]);
}

#[test]
fn each_cause_of_an_unusable_node_has_its_own_message() {
    for (cause, words) in [
        (node::Cause::Cordoned, "it is cordoned"),
        (node::Cause::Tainted, "taint that this run does not tolerate"),
        (node::Cause::NotReady, "it is not ready"),
        (node::Cause::Gone, "it is gone"),
    ] {
        all(
            &moves_off(&on_node(), MoveCause::Node(cause), None).text,
            &[words],
        );
        all(
            &starts_over(&on_node(), MoveCause::Node(cause)).text,
            &[words, "reserve"],
        );
    }
}

#[test]
fn the_event_of_an_unusable_node_with_tasks_names_the_node_the_cause_and_the_remedy() {
    let cause = MoveCause::Node(node::Cause::Cordoned);
    let told = awaits_tasks(&on_node(), cause, None).unwrap();
    assert_eq!(told.reason, Reason::NodeUnfit);
    all(&told.text, &["node small-0 is cordoned", "when they have ended"]);
    let dead = awaits_tasks(&on_node(), MoveCause::Node(node::Cause::NotReady), None).unwrap();
    all(
        &dead.text,
        &["node small-0 is not ready", "delete it", "out-of-service"],
    );
}

#[test]
fn the_event_of_a_run_that_stays_for_its_volume_names_the_pvc_and_the_remedy() {
    let cordoned = is_tied(&on_node(), MoveCause::Node(node::Cause::Cordoned), None, "disk");
    assert_eq!(cordoned.reason, Reason::NodeUnfit);
    all(
        &cordoned.text,
        &["stays on node small-0", "PVC disk", "is cordoned", "usable again"],
    );
    let big = is_tied(&on_node(), MoveCause::TaskDoesNotFit, Some("large-pod"), "disk");
    assert_eq!(big.reason, Reason::WaitingForRoom);
    all(&big.text, &["PVC disk", "large-pod", "Reduce its requests"]);
}

#[test]
fn a_task_that_waits_for_other_tasks_of_its_run_has_its_own_event() {
    let told = awaits_tasks(&on_node(), MoveCause::TaskDoesNotFit, Some("large-pod")).unwrap();
    assert_eq!(told.reason, Reason::WaitingForRoom);
    all(&told.text, &["large-pod"]);
    assert_eq!(awaits_tasks(&on_node(), MoveCause::TaskDoesNotFit, None), None);
}

/// The placeholder has lost its node, and the tasks on it seem to run.
fn evicted(ready: bool, left: Option<&str>) -> Observation {
    let mut seen = on_node();
    seen.cluster.nodes = vec![Arc::new(NodeFacts {
        name: "small-0".into(),
        ready,
        ..NodeFacts::default()
    })];
    if let Some(pod) = &mut seen.pod {
        pod.node = None;
    }
    Observation {
        run: Run {
            node: Some("small-0".into()),
            ..run()
        },
        statefulset: left.map(placeholder_that_left),
        ..seen
    }
}

#[test]
fn a_failed_node_is_still_reported_after_the_eviction_of_the_placeholder() {
    let told = |seen: &Observation| awaits_tasks(seen, MoveCause::TaskDoesNotFit, Some("large-pod")).unwrap();
    let cause = MoveCause::Node(node::Cause::NotReady);
    let before = awaits_tasks(&on_node(), cause, None).unwrap();
    assert_eq!(
        told(&evicted(false, None)),
        before,
        "the same event is counted up"
    );
    assert_eq!(told(&evicted(false, Some("other"))), before);
    for another in [evicted(true, None), evicted(false, Some("small-0"))] {
        assert_eq!(told(&another).reason, Reason::WaitingForRoom);
    }
}

#[test]
fn the_event_of_a_pod_that_fits_no_node_names_its_requests_and_the_nearest_node() {
    let offer = |cpu: i64| NodeOffer {
        node: "small-0".into(),
        amounts: vec![node::Amount {
            resource: "cpu".into(),
            asked: crate::quantity::Quantity::of(64),
            offered: crate::quantity::Quantity::of(cpu),
        }],
    };
    let text = |offer: Option<&NodeOffer>| no_node_fits("large-pod", &cpu("64"), "0/2 nodes.", offer).text;
    all(
        &text(Some(&offer(2))),
        &["large-pod", "cpu=64", "small-0 has cpu 2 of 64", "0/2 nodes."],
    );
    all(&text(Some(&offer(64))), &["small-0 is large enough", "full"]);
    all(&text(None), &["no node that allows"]);
}

#[test]
fn the_event_of_a_move_names_both_nodes_and_the_first_node_is_no_move() {
    let moved = Run {
        node: Some("old".into()),
        ..run()
    };
    let told = arrived(&moved, "new");
    assert_eq!(told.reason, Reason::Moved);
    all(&told.text, &["node new (before: old)"]);
    assert_eq!(arrived(&run(), "new").reason, Reason::NodeAssigned);
}

#[test]
fn the_time_left_of_a_timeout_is_in_whole_seconds_and_never_negative() {
    let deadline: Timestamp = "2026-01-01T09:00:30Z".parse().unwrap();
    let before = |millis| deadline - SignedDuration::from_millis(millis);
    let left = |millis| time_left("build-test", deadline, before(millis));
    all(
        &left(90_500),
        &["TaskRun build-test", ": 1m 30s left, until 2026-01-01T09:00:30Z."],
    );
    all(&left(-5_000), &[": 0s left"]);
}

#[test]
fn each_note_about_a_pod_that_waits_has_the_taskrun_of_the_pod() {
    use crate::notes::waiting_task_run;
    use crate::plan::{Decision, Wait};
    let mut observed = on_node();
    observed.waiting[0].task_run = Some("large".into());
    let (cause, pod) = (MoveCause::TaskDoesNotFit, || "large-pod".to_owned());
    let tasks = |pod| Wait::Tasks { cause, pod, live: 1 };
    let volume = Wait::Volume {
        cause,
        pod: Some(pod()),
        claim: "data".into(),
    };
    let fit = Wait::Fit {
        pod: pod(),
        requests: cpu("12"),
        message: "0/1".into(),
        largest: None,
    };
    let found = |wait, reason| waiting_task_run(&observed, &Decision::Wait(wait), reason);
    assert_eq!(found(tasks(Some(pod())), Reason::WaitingForRoom), Some("large"));
    assert_eq!(found(volume, Reason::NodeUnfit), Some("large"));
    assert_eq!(found(fit, Reason::NoNodeFits), Some("large"));
    assert_eq!(found(tasks(Some(pod())), Reason::FieldIgnored), None);
    assert_eq!(found(tasks(Some("other".into())), Reason::WaitingForRoom), None);
    assert_eq!(found(tasks(None), Reason::NodeUnfit), None);
}
