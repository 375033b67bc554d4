//! What holds for `plan` whatever is observed.

use super::super::fixtures::{NODE, Scene, UID, fresh};
use super::*;
use proptest::prelude::{Just, any};
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
    |scene| scene.run.started = true,
    |scene| scene.run.has_children = true,
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
];

fn any_scene() -> BoxedStrategy<Scene> {
    let changes = proptest::collection::vec(select(CHANGES), 0..12);
    (Just(fresh()), changes)
        .prop_map(|(scene, changes)| changes.into_iter().fold(scene, Scene::change))
        .boxed()
}

fn usable_set(scene: &Scene) -> Option<&Placeholder> {
    scene.set.as_ref().filter(|set| set.owned && !set.deleting)
}

proptest! {
    #![proptest_config(Cases::with_cases(4000))]

    #[test]
    fn only_our_own_hold_is_ever_released(scene in any_scene()) {
        if let Action::Release { .. } = scene.action() {
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
            let released = matches!(plan.action, Action::Release { .. });
            prop_assert!(released, "{plan:?}");
        }
        prop_assert!(plan.again.is_none_or(|again| again <= deadline && !again.is_zero()));
    }

    #[test]
    fn a_placeholder_is_made_only_where_there_is_none_and_the_run_lives(scene in any_scene()) {
        if let Action::CreatePlaceholder(_) = scene.action() {
            prop_assert!(scene.set.is_none());
            prop_assert!(!scene.run.done && !scene.run.deleting && !scene.run.child && !scene.run.managed_elsewhere);
        }
    }

    #[test]
    fn nothing_is_deleted_but_a_live_set_of_our_own_and_an_adopted_pod(scene in any_scene()) {
        let ours = |uid: &String| usable_set(&scene).is_some_and(|set| set.uid == *uid);
        match scene.action() {
            Action::DeletePlaceholder { set, pod } => {
                prop_assert!(set.is_some() || pod.is_some());
                prop_assert!(set.as_ref().is_none_or(ours));
                prop_assert!(pod.is_none() || scene.pod.as_ref().is_some_and(|pod| pod.adopted));
            }
            Action::OrphanPlaceholder { set } => {
                prop_assert!(ours(&set) && scene.pod.as_ref().is_some_and(|pod| pod.adopted));
            }
            _ => {}
        }
    }

    #[test]
    fn a_dead_run_is_only_ever_cleaned_up(scene in any_scene()) {
        if scene.run.done || scene.run.deleting {
            let action = scene.action();
            let cleaning = matches!(
                action,
                Action::DeletePlaceholder { .. }
                    | Action::AdoptPod { .. }
                    | Action::OrphanPlaceholder { .. }
                    | Action::Leave(Why::Done)
            );
            prop_assert!(cleaning, "{action:?}");
        }
    }
}
