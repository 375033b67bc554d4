//! What holds for `plan` whatever is observed.

use super::*;
use jiff::Timestamp;
use proptest::prelude::any;
use proptest::sample::select;
use proptest::strategy::{BoxedStrategy, Strategy as Arbitrary};
use proptest::test_runner::Config as Cases;
use proptest::{prop_assert, prop_assert_eq, proptest};

type Change = fn(&mut Scene);

const CHANGES: &[Change] = &[
    |scene| scene.run.deleting = true,
    |scene| scene.run.done = true,
    |scene| scene.run.status = SpecStatus::Pending,
    |scene| scene.run.status = SpecStatus::Other("StoppedRunFinally".to_owned()),
    |scene| scene.run.hold = true,
    |scene| scene.run.managed_elsewhere = true,
    |scene| scene.run.child = true,
    |scene| scene.run.queued_by_kueue = true,
    |scene| scene.run.opt_in = None,
    |scene| scene.run.opt_in = Some("false".to_owned()),
    |scene| scene.run.opt_in = Some("isolateAlways".to_owned()),
    |scene| scene.run.group = Some(UID.to_owned()),
    |scene| scene.run.group = Some("old-uid".to_owned()),
    |scene| scene.run.strategy = Some("isolateAlways".to_owned()),
    |scene| scene.run.node = Some(NODE.to_owned()),
    |scene| scene.run.created = None,
    |scene| *scene = scene.clone().created_ago(9999),
    |scene| *scene = scene.clone().with_set(),
    |scene| *scene = scene.clone().set_deleting(),
    |scene| *scene = scene.clone().foreign_set(),
    |scene| *scene = scene.clone().resolved(Strategy::IsolateAlways),
    |scene| *scene = scene.clone().with_pod(),
    |scene| *scene = scene.clone().on(NODE),
    |scene| *scene = scene.clone().on(NODE).adopted(),
    |scene| *scene = scene.clone().on(NODE).pod_ending(),
    |scene| *scene = scene.clone().without_set(),
    |scene| scene.config.release_when = ReleaseWhen::Created,
    |scene| scene.config.hold_deadline = Duration::MAX,
    |scene| scene.config.move_after = None,
    |scene| scene.config.move_after = Some(Duration::MAX),
    |scene| *scene = scene.clone().moved_off(),
    |scene| *scene = scene.clone().stranded(60),
    |scene| *scene = scene.clone().task_starts("new"),
    |scene| *scene = scene.clone().task_waits("big", 60),
    |scene| *scene = scene.clone().task_waits("late", 3),
    |scene| *scene = scene.clone().reserving("cpu=4"),
    |scene| *scene = scene.clone().reserving("nvidia.com/gpu=1"),
    |scene| *scene = scene.clone().make(|make| make.resize = Resize::Refused),
    |scene| *scene = scene.clone().make(|make| make.pinned = true),
    |scene| scene.set.iter_mut().for_each(|set| set.pinned = true),
    |scene| scene.node = NodeState::Fit,
    |scene| scene.node = NodeState::Unfit(Cause::Cordoned),
    |scene| scene.node = NodeState::Unfit(Cause::Gone),
    |scene| *scene = scene.clone().counted(0),
    |scene| *scene = scene.clone().quiet_for(3),
    |scene| *scene = scene.clone().counted(2),
    |scene| *scene = scene.clone().moved_before(2, 5),
    |scene| *scene = scene.clone().moved_before(u32::MAX, -9999),
    |scene| scene.waiting.iter_mut().for_each(wait_for_ever),
    |scene| scene.waiting.iter_mut().for_each(miss_the_group),
    |scene| *scene = scene.clone().quiet_for(-9999),
    |scene| scene.moves.last = Some(Timestamp::MIN),
];

fn wait_for_ever(pod: &mut WaitingPod) {
    let since = |unschedulable: &mut Unschedulable| unschedulable.since = Timestamp::MIN;
    pod.unschedulable.iter_mut().for_each(since);
}

fn miss_the_group(pod: &mut WaitingPod) {
    if let Some(verdict) = &mut pod.unschedulable {
        ELSEWHERE.clone_into(&mut verdict.message);
    }
}

fn lacks_its_group(pod: &WaitingPod) -> bool {
    pod.unschedulable
        .as_ref()
        .is_some_and(|verdict| verdict.message == ELSEWHERE)
}

/// Such a run has a placeholder that is there to be moved.
const LIVELY: &[fn() -> Scene] = &[
    fresh,
    settled,
    || held().on(NODE),
    || enrolled().moved_off(),
    || held().moved_off(),
];

fn any_scene() -> BoxedStrategy<Scene> {
    let changes = proptest::collection::vec(select(CHANGES), 0..12);
    (select(LIVELY), changes)
        .prop_map(|(scene, changes)| changes.into_iter().fold(scene(), Scene::change))
        .boxed()
}

/// What is planned for this scene with each outcome of a count.
fn counted(scene: &Scene) -> [Decision; 3] {
    let with = |census| scene.clone().change(|scene| scene.census = census).decision();
    let census = |live| {
        Some(Census {
            live,
            quiet_since: None,
        })
    };
    [with(None), with(census(0)), with(census(1))]
}

fn is_alive(scene: &Scene) -> bool {
    let run = &scene.run;
    let ours = run.is_held_by_us() || run.status != SpecStatus::Pending && run.group.as_deref() == Some(UID);
    let opted_in = !matches!(run.opt_in.as_deref(), None | Some("false"));
    ours && opted_in && !run.child && !run.managed_elsewhere && !run.done && !run.deleting
}

fn usable_set(scene: &Scene) -> Option<&Placeholder> {
    scene.set.as_ref().filter(|set| set.owned && !set.deleting)
}

proptest! {
    #![proptest_config(Cases::with_cases(4000))]

    #[test]
    fn only_our_own_hold_is_ever_released(scene in any_scene()) {
        if let Decision::Write(Write::Release { .. }) = scene.decision() {
            prop_assert_eq!(&scene.run.status, &SpecStatus::Pending);
            prop_assert!(scene.run.hold && !scene.run.queued_by_kueue);
            prop_assert!(!scene.run.child && !scene.run.managed_elsewhere && !scene.run.done && !scene.run.deleting);
        }
    }

    #[test]
    fn our_hold_never_outlives_the_deadline(scene in any_scene(), age in any::<u16>()) {
        let scene = scene.created_ago(age.into());
        let ours = scene.run.status == SpecStatus::Pending && scene.run.hold && !scene.run.queued_by_kueue;
        let foreign = scene.run.child || scene.run.managed_elsewhere;
        let deadline = scene.config.hold_deadline;
        let plan = scene.plan();
        if !ours || foreign || scene.run.done || scene.run.deleting {
            return Ok(());
        }
        if Duration::from_secs(age.into()) >= deadline {
            let released = matches!(plan.decision, Decision::Write(Write::Release { .. }));
            prop_assert!(released, "{plan:?}");
        }
        prop_assert!(plan.again.is_none_or(|again| again <= deadline && !again.is_zero()));
    }

    #[test]
    fn a_placeholder_is_made_only_where_there_is_none_and_the_run_lives(scene in any_scene()) {
        if let Decision::Write(Write::CreatePlaceholder(_)) = scene.decision() {
            prop_assert!(scene.set.is_none());
            prop_assert!(!scene.run.done && !scene.run.deleting && !scene.run.child && !scene.run.managed_elsewhere);
        }
    }

    #[test]
    fn nothing_is_deleted_but_a_live_set_of_our_own_and_an_adopted_pod(scene in any_scene()) {
        let ours = |uid: &String| usable_set(&scene).is_some_and(|set| set.uid == *uid);
        match scene.decision() {
            Decision::Write(Write::DeletePlaceholder { set, pod }) => {
                prop_assert!(set.is_some() || pod.is_some());
                prop_assert!(set.as_ref().is_none_or(ours));
                prop_assert!(pod.is_none() || scene.pod.as_ref().is_some_and(|pod| pod.adopted));
            }
            Decision::Write(Write::LeavePod { set }) => {
                prop_assert!(ours(&set) && scene.pod.as_ref().is_some_and(|pod| pod.adopted));
            }
            _ => {}
        }
    }

    #[test]
    fn a_dead_run_is_only_ever_cleaned_up(scene in any_scene()) {
        if scene.run.done || scene.run.deleting {
            let action = scene.decision();
            let cleaning = matches!(
                action,
                Decision::Write(
                    Write::DeletePlaceholder { .. } | Write::AdoptPod { .. } | Write::LeavePod { .. }
                )
                    | Decision::Leave(Why::Done)
            );
            prop_assert!(cleaning, "{action:?}");
        }
    }

    #[test]
    fn no_node_is_given_up_while_anything_of_the_run_lives_or_before_that_was_counted(scene in any_scene()) {
        if let Decision::Write(Write::MoveOff { set, .. }) = scene.decision() {
            prop_assert_eq!(scene.census.map(|census| census.live), Some(0));
            prop_assert!(is_alive(&scene) && scene.config.move_after.is_some());
            let seen = usable_set(&scene).unwrap();
            prop_assert!(seen.uid == set && seen.replicas > 0);
        }
    }

    #[test]
    fn no_count_makes_both_scalings_possible_and_none_asks_for_another_count(scene in any_scene()) {
        let actions = counted(&scene);
        let lets_go = actions.iter().any(|action| matches!(action, Decision::Write(Write::MoveOff { .. })));
        let follows = actions.iter().any(|action| matches!(action, Decision::Write(Write::Follow { .. })));
        prop_assert!(!(lets_go && follows), "{actions:?}");
        prop_assert!(!actions[1..].contains(&Decision::Count(Question::Tasks)), "{actions:?}");
    }

    #[test]
    fn at_no_replicas_with_nobody_waiting_and_the_old_pod_gone_the_placeholder_always_comes_back(scene in any_scene()) {
        let away = usable_set(&scene).is_some_and(|set| set.replicas == 0);
        let free = scene.waiting.is_empty() && scene.pod.as_ref().is_none_or(|pod| pod.ending);
        let overdue = scene.run.is_held_by_us() && matches!(scene.decision(), Decision::Write(Write::Release { .. }));
        if away && free && is_alive(&scene) && !overdue {
            let expected = Decision::Write(Write::Follow { set: SET.to_owned() });
            prop_assert_eq!(scene.decision(), expected);
        }
    }

    #[test]
    fn the_placeholder_comes_back_only_from_no_replicas_and_while_nobody_waits_awake(scene in any_scene()) {
        if let Decision::Write(Write::Follow { .. }) = scene.decision() {
            let nobody_lives = scene.census.is_some_and(|census| census.live == 0);
            prop_assert!(scene.waiting.is_empty() || nobody_lives && scene.waiting.iter().any(lacks_its_group));
            prop_assert!(is_alive(&scene));
            prop_assert!(usable_set(&scene).is_some_and(|set| set.replicas <= 0));
        }
    }

    #[test]
    fn no_run_is_released_to_a_node_known_to_be_unfit_before_its_deadline(scene in any_scene()) {
        let unfit = matches!(scene.node, NodeState::Unfit(_)) && scene.config.move_after.is_some();
        let free = scene.census.is_none_or(|census| census.live == 0);
        if let (Decision::Write(Write::Release { cause, node: Some(_), .. }), true) = (scene.decision(), unfit && free) {
            prop_assert_eq!(cause, ReleaseCause::Deadline);
        }
    }

    #[test]
    fn a_run_with_a_reserve_is_released_for_its_node_only_once_the_placeholder_is_small_and_free(scene in any_scene()) {
        if let Decision::Write(Write::Release { cause: ReleaseCause::NodeFound, .. }) = scene.decision() {
            let usual = crate::placeholder::size::usual(&scene.config).requests();
            let make = &scene.pod.as_ref().unwrap().make;
            prop_assert!(!make.reserves || make.requests.beyond(&usual).next().is_none());
            prop_assert!(!usable_set(&scene).unwrap().pinned);
        }
    }

    #[test]
    fn only_a_held_run_starts_over_and_only_a_pod_that_is_there_is_made_small(scene in any_scene()) {
        let is_pod = |uid: &String| scene.pod.as_ref().is_some_and(|pod| pod.uid == *uid && !pod.ending);
        match scene.decision() {
            Decision::Write(Write::StartOver { .. }) => prop_assert!(scene.run.is_held_by_us()),
            Decision::Write(Write::Shrink { pod, .. }) => prop_assert!(is_pod(&pod)),
            Decision::Write(Write::RecreateSmall { pod, node, .. }) => {
                prop_assert!(is_pod(&pod) && node == scene.pod.as_ref().unwrap().node);
            }
            _ => {}
        }
    }

    #[test]
    fn a_plan_never_asks_to_be_looked_at_again_at_once(scene in any_scene()) {
        prop_assert!(scene.plan().again.is_none_or(|again| !again.is_zero()));
    }
}
