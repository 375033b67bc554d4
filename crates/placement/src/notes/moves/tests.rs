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
fn moving_off_is_told_with_pod_reason_and_node() {
    let told = moves_off(&on_node(), MoveCause::TaskDoesNotFit, Some("large-pod"));
    all(
        &told.text,
        &["node small-0", "pod large-pod", "cpu=12", "does not fit"],
    );
    let stranded = moves_off(&nothing(), MoveCause::PlaceholderDoesNotFit, Some("task"));
    all(&stranded.text, &["its place", "has no room", "pod task waits"]);
}

#[test]
fn each_trouble_with_a_node_has_its_words() {
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
fn an_unfit_node_is_told_while_tasks_are_there_and_in_the_same_words_however_many() {
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
fn a_run_that_stays_for_a_claim_is_told_which_and_what_to_do() {
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
fn a_task_that_waits_for_its_own_runs_tasks_is_told_apart() {
    let told = awaits_tasks(&on_node(), MoveCause::TaskDoesNotFit, Some("large-pod")).unwrap();
    assert_eq!(told.reason, Reason::WaitingForRoom);
    all(&told.text, &["large-pod"]);
    assert_eq!(awaits_tasks(&on_node(), MoveCause::TaskDoesNotFit, None), None);
}

/// The placeholder has lost its node, and the tasks on it seem to run.
fn evicted(ready: bool, left: Option<&str>) -> Observation {
    let mut seen = on_node();
    if let Some(pod) = &mut seen.pod {
        pod.node = None;
    }
    let node = NodeFacts {
        name: "small-0".into(),
        ready,
        ..NodeFacts::default()
    };
    Observation {
        run: Run {
            node: Some("small-0".into()),
            ..run()
        },
        nodes: vec![node],
        statefulset: left.map(placeholder_that_left),
        ..seen
    }
}

#[test]
fn a_node_that_died_is_told_also_once_kubernetes_has_removed_the_placeholder() {
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
fn that_nothing_fits_is_told_with_what_is_asked_for_and_what_there_is() {
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
fn a_move_is_told_with_both_nodes_and_a_first_arrival_is_none() {
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
