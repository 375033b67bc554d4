use super::*;
use crate::fixture;
use crate::run::SpecStatus;
use jiff::Timestamp;
use serde_json::json;

fn quota(hard: &str, used: &str) -> ResourceQuota {
    serde_json::from_value(json!({
        "metadata": {"name": "few"},
        "status": {"hard": {"pods": "9", COUNTED: hard}, "used": {"pods": "9", COUNTED: used}},
    }))
    .unwrap()
}

const NOW: i64 = 1000;

fn places(run: &Run, others: &[Run], there: &[Owned]) -> i64 {
    needed(run, others, there, Timestamp::from_second(NOW).unwrap())
}

/// Created in this second, held, with so many PVCs.
fn run(uid: &str, second: i64, claims: usize) -> Run {
    let mut run = fixture::run();
    run.key.uid = uid.to_owned();
    run.created = Some(Timestamp::from_second(second).unwrap());
    run.templates = claims;
    run
}

fn released(run: Run) -> Run {
    Run {
        status: SpecStatus::Unset,
        hold: false,
        ..run
    }
}

fn placeholder(run: &Run) -> Owned {
    let name = run.key.placeholder().as_str().to_owned();
    Owned {
        run: run.key.uid.clone(),
        name,
    }
}

fn assistant(run: &Run) -> Owned {
    Owned {
        run: run.key.uid.clone(),
        name: "affinity-assistant-1".to_owned(),
    }
}

#[test]
fn a_run_needs_a_place_for_its_placeholder_and_one_for_each_assistant() {
    assert_eq!(places(&run("a", 1, 0), &[], &[]), 1);
    let mut three = run("a", 1, 1);
    three.claims = vec!["cache".to_owned(), "data".to_owned()];
    assert_eq!(places(&three, &[], &[]), 4);
    assert_eq!(places(&three, &[], &[assistant(&three)]), 3);
}

#[test]
fn others_that_tekton_may_be_about_to_start_come_first() {
    let (own, other) = (run("a", 1, 1), run("b", 9, 1));
    assert_eq!(
        places(&own, std::slice::from_ref(&other), &[placeholder(&other)]),
        3
    );
    let started = [placeholder(&other), assistant(&other)];
    assert_eq!(places(&own, std::slice::from_ref(&other), &started), 2);
    assert_eq!(
        places(&own, &[released(other.clone())], &[]),
        3,
        "it was released without a placeholder"
    );
}

fn started(run: Run, second: i64) -> Run {
    Run {
        started: Some(Timestamp::from_second(second).unwrap()),
        ..released(run)
    }
}

/// With `coschedule: disabled`; else it would have made some by now.
#[test]
fn where_tekton_made_nothing_for_a_run_that_it_started_long_ago_it_makes_nothing() {
    let (own, other) = (run("a", 900, 1), run("b", 1, 1));
    let long_ago = started(other.clone(), NOW - 121);
    assert_eq!(
        places(&own, std::slice::from_ref(&long_ago), &[placeholder(&other)]),
        1
    );
    let made = [placeholder(&other), assistant(&other)];
    assert_eq!(places(&own, &[long_ago], &made), 2);
    let just_now = started(other.clone(), NOW - 120);
    assert_eq!(places(&own, &[just_now], &[placeholder(&other)]), 3);
}

#[test]
fn of_runs_that_wait_for_a_placeholder_each_gives_way_to_the_older_ones() {
    let (older, own, younger) = (run("z", 1, 1), run("m", 2, 1), run("a", 3, 1));
    assert_eq!(places(&own, &[older.clone(), younger.clone()], &[]), 4);
    assert_eq!(places(&older, &[own.clone(), younger.clone()], &[]), 2);
    assert_eq!(places(&younger, &[older, own], &[]), 6);
}

#[test]
fn of_runs_of_the_same_second_one_is_first() {
    let (one, other) = (run("a", 1, 1), run("b", 1, 1));
    let both = [
        places(&one, std::slice::from_ref(&other), &[]),
        places(&other, std::slice::from_ref(&one), &[]),
    ];
    assert_eq!(both, [2, 4]);
}

#[test]
fn a_quota_is_short_that_has_fewer_free() {
    assert_eq!(short_of(&[quota("3", "1")], 2), None);
    assert_eq!(
        short_of(&[quota("9", "0"), quota("3", "2")], 2).as_deref(),
        Some("ResourceQuota few (count/statefulsets.apps: 2 of 3 used, 2 needed)")
    );
}

#[test]
fn a_new_quota_has_used_nothing_and_one_of_other_things_says_nothing() {
    let new: ResourceQuota =
        serde_json::from_value(json!({"metadata": {"name": "new"}, "spec": {"hard": {COUNTED: "1"}}}))
            .unwrap();
    assert_eq!(short_of(std::slice::from_ref(&new), 1), None);
    assert!(short_of(&[new], 2).is_some());
    let pods: ResourceQuota = serde_json::from_value(json!({"spec": {"hard": {"pods": "0"}}})).unwrap();
    assert_eq!(short_of(std::slice::from_ref(&pods), 9), None);
    assert!(!are_counted(&[pods]) && are_counted(&[quota("1", "0")]));
}
