//! Tests each rule of the verdict with constructed results.

use super::*;
use crate::pairs::pair::Storage;
use std::time::Duration;
use testbed::runs::State;

const CALM: Circumstances = Circumstances {
    controls: [7, 7],
    lost_lease: false,
    kubernetes: Kubernetes::V1_37,
};

fn pair(condition: Condition) -> Pair {
    Pair {
        condition,
        width: 2,
        lasting: Duration::from_secs(3),
        ..Pair::control(0)
    }
}

/// The result of a run that took 5 s, with these events.
fn ended(reported: &[&str]) -> RunResult {
    let times = |reason: &str| reported.iter().filter(|other| **other == reason).count();
    let reported = reported.iter().map(|reason| {
        let times = i64::try_from(times(reason)).unwrap();
        ((*reason).to_owned(), (times, "words".to_owned()))
    });
    RunResult {
        state: State::Succeeded,
        total: 5,
        held: 0,
        obstructed: 0,
        reported: reported.collect(),
        refused: 0,
    }
}

fn lasting(total: i64, reported: &[&str]) -> RunResult {
    RunResult {
        total,
        ..ended(reported)
    }
}

fn held(held: i64, reported: &[&str]) -> RunResult {
    RunResult {
        total: 5 + held,
        held,
        ..ended(reported)
    }
}

fn complaint(condition: Condition, labelled: &RunResult) -> String {
    let complaint = CALM.complaint(&pair(condition), &ended(&[]), labelled);
    complaint.unwrap_or_default()
}

fn is_accepted(condition: Condition, labelled: &RunResult) -> bool {
    complaint(condition, labelled).is_empty()
}

#[e2e_test]
fn a_run_that_ends_in_another_state_is_a_violation_whatever_it_reports() {
    let failed = RunResult {
        state: State::Failed("Failed".into()),
        ..ended(&["MovedOff"])
    };
    assert!(complaint(Condition::LargeTasks, &failed).contains("in another state"));
}

#[e2e_test]
fn a_run_may_end_a_few_seconds_later_and_as_much_more_as_the_machine_is_slower() {
    assert!(is_accepted(Condition::None, &lasting(15, &["Released"])));
    assert!(complaint(Condition::None, &lasting(16, &["Released"])).contains("1 s later"));
    for (controls, is_accepted) in [([7, 17], true), ([17, 7], false)] {
        let then = Circumstances { controls, ..CALM };
        let complaint = then.complaint(&pair(Condition::None), &ended(&[]), &lasting(25, &[]));
        assert_eq!(complaint.is_none(), is_accepted, "{complaint:?}");
    }
}

#[e2e_test]
fn only_a_run_with_separate_tasks_or_a_lost_node_may_move() {
    for reason in ["MovedOff", "NodeUnfit", "WaitingForRoom", "NoNodeFits"] {
        for condition in [
            Condition::None,
            Condition::OwnAntiAffinity,
            Condition::QuotaOfPods(2),
        ] {
            assert!(
                complaint(condition, &ended(&[reason])).contains(reason),
                "{condition:?}"
            );
        }
        for condition in [
            Condition::LargeTasks,
            Condition::TaskElsewhere,
            Condition::Cordoned,
            Condition::NodeDies,
        ] {
            assert!(
                is_accepted(condition, &ended(&[reason])),
                "{condition:?} {reason}"
            );
        }
    }
}

#[e2e_test]
fn a_move_may_take_time_if_a_pod_waits_for_room_and_no_time_if_the_node_is_lost() {
    let apart = lasting(5 + 15 + 2 * 6 + 10, &["MovedOff"]);
    assert!(is_accepted(Condition::LargeTasks, &apart));
    assert!(!is_accepted(
        Condition::LargeTasks,
        &RunResult {
            total: apart.total + 1,
            ..apart.clone()
        }
    ));
    let twice = lasting(apart.total + 15, &["MovedOff", "MovedOff"]);
    assert!(is_accepted(Condition::TaskElsewhere, &twice));
    assert!(!is_accepted(Condition::Cordoned, &apart));
    assert!(is_accepted(Condition::Preempted, &lasting(30, &["MovedOff"])));
    assert!(is_accepted(Condition::NodeDies, &lasting(35, &["MovedOff"])));
    assert!(!is_accepted(Condition::NodeDies, &lasting(36, &["MovedOff"])));
}

#[e2e_test]
fn a_run_moves_only_as_often_as_its_tasks_or_lost_nodes_require() {
    let twice = ended(&["MovedOff", "MovedOff"]);
    assert!(is_accepted(Condition::TaskElsewhere, &twice));
    assert!(complaint(Condition::Cordoned, &twice).contains("moved 2 times"));
}

#[e2e_test]
fn with_an_older_scheduler_a_run_may_take_the_time_until_its_placeholder_is_requeued() {
    let moved = lasting(30, &["MovedOff"]);
    for (kubernetes, is_accepted) in [(Kubernetes::V1_35, true), (Kubernetes::V1_36, false)] {
        let there = Circumstances { kubernetes, ..CALM };
        let complaint = there.complaint(&pair(Condition::Cordoned), &ended(&[]), &moved);
        assert_eq!(complaint.is_none(), is_accepted, "{complaint:?}");
    }
}

#[e2e_test]
fn a_run_with_separate_tasks_that_ends_later_reports_the_reason() {
    let silent = lasting(5 + 11, &[]);
    assert!(complaint(Condition::LargeTasks, &silent).contains("reports no reason"));
    assert!(is_accepted(
        Condition::LargeTasks,
        &lasting(5 + 11, &["WaitingForRoom"])
    ));
}

#[e2e_test]
fn room_is_made_only_in_quotas_and_takes_some_time_for_each_rejected_task() {
    assert!(complaint(Condition::None, &ended(&["MadeRoom"])).contains("MadeRoom"));
    let twice = RunResult {
        refused: 2,
        ..lasting(5 + 2 * 15 + 10, &["MadeRoom"])
    };
    assert!(is_accepted(Condition::QuotaOfPods(2), &twice));
    assert!(!is_accepted(
        Condition::QuotaOfPods(2),
        &RunResult { refused: 1, ..twice }
    ));
}

#[e2e_test]
fn a_hold_takes_seconds_if_nodes_are_free() {
    assert!(is_accepted(Condition::None, &held(5, &["Released"])));
    let long = complaint(Condition::None, &held(6, &["WaitingForNode"]));
    assert!(long.contains("held for 6 s while nodes were free"), "{long}");
    let slow = Circumstances {
        controls: [17, 17],
        ..CALM
    };
    let complaint = slow.complaint(
        &pair(Condition::None),
        &ended(&[]),
        &held(12, &["WaitingForNode"]),
    );
    assert_eq!(complaint, None, "a slow machine may take longer");
}

#[e2e_test]
fn on_a_stalled_machine_only_the_final_states_and_the_hold_deadline_are_checked() {
    let late = held(57, &["HoldDeadlineExceeded"]);
    let overdue = held(71, &["HoldDeadlineExceeded"]);
    let failed = RunResult {
        state: State::Failed("Failed".into()),
        ..ended(&[])
    };
    let (controls, lost_lease) = ([7, 20], true);
    let stalled = [
        Circumstances { controls, ..CALM },
        Circumstances { lost_lease, ..CALM },
    ];
    for stalled in stalled {
        let complaint = |labelled| stalled.complaint(&pair(Condition::None), &ended(&[]), labelled);
        assert_eq!(complaint(&late), None);
        assert!(complaint(&failed).is_some());
        assert!(complaint(&overdue).is_some());
    }
}

#[e2e_test]
fn a_hold_lasts_until_another_run_has_left_the_node_and_the_run_reports_it() {
    let waits = |seconds: i64, reported: &[&str]| RunResult {
        obstructed: 4,
        ..held(seconds, reported)
    };
    assert!(is_accepted(
        Condition::NodeTaken,
        &waits(4 + 10 + 5, &["WaitingForNode"])
    ));
    let long = complaint(Condition::NodeTaken, &waits(4 + 10 + 6, &["WaitingForNode"]));
    assert!(long.contains("nodes were free"), "{long}");
    assert!(complaint(Condition::NodeTaken, &waits(8, &[])).contains("reports no reason"));
}

#[e2e_test]
fn a_hold_lasts_until_the_controller_knows_why_a_placeholder_has_no_pod() {
    for condition in [Condition::NoSuchAccount, Condition::LimitsAbove] {
        assert!(
            is_accepted(condition, &held(5 + 5, &["PlaceholderRefused"])),
            "{condition:?}"
        );
        assert!(
            !is_accepted(condition, &held(5 + 6, &["PlaceholderRefused"])),
            "{condition:?}"
        );
    }
}

#[e2e_test]
fn a_hold_lasts_until_its_deadline_if_placeholders_are_rejected() {
    let reports = ["PlaceholderRefused", "HoldDeadlineExceeded"];
    assert!(is_accepted(
        Condition::QuotaOfSets,
        &held(HOLD_DEADLINE, &reports)
    ));
    for reason in reports {
        assert!(complaint(Condition::None, &ended(&[reason])).contains(reason));
    }
}

#[e2e_test]
fn a_placeholder_that_is_recreated_without_its_pvcs_may_lose_its_node_once() {
    let complains = |strategy, storage, seconds, moves| {
        let pair = Pair {
            storage,
            strategy,
            ..pair(Condition::OwnAntiAffinity)
        };
        let reported = [&["WaitingForNode"][..], &["MovedOff"].repeat(moves)].concat();
        let labelled = held(seconds, &reported);
        CALM.complaint(&pair, &ended(&[]), &labelled).is_some()
    };
    assert!(!complains("isolateAlways", Storage::InZone, 15 + 5, 1));
    assert!(complains("isolateAlways", Storage::InZone, 15 + 6, 1));
    assert!(complains("isolateAlways", Storage::InZone, 15, 2));
    assert!(complains("isolateAlways", Storage::InZone, 15, 0));
    assert!(complains("isolateAlways", Storage::None, 5, 1));
    assert!(complains("true", Storage::InZone, 5, 1));
}
