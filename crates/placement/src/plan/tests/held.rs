//! Runs that wait: by our hold, or by somebody else's.

use super::*;
use crate::config::Config;
use crate::limits::Bounds;
use crate::plan::fixtures::answered;
use crate::run::HeldFrom;
use crate::sets::InTheWay;
use std::collections::BTreeMap;

#[test]
fn a_held_run_without_placeholder_gets_one() {
    assert_eq!(
        held().decision(),
        Decision::Write(Write::CreatePlaceholder(default_enrolment()))
    );
}

#[test]
fn labels_of_the_run_are_asked_for_if_its_placeholder_copies_some() {
    let decision = |keys: &[&str], copied_labels| {
        let config = Config {
            placeholder_copied_labels: keys.iter().map(|&key| key.to_owned()).collect(),
            ..Config::default()
        };
        let seen = Observation {
            run: held().run,
            config: config.into(),
            copied_labels,
            ..answered(now())
        };
        plan(&seen).decision
    };
    let create = Decision::Write(Write::CreatePlaceholder(default_enrolment()));
    assert_eq!(decision(&[], None), create);
    assert_eq!(decision(&["team"], None), Decision::Count(Question::Labels));
    assert_eq!(decision(&["team"], Some(BTreeMap::new())), create);
}

#[test]
fn a_placeholder_gives_way_where_a_quota_has_no_room_for_it_beside_tektons_assistants() {
    let with = |scene: Scene, short_of: Option<Message>| {
        plan(&Observation {
            short_of,
            ..scene.seen()
        })
    };
    let short = || Some(Message(Some("ResourceQuota few".to_owned())));
    let waits = Decision::Wait(Wait::Places {
        quota: "ResourceQuota few".to_owned(),
    });
    assert_eq!(with(held(), None).decision, Decision::Count(Question::Places));
    assert_eq!(with(held(), short()), again(waits.clone(), SOON));
    assert_eq!(with(enrolled(), short()), in_seconds(waits, 30));
    let over = held().change(|scene| scene.run.created = Some(ago(9999)));
    assert!(matches!(
        with(over, short()).decision,
        Decision::Write(Write::Release {
            cause: ReleaseCause::Deadline,
            ..
        })
    ));
}

/// Tekton fails a run whose assistants a quota refuses, and without the label another's placeholder would not be there.
#[test]
fn at_the_end_of_its_hold_a_run_frees_the_place_that_another_placeholder_has_and_is_released_when_it_has_room()
 {
    let deadline = i64::try_from(Config::default().hold_deadline.as_secs()).unwrap();
    let with = |templates, late, short_of: Option<&str>, in_the_way| {
        let short_of =
            short_of.map(|quota| Message(Some(quota.to_owned()).filter(|quota| !quota.is_empty())));
        let run = Run {
            templates,
            created: Some(ago(deadline + late)),
            group: Some(UID.to_owned()),
            ..held().run
        };
        plan(&Observation {
            run,
            short_of,
            in_the_way,
            ..answered(now())
        })
    };
    let placeholder = || {
        Some(InTheWay::Placeholder {
            name: "another".to_owned(),
            uid: "u9".to_owned(),
        })
    };
    let frees = Decision::Write(Write::FreePlace {
        name: "another".to_owned(),
        uid: "u9".to_owned(),
    });
    let waits = Decision::Wait(Wait::Places {
        quota: "few".to_owned(),
    });
    assert_eq!(with(1, 0, None, None).decision, Decision::Count(Question::Places));
    assert_eq!(with(1, 0, Some("few"), placeholder()), in_seconds(frees, 1));
    assert_eq!(
        with(1, 14, Some("few"), Some(InTheWay::Gone)),
        in_seconds(waits.clone(), 1)
    );
    assert_eq!(
        with(1, -1, Some("few"), placeholder()),
        in_seconds(waits, 1),
        "it may wait"
    );
    let released = [
        with(1, 15, None, None),
        with(1, 15, Some("few"), placeholder()),
        with(1, 0, Some("few"), None),
        with(1, 0, Some(""), None),
        with(0, 0, None, None),
    ];
    for plan in released {
        assert_eq!(plan.decision.name(), "release", "{plan:?}");
    }
}

#[test]
fn at_the_end_of_its_hold_a_run_whose_own_placeholder_exists_frees_no_place() {
    let late = held().with_pod().created_ago(600);
    let unasked = Observation {
        short_of: None,
        ..late.change(|scene| scene.run.templates = 1).seen()
    };
    assert_eq!(plan(&unasked).decision, released(ReleaseCause::Deadline, None));
}

/// As one with a placeholder: it may be cancelled while we hold it.
#[test]
fn a_run_that_is_held_without_a_placeholder_for_a_minute_is_enrolled() {
    let waits = |seconds| held().change(|scene| scene.run.created = Some(ago(seconds)));
    let enrol = Decision::Write(Write::Enrol(default_enrolment()));
    assert_eq!(waits(60).decision(), enrol);
    assert!(matches!(
        waits(59).decision(),
        Decision::Write(Write::CreatePlaceholder(_))
    ));
    assert!(matches!(
        waits(60).in_group(UID).decision(),
        Decision::Write(Write::CreatePlaceholder(_))
    ));
}

#[test]
fn a_held_run_whose_placeholder_has_no_pod_yet_has_it_nudged_and_is_looked_at_soon() {
    assert_eq!(
        held().with_set().plan(),
        again(Decision::Write(Write::Nudge), SOON)
    );
    let nudged = |nudge_in| {
        plan(&Observation {
            nudge_in: Duration::from_secs(nudge_in),
            ..held().with_set().seen()
        })
    };
    assert_eq!(nudged(2), in_seconds(await_node(), 2));
    assert_eq!(nudged(30), again(await_node(), SOON));
}

#[test]
fn a_held_run_that_will_never_have_a_placeholder_is_released() {
    let complaint = |message: &str| {
        let seen = Observation {
            complaint: Some(Message(Some(message.to_owned()))),
            ..held().with_set().seen()
        };
        plan(&seen).decision
    };
    let missing = r#"pods "x" is forbidden: no PriorityClass with name urgent was found"#;
    is_released_as_impossible(complaint(missing));
    let quota = r#"pods "x" is forbidden: exceeded quota: few"#;
    assert_eq!(complaint(quota), Decision::Write(Write::Nudge));
}

fn is_released_as_impossible(decision: Decision) {
    let Decision::Write(Write::Release { cause, node, .. }) = decision else {
        panic!("it is held although nothing can come of it");
    };
    assert_eq!((cause, node), (ReleaseCause::PlaceholderImpossible, None));
}

#[test]
fn a_placeholder_that_a_limit_range_does_not_let_in_asks_for_what_it_allows_and_is_given_up_if_that_is_not_enough()
 {
    let message = r#"pods "x" is forbidden: minimum cpu usage per Container is 100m, but request is 50m"#;
    let complaint = |within_limits| {
        let scene = held()
            .with_set()
            .change(|scene| scene.set.as_mut().unwrap().within_limits = within_limits);
        Observation {
            complaint: Some(Message(Some(message.to_owned()))),
            ..scene.seen()
        }
    };
    let (set, bounds) = (SET.to_owned(), Bounds::told_by(message).unwrap());
    assert_eq!(
        plan(&complaint(false)),
        again(Decision::Write(Write::AskWithinLimits { set, bounds }), SOON)
    );
    is_released_as_impossible(plan(&complaint(true)).decision);
}

#[test]
fn a_held_run_waits_for_its_node_until_the_deadline() {
    let plan = held().with_pod().in_group(UID).created_ago(60).plan();
    assert_eq!(plan, in_seconds(await_node(), 9 * 60));
}

#[test]
fn the_schedulers_own_message_tells_why_there_is_no_node() {
    let told = Decision::Wait(Wait::Node {
        unschedulable: Some(NO_NODE.to_owned()),
        largest: None,
    });
    assert_eq!(held().stranded(1).in_group(UID).decision(), told);
}

#[test]
fn a_run_that_waits_for_its_node_is_enrolled_first_so_that_it_may_be_cancelled_at_any_time() {
    let enrol = Decision::Write(Write::Enrol(default_enrolment()));
    assert_eq!(held().stranded(1).decision(), enrol);
    assert_eq!(held().stranded(1).in_group("old-uid").decision(), enrol);
}

#[test]
fn a_run_that_is_held_for_long_is_enrolled_whatever_it_waits_for() {
    let waits = [
        |scene: Scene| scene.with_set(),
        Scene::with_pod,
        Scene::foreign_set,
        Scene::set_deleting,
    ];
    for waits in waits {
        let after = |seconds| waits(held()).created_ago(seconds);
        let enrol = Decision::Write(Write::Enrol(default_enrolment()));
        assert_ne!(after(59).decision(), enrol);
        assert!(after(59).plan().again.is_some_and(|again| again <= SOON));
        assert_eq!(after(60).decision(), enrol);
        assert_ne!(after(60).in_group(UID).decision(), enrol);
    }
}

#[test]
fn a_held_run_whose_placeholder_is_bound_is_released_enrolled_and_told_its_node() {
    assert_eq!(
        held().on(NODE).decision(),
        released(ReleaseCause::NodeFound, Some(NODE))
    );
}

#[test]
fn a_node_counts_only_while_the_placeholder_pod_lives_there() {
    assert_eq!(
        held().on(NODE).pod_ending().decision(),
        Decision::Write(Write::Nudge)
    );
}

#[test]
fn release_when_created_waits_for_no_node() {
    let created = |scene: Scene| {
        scene
            .change(|scene| scene.config.release_when = ReleaseWhen::Created)
            .decision()
    };
    assert_eq!(
        created(held()),
        Decision::Write(Write::CreatePlaceholder(default_enrolment()))
    );
    assert_eq!(
        created(held().with_set()),
        released(ReleaseCause::PlaceholderCreated, None)
    );
    assert_eq!(
        created(held().on(NODE)),
        released(ReleaseCause::NodeFound, Some(NODE))
    );
}

#[test]
fn a_hold_as_old_as_the_deadline_ends_whatever_there_is_of_a_placeholder() {
    for scene in [
        held(),
        held().with_set(),
        held().with_pod(),
        held().set_deleting(),
        held().foreign_set(),
    ] {
        assert_eq!(
            scene.created_ago(600).decision(),
            released(ReleaseCause::Deadline, None)
        );
    }
}

#[test]
fn a_node_that_is_found_in_the_last_moment_is_still_the_cause() {
    assert_eq!(
        held().on(NODE).created_ago(9999).decision(),
        released(ReleaseCause::NodeFound, Some(NODE))
    );
}

#[test]
fn no_look_is_planned_for_later_than_the_deadline() {
    let late = |scene: Scene| scene.in_group(UID).created_ago(598).plan().again;
    for scene in [held().with_set(), held().with_pod(), held().set_deleting()] {
        assert_eq!(late(scene), Some(Duration::from_secs(2)));
    }
}

#[test]
fn a_run_without_or_with_a_future_creation_time_counts_as_new() {
    let again = |scene: Scene| scene.with_pod().in_group(UID).plan().again;
    let deadline = Some(Duration::from_mins(10));
    assert_eq!(again(held().change(|scene| scene.run.created = None)), deadline);
    assert_eq!(again(held().created_ago(-3600)), deadline);
}

#[test]
fn a_hold_that_began_when_another_released_it_has_its_whole_time() {
    let scene = || held().created_ago(9999).with_pod().in_group(UID);
    let released_late = scene().decision();
    assert_eq!(released_late, released(ReleaseCause::Deadline, None));
    let release = scene().change(|scene| scene.run.held_from = HeldFrom::Release(ago(60)));
    assert_eq!(release.plan().again, Some(Duration::from_mins(9)));
}

#[test]
fn a_hold_that_a_policy_began_is_dated_before_anything_else() {
    let undated = held()
        .created_ago(9999)
        .change(|scene| scene.run.held_from = HeldFrom::UndatedRelease);
    assert_eq!(undated.decision(), Decision::Write(Write::DateHold));
}

#[test]
fn a_placeholder_on_its_way_out_is_waited_for_and_not_made_anew_over_it() {
    let plan = held().set_deleting().on(NODE).set_deleting().plan();
    assert_eq!(plan, again(await_node(), SOON));
}

#[test]
fn a_held_run_with_a_foreign_group_is_released_into_its_own() {
    assert_eq!(
        held().in_group("old-uid").on(NODE).decision(),
        released(ReleaseCause::NodeFound, Some(NODE))
    );
}

#[test]
fn a_run_whose_hold_its_user_took_over_gives_its_placeholder_back() {
    let taken_over = held()
        .in_group(UID)
        .on(NODE)
        .change(|scene| scene.run.hold = false);
    assert_eq!(taken_over.decision(), deletion(Some(SET), None));
}

#[test]
fn a_run_held_by_another_is_enrolled_and_then_left_to_them_without_placeholder() {
    let pending = fresh().change(|scene| scene.run.status = SpecStatus::Pending);
    let kueue = held().change(|scene| scene.run.queued_by_kueue = true);
    for scene in [pending, kueue] {
        let scene = scene.created_ago(9999);
        assert_eq!(
            scene.decision(),
            Decision::Write(Write::Enrol(default_enrolment()))
        );
        assert_eq!(
            scene.in_group(UID).decision(),
            Decision::Leave(Why::HeldElsewhere)
        );
    }
}

#[test]
fn a_run_that_kueue_released_is_running_like_any_other() {
    let scene = enrolled().change(|scene| scene.run.queued_by_kueue = true);
    assert_eq!(
        scene.decision(),
        Decision::Write(Write::CreatePlaceholder(default_enrolment()))
    );
}
