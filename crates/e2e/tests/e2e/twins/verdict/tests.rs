//! Tests each rule of the verdict with constructed results.

use super::*;
use std::time::Duration;
use testbed::runs::State;

const CALM: Circumstances = Circumstances {
    controls: [7, 7],
    lost_lease: false,
    kubernetes: Kubernetes::V1_37,
};

fn pair(twist: Twist) -> Pair {
    Pair {
        twist,
        width: 2,
        lasting: Duration::from_secs(3),
        ..Pair::control(0)
    }
}

/// The result of a run that took 5 s, with these events.
fn ended(reported: &[&str]) -> Ended {
    let times = |reason: &str| reported.iter().filter(|other| **other == reason).count();
    let reported = reported.iter().map(|reason| {
        let times = i64::try_from(times(reason)).unwrap();
        ((*reason).to_owned(), (times, "words".to_owned()))
    });
    Ended {
        state: State::Succeeded,
        total: 5,
        held: 0,
        obstructed: 0,
        reported: reported.collect(),
        refused: 0,
    }
}

fn lasting(total: i64, reported: &[&str]) -> Ended {
    Ended {
        total,
        ..ended(reported)
    }
}

fn held(held: i64, reported: &[&str]) -> Ended {
    Ended {
        total: 5 + held,
        held,
        ..ended(reported)
    }
}

fn complaint(twist: Twist, labelled: &Ended) -> String {
    let complaint = CALM.complaint(&pair(twist), &ended(&[]), labelled);
    complaint.unwrap_or_default()
}

fn is_well(twist: Twist, labelled: &Ended) -> bool {
    complaint(twist, labelled).is_empty()
}

#[e2e_test]
fn a_run_that_ends_otherwise_is_wrong_whatever_it_reports() {
    let failed = Ended {
        state: State::Failed("Failed".into()),
        ..ended(&["MovedOff"])
    };
    assert!(complaint(Twist::LargeTasks, &failed).contains("otherwise"));
}

#[e2e_test]
fn a_run_may_end_a_few_seconds_later_and_as_much_more_as_the_machine_is_slower() {
    assert!(is_well(Twist::None, &lasting(15, &["Released"])));
    assert!(complaint(Twist::None, &lasting(16, &["Released"])).contains("1 s later"));
    for (controls, is_well) in [([7, 17], true), ([17, 7], false)] {
        let then = Circumstances { controls, ..CALM };
        let complaint = then.complaint(&pair(Twist::None), &ended(&[]), &lasting(25, &[]));
        assert_eq!(complaint.is_none(), is_well, "{complaint:?}");
    }
}

#[e2e_test]
fn only_a_run_whose_tasks_are_apart_or_whose_node_goes_may_move() {
    for reason in ["MovedOff", "NodeUnfit", "WaitingForRoom", "NoNodeFits"] {
        for twist in [Twist::None, Twist::OwnAntiAffinity, Twist::QuotaOfPods(2)] {
            assert!(complaint(twist, &ended(&[reason])).contains(reason), "{twist:?}");
        }
        for twist in [
            Twist::LargeTasks,
            Twist::TaskElsewhere,
            Twist::Cordoned,
            Twist::NodeDies,
        ] {
            assert!(is_well(twist, &ended(&[reason])), "{twist:?} {reason}");
        }
    }
}

#[e2e_test]
fn a_move_takes_its_time_where_a_pod_is_given_some_to_find_room_and_none_where_the_node_is_gone() {
    let apart = lasting(5 + 15 + 2 * 6 + 10, &["MovedOff"]);
    assert!(is_well(Twist::LargeTasks, &apart));
    assert!(!is_well(
        Twist::LargeTasks,
        &Ended {
            total: apart.total + 1,
            ..apart.clone()
        }
    ));
    let twice = lasting(apart.total + 15, &["MovedOff", "MovedOff"]);
    assert!(is_well(Twist::TaskElsewhere, &twice));
    assert!(!is_well(Twist::Cordoned, &apart));
    assert!(is_well(Twist::Preempted, &lasting(30, &["MovedOff"])));
    assert!(is_well(Twist::NodeDies, &lasting(35, &["MovedOff"])));
    assert!(!is_well(Twist::NodeDies, &lasting(36, &["MovedOff"])));
}

#[e2e_test]
fn a_run_moves_no_more_often_than_its_tasks_need_or_its_node_goes() {
    let twice = ended(&["MovedOff", "MovedOff"]);
    assert!(is_well(Twist::TaskElsewhere, &twice));
    assert!(complaint(Twist::Cordoned, &twice).contains("moved 2 times"));
}

#[e2e_test]
fn an_older_scheduler_is_given_the_time_until_a_placeholder_wakes_its_pod() {
    let moved = lasting(30, &["MovedOff"]);
    for (kubernetes, is_well) in [(Kubernetes::V1_35, true), (Kubernetes::V1_36, false)] {
        let there = Circumstances { kubernetes, ..CALM };
        let complaint = there.complaint(&pair(Twist::Cordoned), &ended(&[]), &moved);
        assert_eq!(complaint.is_none(), is_well, "{complaint:?}");
    }
}

#[e2e_test]
fn a_run_whose_tasks_are_apart_says_so_where_it_ends_later() {
    let silent = lasting(5 + 11, &[]);
    assert!(complaint(Twist::LargeTasks, &silent).contains("reports no reason"));
    assert!(is_well(Twist::LargeTasks, &lasting(5 + 11, &["WaitingForRoom"])));
}

#[e2e_test]
fn room_is_made_in_quotas_only_and_takes_so_long_for_each_refused_task() {
    assert!(complaint(Twist::None, &ended(&["MadeRoom"])).contains("MadeRoom"));
    let twice = Ended {
        refused: 2,
        ..lasting(5 + 2 * 15 + 10, &["MadeRoom"])
    };
    assert!(is_well(Twist::QuotaOfPods(2), &twice));
    assert!(!is_well(Twist::QuotaOfPods(2), &Ended { refused: 1, ..twice }));
}

#[e2e_test]
fn a_hold_takes_seconds_where_nodes_are_free() {
    assert!(is_well(Twist::None, &held(5, &["Released"])));
    let long = complaint(Twist::None, &held(6, &["WaitingForNode"]));
    assert!(long.contains("held for 6 s while nodes were free"), "{long}");
    let slow = Circumstances {
        controls: [17, 17],
        ..CALM
    };
    let complaint = slow.complaint(
        &pair(Twist::None),
        &lasting(12, &[]),
        &held(12, &["WaitingForNode"]),
    );
    assert_eq!(complaint, None, "nothing is fast on a slow machine");
}

#[e2e_test]
fn a_machine_that_stalls_tells_how_runs_end_and_of_times_only_that_a_hold_has_an_end() {
    let late = held(57, &["HoldDeadlineExceeded"]);
    let overdue = held(71, &["HoldDeadlineExceeded"]);
    let failed = Ended {
        state: State::Failed("Failed".into()),
        ..ended(&[])
    };
    let (controls, lost_lease) = ([7, 20], true);
    let stalled = [
        Circumstances { controls, ..CALM },
        Circumstances { lost_lease, ..CALM },
    ];
    for stalled in stalled {
        let complaint = |labelled| stalled.complaint(&pair(Twist::None), &ended(&[]), labelled);
        assert_eq!(complaint(&late), None);
        assert!(complaint(&failed).is_some());
        assert!(complaint(&overdue).is_some());
    }
}

#[e2e_test]
fn a_hold_lasts_until_another_run_has_left_the_node_and_the_run_says_so() {
    let waits = |seconds: i64, reported: &[&str]| Ended {
        obstructed: 4,
        ..held(seconds, reported)
    };
    assert!(is_well(Twist::NodeTaken, &waits(4 + 10 + 5, &["WaitingForNode"])));
    let long = complaint(Twist::NodeTaken, &waits(4 + 10 + 6, &["WaitingForNode"]));
    assert!(long.contains("nodes were free"), "{long}");
    assert!(complaint(Twist::NodeTaken, &waits(8, &[])).contains("reports no reason"));
}

#[e2e_test]
fn a_hold_lasts_until_it_is_known_why_a_placeholder_has_no_pod() {
    for twist in [Twist::NoSuchAccount, Twist::LimitsAbove] {
        assert!(is_well(twist, &held(5 + 5, &["PlaceholderRefused"])), "{twist:?}");
        assert!(
            !is_well(twist, &held(5 + 6, &["PlaceholderRefused"])),
            "{twist:?}"
        );
    }
}

#[e2e_test]
fn a_hold_lasts_until_its_deadline_where_no_placeholder_is_let_in() {
    let reports = ["PlaceholderRefused", "HoldDeadlineExceeded"];
    assert!(is_well(Twist::QuotaOfSets, &held(HOLD_DEADLINE, &reports)));
    for reason in reports {
        assert!(complaint(Twist::None, &ended(&[reason])).contains(reason));
    }
}
