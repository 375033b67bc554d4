use super::*;
use crate::fixture;
use crate::run::SpecStatus;
use jiff::Timestamp;
use serde_json::json;
use std::time::Duration;

fn quota(hard: &str, used: &str) -> ResourceQuota {
    serde_json::from_value(json!({
        "metadata": {"name": "few"},
        "status": {"hard": {"pods": "9", RESOURCE: hard}, "used": {"pods": "9", RESOURCE: used}},
    }))
    .unwrap()
}

const NOW: i64 = 1000;

fn among<'a>(run: &'a Run, others: &'a [Run], there: &'a [OwnedStatefulSet]) -> Places<'a> {
    Places {
        run,
        keeps_placeholder: true,
        others,
        there,
        now: Timestamp::from_second(NOW).unwrap(),
        hold_deadline: Duration::from_secs(100),
        coschedule: Coschedule::default(),
    }
}

fn places(run: &Run, others: &[Run], there: &[OwnedStatefulSet]) -> i64 {
    among(run, others, there).needed()
}

/// A held run with this number of PVCs, created in this second of the last minute.
fn run(uid: &str, second: i64, claims: usize) -> Run {
    let mut run = fixture::run();
    run.key.uid = uid.to_owned();
    run.created = Some(Timestamp::from_second(NOW - 60 + second).unwrap());
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

fn placeholder(run: &Run) -> OwnedStatefulSet {
    let name = run.key.placeholder().as_str().to_owned();
    OwnedStatefulSet {
        run: run.key.uid.clone(),
        uid: format!("placeholder of {}", run.key.uid),
        name,
        is_placeholder: true,
        deleting: false,
    }
}

fn assistant(run: &Run) -> OwnedStatefulSet {
    OwnedStatefulSet {
        run: run.key.uid.clone(),
        name: "affinity-assistant-1".to_owned(),
        uid: format!("assistant of {}", run.key.uid),
        is_placeholder: false,
        deleting: false,
    }
}

#[test]
fn a_run_needs_a_place_for_its_placeholder_and_one_for_each_assistant() {
    assert_eq!(places(&run("a", 1, 0), &[], &[]), 1);
    let mut three = run("a", 1, 1);
    three.claims = vec!["cache".to_owned(), "data".to_owned()];
    assert_eq!(places(&three, &[], &[]), 4);
    assert_eq!(places(&three, &[], &[assistant(&three)]), 3);
    three.other_claims = 1;
    assert_eq!(places(&three, &[], &[]), 5, "the name of a PVC is a parameter");
}

#[test]
fn tektons_flag_decides_how_many_assistants_a_run_gets() {
    let (own, older) = (run("m", 2, 2), run("a", 1, 0));
    let needed = |coschedule| {
        let others = [older.clone()];
        let places = among(&own, &others, &[]);
        Places { coschedule, ..places }.needed()
    };
    let modes = [
        Coschedule::Workspaces,
        Coschedule::Disabled,
        Coschedule::PipelineRuns,
        Coschedule::IsolatePipelineRun,
    ];
    assert_eq!(modes.map(needed), [3, 1, 4, 4]);
}

#[test]
fn assistants_of_other_runs_that_tekton_may_soon_create_are_counted_first() {
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

#[test]
fn other_runs_without_pvcs_change_no_count() {
    let (older, own) = (run("z", 1, 0), run("m", 2, 1));
    assert_eq!(places(&own, std::slice::from_ref(&older), &[]), 2);
    assert_eq!(places(&own, &[started(older, NOW - 121)], &[]), 2);
}

/// The cache may lack a placeholder that was created a moment before.
#[test]
fn a_run_whose_placeholder_exists_needs_no_place_for_another_one() {
    let (own, older) = (run("m", 2, 1), run("z", 1, 1));
    let others = [older];
    let short_of = |there: &[_]| among(&own, &others, there).short_of(&[quota("3", "1")], 1);
    assert_eq!(short_of(&[placeholder(&own)]), None);
    assert!(short_of(&[]).is_some());
}

/// Tekton deletes the assistants of a run before the run is done.
#[test]
fn a_run_that_started_long_ago_gets_no_more_assistants_and_another_run_still_gets_its_own() {
    let (own, other) = (run("a", 900, 1), run("b", 1, 1));
    let there = [placeholder(&other)];
    let needed = |second| places(&own, &[started(other.clone(), second)], &there);
    assert_eq!([NOW - 121, NOW - 120].map(needed), [2, 3]);
}

#[test]
fn a_run_that_waits_for_a_placeholder_leaves_room_for_older_runs() {
    let (older, own, younger) = (run("z", 1, 1), run("m", 2, 1), run("a", 3, 1));
    assert_eq!(places(&own, &[older.clone(), younger.clone()], &[]), 4);
    assert_eq!(places(&older, &[own.clone(), younger.clone()], &[]), 2);
    assert_eq!(places(&younger, &[older, own], &[]), 6);
}

/// The run is released without a placeholder, but not before the quota has room for the StatefulSets that Tekton
/// creates for it.
#[test]
fn a_run_at_its_deadline_comes_before_the_placeholders_of_all_other_runs() {
    let (older, own) = (run("z", 1, 1), run("m", 2, 1));
    let over = run("a", 3 - 100, 1);
    assert_eq!(places(&own, std::slice::from_ref(&over), &[]), 3);
    let with_assistant = released(older);
    assert_eq!(places(&with_assistant, &[over], &[assistant(&with_assistant)]), 2);
    let waits = run("a", 3, 1);
    assert_eq!(
        places(&with_assistant, &[waits], &[assistant(&with_assistant)]),
        1
    );
}

fn in_its_way(
    run: &Run,
    others: &[Run],
    there: &[OwnedStatefulSet],
    quota: ResourceQuota,
) -> Option<QuotaBlocker> {
    let shortage = among(run, others, there).shortage(&[quota], there.len());
    shortage.and_then(|shortage| shortage.blocker)
}

#[test]
fn the_placeholder_of_another_run_blocks_a_run_without_room_for_its_assistant() {
    let (own, other) = (run("a", 9, 1), released(run("b", 1, 1)));
    let there = [assistant(&other), placeholder(&other)];
    let way = |run: &Run, others: &[Run], hard| in_its_way(run, others, &there, quota(hard, "2"));
    let full = |other: Run| way(&own, &[other], "2");
    assert_eq!(full(other.clone()), Some(blocked_by(&other)));
    assert_eq!(full(released(run("b", 1, 0))), Some(blocked_by(&other)), "no PVC");
    assert_eq!(full(run("b", 1, 0)), Some(blocked_by(&other)), "held");
    assert_eq!(
        way(&own, std::slice::from_ref(&other), "3"),
        None,
        "there is room"
    );
    assert_eq!(way(&run("a", 9, 0), &[], "2"), None, "it has no assistant");
}

#[test]
fn the_placeholder_of_a_held_run_blocks_only_if_no_other_placeholder_does() {
    let (own, held, other) = (run("a", 9, 1), run("b", 1, 1), released(run("c", 2, 1)));
    let there = [placeholder(&held), placeholder(&other), assistant(&other)];
    let others = [held.clone(), other.clone()];
    let way = |there: &[_]| in_its_way(&own, &others, there, quota("3", "3"));
    assert_eq!(way(&there), Some(blocked_by(&other)));
    let without_placeholder = [placeholder(&held), assistant(&other), assistant(&other)];
    assert_eq!(way(&without_placeholder), Some(blocked_by(&held)));
    let with_own = [placeholder(&held), placeholder(&own), assistant(&other)];
    assert_eq!(way(&with_own), Some(blocked_by(&own)));
}

#[test]
fn a_placeholder_without_a_node_gives_way_before_those_of_running_runs() {
    let (own, running, gone) = (run("a", -60, 1), released(run("b", 1, 0)), run("c", 1, 0));
    let others = [running.clone()];
    let first = |there: &[OwnedStatefulSet], keeps_placeholder| {
        let places = Places {
            keeps_placeholder,
            ..among(&own, &others, there)
        };
        let shortage = places.shortage(&[quota("2", "2")], there.len());
        shortage.and_then(|shortage| shortage.blocker)
    };
    let there = [placeholder(&running), placeholder(&own)];
    assert_eq!(first(&there, false), Some(blocked_by(&own)));
    assert_eq!(first(&there, true), Some(blocked_by(&running)));
    let with_orphan = [placeholder(&own), placeholder(&gone)];
    assert_eq!(first(&with_orphan, false), Some(blocked_by(&gone)));
}

fn blocked_by(run: &Run) -> QuotaBlocker {
    QuotaBlocker::Placeholders(vec![placeholder(run)])
}

/// Of ten runs whose holds end together, the first frees the places of all.
#[test]
fn as_many_placeholders_block_as_there_are_places_missing() {
    let own = run("a", -60, 2);
    let over = [run("b", -60, 1), run("c", -60, 1)];
    let running = ["d", "e", "f", "g", "h"].map(|uid| released(run(uid, 1, 0)));
    let there: Vec<_> = running.iter().map(placeholder).collect();
    let others = [over.as_slice(), running.as_slice()].concat();
    let blocking = |there: &[_], hard| in_its_way(&own, &others, there, quota(hard, "5"));
    let all = |number: usize| Some(QuotaBlocker::Placeholders(there[..number].to_vec()));
    assert_eq!(
        ["9", "8", "6", "5", "3"].map(|hard| blocking(&there, hard)),
        [None, all(1), all(3), all(4), all(5)]
    );
    let mut ending = there.clone();
    for set in &mut ending[1..] {
        set.deleting = true;
    }
    assert_eq!(blocking(&ending, "5"), Some(QuotaBlocker::DeletedStatefulSets));
    assert_eq!(blocking(&ending, "4"), all(1));
}

#[test]
fn a_run_that_is_released_leaves_room_for_runs_that_are_released_too() {
    let (own, held) = (run("m", 5, 1), run("b", 1, 1));
    let there = [placeholder(&own), placeholder(&held), assistant(&run("c", 1, 1))];
    let short = |other: Run| {
        let others = [other];
        among(&own, &others, &there).shortage(&[quota("4", "3")], 3)
    };
    let queued = Run {
        queued_by_kueue: true,
        ..held.clone()
    };
    assert_eq!([held.clone(), queued].map(short), [None, None]);
    for counted in [released(held), run("b", 1 - 100, 1)] {
        let full = short(counted).unwrap();
        assert_eq!(
            full.quota,
            "ResourceQuota few (count/statefulsets.apps: 3 of 4 used, 2 needed)"
        );
    }
}

/// Three PVCs, and a quota of two StatefulSets.
#[test]
fn no_placeholder_gives_way_for_a_run_that_never_fits_into_the_quota() {
    let (own, other) = (run("a", 9, 3), released(run("b", 1, 0)));
    let there = [placeholder(&other)];
    let blocking = |hard| in_its_way(&own, std::slice::from_ref(&other), &there, quota(hard, "1"));
    assert_eq!(["2", "3"].map(blocking), [None, Some(blocked_by(&other))]);
}

/// The first run is released, and Tekton has yet to create its assistant, so its place is not free for the second run.
#[test]
fn two_runs_that_need_a_place_in_the_quota_get_one_place_each() {
    let (own, released_before, other) = (run("a", 9, 1), released(run("c", 8, 1)), released(run("b", 1, 1)));
    let there = [assistant(&other), placeholder(&other)];
    let others = [other, released_before];
    let way = |hard| in_its_way(&own, &others, &there, quota(hard, "2"));
    assert!(way("3").is_some());
    assert_eq!(way("4"), None);
}

#[test]
fn no_placeholder_blocks_a_run_if_assistants_fill_the_quota() {
    let (own, other) = (run("a", 9, 1), released(run("b", 1, 1)));
    let made = [assistant(&other), assistant(&other)];
    assert_eq!(in_its_way(&own, &[other], &made, quota("2", "2")), None);
}

#[test]
fn a_deleted_statefulset_blocks_a_run_while_the_quota_counts_it() {
    let own = run("a", 9, 1);
    assert_eq!(
        in_its_way(&own, &[], &[assistant(&run("b", 1, 1))], quota("2", "2")),
        Some(QuotaBlocker::DeletedStatefulSets)
    );
}

#[test]
fn runs_of_the_same_second_have_a_fixed_order() {
    let (one, other) = (run("a", 1, 1), run("b", 1, 1));
    let both = [
        places(&one, std::slice::from_ref(&other), &[]),
        places(&other, std::slice::from_ref(&one), &[]),
    ];
    assert_eq!(both, [2, 4]);
}

#[test]
fn a_quota_is_short_if_fewer_places_are_free_than_needed() {
    assert_eq!(short_of(&[quota("3", "1")], 1, 2), None);
    assert_eq!(
        short_of(&[quota("9", "0"), quota("3", "2")], 2, 2).as_deref(),
        Some("ResourceQuota few (count/statefulsets.apps: 2 of 3 used, 2 needed)")
    );
}

/// The quota controller has yet to write the status.
#[test]
fn a_new_quota_counts_the_statefulsets_that_exist_and_a_lowered_quota_has_its_new_limit() {
    let limited = |hard: &str| ResourceQuota {
        spec: serde_json::from_value(json!({"hard": {RESOURCE: hard}})).unwrap(),
        ..quota("3", "1")
    };
    let is_short = |quota, listed| short_of(&[quota], listed, 2).is_some();
    let new = ResourceQuota {
        status: None,
        ..limited("3")
    };
    assert_eq!([1, 2].map(|listed| is_short(new.clone(), listed)), [false, true]);
    assert_eq!(["2", "3"].map(|hard| is_short(limited(hard), 1)), [true, false]);
    assert!(
        is_short(limited("4"), 2),
        "the API server still has the old limit"
    );
}

#[test]
fn a_quota_of_other_resources_and_a_quota_with_scopes_are_ignored() {
    let selector = json!({"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]});
    for spec in [
        json!({"hard": {"pods": "0"}}),
        json!({"hard": {RESOURCE: "0"}, "scopes": ["Terminating"]}),
        json!({"hard": {RESOURCE: "0"}, "scopeSelector": selector}),
    ] {
        let quota: ResourceQuota = serde_json::from_value(json!({"spec": spec})).unwrap();
        assert_eq!(short_of(std::slice::from_ref(&quota), 0, 9), None, "{spec}");
        assert!(!are_counted(&[quota]), "{spec}");
    }
    let all: ResourceQuota =
        serde_json::from_value(json!({"spec": {"hard": {RESOURCE: "1"}, "scopeSelector": {}}})).unwrap();
    assert!(are_counted(&[all]));
}
