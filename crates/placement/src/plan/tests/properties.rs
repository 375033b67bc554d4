//! What holds for `plan` whatever is observed; `scenes` says what that may be, `reading` how a test reads it.

use super::*;
use crate::run::HeldFrom;
use proptest::prelude::any;
use proptest::test_runner::Config as Cases;
use proptest::{prop_assert, prop_assert_eq, prop_oneof, proptest};
use reading::{
    counted, decision, frees_a_place, goes_on, is_alive, is_answered, is_leaving, is_opted_in, is_refused,
    keeps_away, lacks_its_group, may_come_back, names_what_was_seen, needs_a_place, rests_on, usable_set,
};
use scenes::anything;

mod reading;
mod scenes;

/// How long after its deadline a run may be held while a place in a quota is freed for it.
const FOR_A_PLACE: Duration = Duration::from_secs(15);

proptest! {
    #![proptest_config(Cases::with_cases(4000))]

    #[test]
    fn only_our_own_hold_is_ever_released(seen in anything()) {
        if let Decision::Write(Write::Release { .. }) = decision(&seen) {
            prop_assert_eq!(&seen.run.status, &SpecStatus::Pending);
            prop_assert!(seen.run.hold && !seen.run.queued_by_kueue && goes_on(&seen));
        }
    }

    #[test]
    fn our_hold_never_outlives_its_deadline_but_to_free_a_place_nor_ends_by_it_before(
        mut seen in anything(), age in prop_oneof![any::<u16>(), 590..630_u16], from_creation in any::<bool>(),
    ) {
        seen.run.held_from = if from_creation { HeldFrom::Creation } else { HeldFrom::Release(ago(age.into())) };
        seen.run.created = Some(ago(if from_creation { age.into() } else { 99_999 }));
        let deadline = seen.config.hold_deadline;
        if !(seen.run.is_held_by_us() && goes_on(&seen)) {
            return Ok(());
        }
        let plan = plan(&seen);
        match Duration::from_secs(age.into()).checked_sub(deadline) {
            Some(late) if late < FOR_A_PLACE && needs_a_place(&seen) => prop_assert!(frees_a_place(&plan.decision), "{plan:?}"),
            Some(_) => prop_assert!(matches!(plan.decision, Decision::Write(Write::Release { .. })), "{plan:?}"),
            None => {
                let overdue = matches!(plan.decision, Decision::Write(Write::Release { cause: ReleaseCause::Deadline, .. }));
                prop_assert!(!overdue);
            }
        }
        prop_assert!(plan.again.is_none_or(|again| again <= deadline && !again.is_zero()));
    }

    #[test]
    fn a_hold_that_bears_no_date_gets_one_before_anything_else(mut seen in anything()) {
        seen.run.held_from = HeldFrom::UndatedRelease;
        if seen.run.is_held_by_us() && is_alive(&seen) {
            prop_assert_eq!(decision(&seen), Decision::Write(Write::DateHold));
        }
    }

    #[test]
    fn a_run_that_may_have_started_is_enrolled_only_if_its_placeholder_says_that_it_was(seen in anything()) {
        if let Decision::Write(Write::Enrol(_)) = decision(&seen) {
            let was = usable_set(&seen).is_some() && !seen.run.hold;
            prop_assert!(seen.run.status == SpecStatus::Pending || was);
            prop_assert!(is_opted_in(&seen) && goes_on(&seen));
        }
    }

    #[test]
    fn what_was_resolved_once_stays_whatever_the_configuration_becomes(seen in anything()) {
        let labels = (seen.run.strategy.is_some(), seen.run.isolation.is_some());
        if seen.run.is_enrolled() && labels == (true, true) {
            let mut config = (*seen.config).clone();
            config.default_strategy = Strategy::ColocateAlways;
            config.isolation = Isolation { scope: Scope::Namespace, from: IsolateFrom::Enrolled };
            let reconfigured = Observation { config: config.into(), ..seen.clone() };
            prop_assert_eq!(decision(&reconfigured), decision(&seen));
        }
    }

    #[test]
    fn a_placeholder_is_made_only_where_there_is_none_and_the_run_lives(seen in anything()) {
        if let Decision::Write(Write::CreatePlaceholder(_)) = decision(&seen) {
            prop_assert!(seen.set.is_none() && is_alive(&seen));
        }
    }

    #[test]
    fn nothing_is_deleted_but_a_live_set_of_our_own_and_an_adopted_pod(seen in anything()) {
        let ours = |uid: &String| usable_set(&seen).is_some_and(|set| set.uid == *uid);
        match decision(&seen) {
            Decision::Write(Write::DeletePlaceholder { set, pod }) => {
                prop_assert!(set.is_some() || pod.is_some());
                prop_assert!(set.as_ref().is_none_or(ours));
                prop_assert!(pod.is_none() || seen.pod.as_ref().is_some_and(|pod| pod.adopted));
            }
            Decision::Write(Write::LeavePod { set }) => {
                prop_assert!(ours(&set) && seen.pod.as_ref().is_some_and(|pod| pod.adopted));
            }
            _ => {}
        }
    }

    #[test]
    fn a_dead_run_is_only_ever_cleaned_up(seen in anything()) {
        if seen.run.done || seen.run.deleting {
            let action = decision(&seen);
            let cleaning = matches!(
                action,
                Decision::Write(
                    Write::DeletePlaceholder { .. } | Write::AdoptPod { .. } | Write::LeavePod { .. }
                )
                    | Decision::Leave(Why::Done)
                    | Decision::Count(Question::Stints)
            );
            prop_assert!(cleaning, "{action:?}");
        }
    }

    #[test]
    fn what_stays_behind_of_a_run_mounts_nothing(seen in anything()) {
        if let Decision::Write(Write::AdoptPod { .. } | Write::LeavePod { .. }) = decision(&seen) {
            prop_assert!(seen.pod.is_some_and(|pod| !pod.shape.mounts));
        }
    }

    #[test]
    fn no_node_is_given_up_while_anything_of_the_run_lives_or_before_that_was_counted(seen in anything()) {
        if let Decision::Write(
            Write::MoveOff { set, .. } | Write::StartOver { set, cause: MoveCause::Node(_) },
        ) = decision(&seen) {
            prop_assert_eq!(seen.census.map(|census| census.live), Some(0));
            prop_assert!(is_alive(&seen) && seen.config.move_after.is_some());
            let usable = usable_set(&seen).unwrap();
            prop_assert!(usable.uid == set && usable.replicas > 0);
        }
    }

    #[test]
    fn the_one_node_that_a_volume_of_the_run_can_be_used_on_is_never_given_up(mut seen in anything()) {
        seen.tied = Some("disk".to_owned());
        let decision = decision(&seen);
        let moves_off = matches!(&decision, Decision::Write(Write::MoveOff { .. }));
        let starts_over = matches!(&decision, Decision::Write(Write::StartOver { cause: MoveCause::Node(_), .. }));
        prop_assert!(!moves_off && !starts_over, "{decision:?}");
    }

    #[test]
    fn no_count_makes_both_scalings_possible_and_none_asks_for_another_count(seen in anything()) {
        let actions = counted(&seen);
        let is_down = |action: &Decision| {
            matches!(action, Decision::Write(Write::MoveOff { .. } | Write::MakeRoom { .. }))
        };
        let is_up = |action: &Decision| matches!(action, Decision::Write(Write::Follow { .. }));
        prop_assert!(!(actions.iter().any(is_down) && actions.iter().any(is_up)), "{actions:?}");
        prop_assert!(!actions[1..].contains(&Decision::Count(Question::Tasks)), "{actions:?}");
    }

    #[test]
    fn where_it_may_come_back_and_no_quota_keeps_it_away_the_placeholder_always_does(seen in anything()) {
        let released = matches!(decision(&seen), Decision::Write(Write::Release { .. } | Write::DateHold));
        if may_come_back(&seen) && !keeps_away(&seen) && !released {
            let follow = Decision::Write(Write::Follow { set: SET.to_owned() });
            let expected = seen.assistants.as_ref().map_or(Decision::Count(Question::Assistants), |_| follow);
            prop_assert_eq!(decision(&seen), expected);
        }
    }

    #[test]
    fn a_placeholder_that_made_room_stays_away_for_no_longer_than_five_minutes(mut seen in anything()) {
        seen.refusal = None;
        if may_come_back(&seen) && keeps_away(&seen) {
            let plan = plan(&seen);
            prop_assert_eq!(&plan.decision, &Decision::Wait(Wait::Steady));
            prop_assert!(plan.again.is_some_and(|again| again <= Duration::from_mins(5)), "{plan:?}");
        }
    }

    #[test]
    fn the_placeholder_comes_back_only_from_no_replicas_and_while_nobody_waits_awake(seen in anything()) {
        if let Decision::Write(Write::Follow { .. }) = decision(&seen) {
            let nobody_lives = seen.census.is_some_and(|census| census.live == 0);
            prop_assert!(seen.waiting.is_empty() || nobody_lives && seen.waiting.iter().any(lacks_its_group));
            prop_assert!(is_alive(&seen) || is_leaving(&seen));
            prop_assert!(usable_set(&seen).is_some_and(|set| set.replicas <= 0));
        }
    }

    #[test]
    fn room_is_made_only_for_a_task_of_the_run_that_runs_and_tekton_tries_again_only_when_it_is_made(seen in anything()) {
        let replicas = usable_set(&seen).map(|set| set.replicas);
        let runs = is_alive(&seen) && !seen.run.is_held_by_us() && is_refused(&seen);
        match decision(&seen) {
            Decision::Write(Write::MakeRoom { .. }) => prop_assert!(runs && replicas > Some(0)),
            Decision::Write(Write::RetryTasks { .. }) => {
                prop_assert!(runs && replicas <= Some(0) && replicas.is_some() && seen.pod.is_none());
            }
            _ => {}
        }
    }

    #[test]
    fn a_run_that_opted_out_keeps_its_placeholder_until_no_assistant_of_tekton_waits_for_it(seen in anything()) {
        if let (Decision::Write(Write::DeletePlaceholder { set: Some(_), .. }), true) = (decision(&seen), is_leaving(&seen)) {
            prop_assert!(usable_set(&seen).unwrap().replicas > 0);
            let assistants = seen.assistants.as_ref().unwrap();
            prop_assert!(assistants.iter().all(|assistant| assistant.node.is_some()));
        }
    }

    #[test]
    fn no_run_is_released_to_a_node_that_is_unfit_and_that_it_can_leave_before_its_deadline(seen in anything()) {
        let unfit = matches!(seen.node, NodeState::Unfit(_)) && seen.config.move_after.is_some();
        let free = seen.census.is_none_or(|census| census.live == 0 && seen.tied.is_none());
        if let (Decision::Write(Write::Release { cause, node: Some(_), .. }), true) = (decision(&seen), unfit && free) {
            prop_assert_eq!(cause, ReleaseCause::Deadline);
        }
    }

    #[test]
    fn a_run_with_a_reserve_is_released_for_its_node_only_once_the_placeholder_is_small_and_free(seen in anything()) {
        if let Decision::Write(Write::Release { cause: ReleaseCause::NodeFound, .. }) = decision(&seen) {
            let usual = size::usual(&seen.config).requests();
            let shape = &seen.pod.as_ref().unwrap().shape;
            prop_assert!(!shape.reserves || shape.requests.beyond(&usual).next().is_none());
            prop_assert!(!usable_set(&seen).unwrap().pinned);
        }
    }

    #[test]
    fn only_a_held_run_starts_over_and_only_a_pod_that_is_there_is_made_small(seen in anything()) {
        let is_pod = |uid: &String| seen.pod.as_ref().is_some_and(|pod| pod.uid == *uid && !pod.ending);
        match decision(&seen) {
            Decision::Write(Write::StartOver { .. }) => prop_assert!(seen.run.is_held_by_us()),
            Decision::Write(Write::Shrink { pod, .. }) => prop_assert!(is_pod(&pod)),
            Decision::Write(Write::RecreateSmall { pod, node, .. }) => {
                prop_assert!(is_pod(&pod) && node == seen.pod.as_ref().unwrap().node);
            }
            _ => {}
        }
    }

    #[test]
    fn every_write_names_the_objects_that_it_relies_on(seen in anything()) {
        if let Decision::Write(write) = decision(&seen) {
            for request in write.requests(&seen, "image") {
                prop_assert!(names_what_was_seen(&seen, &request), "{request:?}");
            }
        }
    }

    #[test]
    fn what_a_write_rests_on_is_asked_first_and_nothing_is_asked_twice(seen in anything()) {
        match decision(&seen) {
            Decision::Write(write) => {
                for question in rests_on(&seen, &write) {
                    prop_assert!(is_answered(&seen, question), "{write:?}: {question:?}");
                }
            }
            Decision::Count(question) => prop_assert!(!is_answered(&seen, question), "{question:?}"),
            Decision::Leave(_) | Decision::Wait(_) => {}
        }
    }

    #[test]
    fn a_plan_never_asks_to_be_looked_at_again_at_once_and_comes_back_to_a_pod_that_waits(seen in anything()) {
        let plan = plan(&seen);
        prop_assert!(plan.again.is_none_or(|again| !again.is_zero()));
        if let Decision::Wait(Wait::Tasks { pod: Some(_), .. } | Wait::Volume { pod: Some(_), .. }) = plan.decision {
            prop_assert!(plan.again.is_some());
        }
    }
}
