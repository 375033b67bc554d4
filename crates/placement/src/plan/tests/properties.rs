//! What holds for `plan` on any observation. `scenes` generates observations, and `reading` has the conditions of the
//! properties.

use super::*;
use crate::attempts::{Before, Turn};
use crate::tally::tally;
use proptest::prelude::any;
use proptest::test_runner::Config as Cases;
use proptest::{prop_assert, prop_assert_eq, prop_oneof, proptest};
use reading::{
    counted, deletions, frees_a_place, gives_up_its_node, goes_on, is_alive, is_leaving, is_opted_in,
    is_over_cap, is_refused, keeps_away, lacks_its_group, live, may_come_back, name, names_observed_object,
    needs_a_place, release, rests_on, step, usable_placeholder, wanted,
};
use scenes::{anything, over_cap};

pub(super) mod reading;
pub(super) mod scenes;

/// How much longer a run may be held while places in a quota are freed for it.
const FOR_A_PLACE: Duration = Duration::from_secs(15);

proptest! {
    #![proptest_config(Cases::with_cases(4000))]

    #[test]
    fn only_holds_of_pod_affinity_are_released(scene in anything(), met in tally(&[("release", 100)])) {
        let lets_go = |action: &Action| matches!(action, Action::Run(run) if run.hold.is_none() && scene.run.hold);
        if let Some((name, step)) = step(&scene) {
            prop_assert_eq!(name == "release", step.actions.iter().any(lets_go), "{:?}", step);
        }
        if release(&scene).is_some() {
            met.count("release");
            prop_assert_eq!(&scene.run.status, &SpecStatus::Pending);
            prop_assert!(scene.run.hold && !scene.run.queued_by_kueue && goes_on(&scene));
        }
    }

    #[test]
    fn a_hold_ends_exactly_at_its_deadline_unless_a_place_in_a_quota_is_freed(
        mut scene in anything(), age in prop_oneof![any::<u16>(), 590..630_u16], from_creation in any::<bool>(),
        waited in 0..30_u8,
        met in tally(&[("held", 50), ("released", 300), ("frees a place", 3), ("over a cap", 3)]),
    ) {
        scene.run.held_from = if from_creation { HeldFrom::Creation } else { HeldFrom::Release(ago(age.into())) };
        scene.run.created = Some(ago(if from_creation { age.into() } else { 99_999 }));
        scene.makes_room_since = Some(ago(waited.into()));
        let deadline = scene.config.hold_deadline;
        if !(scene.run.is_held_by_us() && goes_on(&scene)) {
            return Ok(());
        }
        let plan = scene.plan();
        if is_over_cap(&scene) {
            met.count("over a cap");
            let suspends = matches!(&plan.decision, Decision::Act(step) if step.name == "suspend_hold");
            prop_assert!(suspends, "{plan:?}");
            return Ok(());
        }
        match Duration::from_secs(age.into()).checked_sub(deadline) {
            Some(_) if Duration::from_secs(waited.into()) < FOR_A_PLACE && needs_a_place(&scene) => {
                met.count("frees a place");
                prop_assert!(frees_a_place(&plan.decision), "{plan:?}");
            }
            Some(_) => {
                met.count("released");
                prop_assert!(release(&scene).is_some(), "{plan:?}");
            }
            None => {
                met.count("held");
                let overdue = release(&scene).is_some_and(|(cause, _)| cause == ReleaseCause::Deadline);
                prop_assert!(!overdue);
            }
        }
        prop_assert!(plan.again.is_none_or(|again| again <= deadline && !again.is_zero()));
    }

    #[test]
    fn a_hold_without_a_date_gets_its_date_before_any_other_step(
        mut scene in anything(), met in tally(&[("undated", 300)]),
    ) {
        scene.run.held_from = HeldFrom::UndatedRelease;
        if scene.run.is_held_by_us() && is_alive(&scene) && !is_over_cap(&scene) {
            met.count("undated");
            let mut dated = RunState::from_run(&scene.run);
            dated.hold = Some(HeldFrom::Release(now()));
            prop_assert_eq!(scene.decision(), Decision::act("date_hold", None, [Action::Run(dated)]));
        }
    }

    #[test]
    fn a_running_run_is_enrolled_only_if_it_has_a_usable_placeholder(
        scene in anything(), met in tally(&[("pending", 30), ("running", 3)]),
    ) {
        if name(&scene) == "enrol" {
            let is_pending = scene.run.status == SpecStatus::Pending;
            met.count(if is_pending { "pending" } else { "running" });
            prop_assert!(is_pending || usable_placeholder(&scene).is_some() && !scene.run.hold);
            prop_assert!(is_opted_in(&scene) && goes_on(&scene));
        }
    }

    #[test]
    fn the_configuration_does_not_change_the_plan_of_an_enrolled_run(
        scene in anything(), met in tally(&[("enrolled", 500)]),
    ) {
        let labels = (scene.run.strategy.is_some(), scene.run.isolation.is_some());
        if scene.run.is_enrolled() && labels == (true, true) {
            met.count("enrolled");
            let reconfigured = scene.clone().change(|scene| {
                scene.config.default_strategy = Strategy::ColocateAlways;
                scene.config.isolation = Isolation { scope: Scope::Namespace, from: IsolateFrom::Enrolled };
            });
            prop_assert_eq!(reconfigured.decision(), scene.decision());
        }
    }

    #[test]
    fn a_placeholder_is_created_only_for_a_live_run_without_a_statefulset(
        scene in anything(), met in tally(&[("created", 30)]),
    ) {
        if name(&scene) == "create_placeholder" {
            met.count("created");
            prop_assert!(scene.statefulset.is_none() && is_alive(&scene));
        }
    }

    #[test]
    fn a_clean_up_deletes_only_the_own_placeholder_and_an_adopted_pod(
        scene in anything(), met in tally(&[("set", 200), ("adopted pod", 20), ("left pod", 20)]),
    ) {
        let ours = |uid: &String| usable_placeholder(&scene).is_some_and(|set| set.uid == *uid);
        let adopted = scene.pod.as_ref().is_some_and(|pod| pod.adopted);
        if let Some((name @ ("delete_placeholder" | "keep_pod" | "keep_node"), step)) = step(&scene) {
            let leaves_pod = name == "keep_pod";
            let targets: Vec<_> = deletions(&step).collect();
            let deletes_pod = targets.iter().any(|target| matches!(target, Target::Pod(_)));
            prop_assert!(!targets.is_empty());
            met.count(if leaves_pod { "left pod" } else if deletes_pod { "adopted pod" } else { "set" });
            for target in targets {
                match target {
                    Target::Placeholder(uid) => prop_assert!(ours(uid)),
                    Target::Pod(_) => prop_assert!(adopted && !leaves_pod),
                    other => prop_assert!(false, "{other:?}"),
                }
            }
            prop_assert!(!leaves_pod || adopted);
        }
    }

    #[test]
    fn a_done_or_deleted_run_is_cleaned_up_or_ignored_as_done(
        scene in anything(),
        met in tally(&[
            ("delete_placeholder", 100), ("adopt_pod", 20), ("keep_pod", 10), ("keep_node", 5), ("ignore", 30),
            ("usage", 20),
        ]),
    ) {
        if scene.run.done || scene.run.deleting {
            let action = scene.decision();
            met.count(name(&scene));
            prop_assert!(!matches!(action, Decision::Ignore(why) if why != IgnoreReason::Done), "{action:?}");
        }
    }

    #[test]
    fn a_pod_that_stays_after_its_run_mounts_no_pvc(
        scene in anything(), met in tally(&[("adopt_pod", 20), ("keep_pod", 20)]),
    ) {
        if let name @ ("adopt_pod" | "keep_pod") = name(&scene) {
            met.count(name);
            prop_assert!(scene.pod.is_some_and(|pod| !pod.shape.mounts));
        }
    }

    #[test]
    fn a_node_is_given_up_only_after_a_count_of_zero_tasks(
        scene in anything(), met in tally(&[("move_off", 30), ("start_over", 10)]),
    ) {
        if let Some((name, step)) = step(&scene).filter(gives_up_its_node) {
            met.count(name);
            prop_assert_eq!(live(&scene), Some(0));
            prop_assert!(is_alive(&scene) && scene.config.move_after.is_some());
            let usable = usable_placeholder(&scene).unwrap();
            let is_scaled_down = wanted(&step).is_some_and(|spec| spec.replicas == 0);
            let is_deleted = deletions(&step).eq([&Target::Placeholder(usable.uid.clone())]);
            prop_assert!(usable.spec.replicas > 0 && is_scaled_down != is_deleted, "{step:?}");
        }
    }

    #[test]
    fn the_only_node_that_can_use_a_volume_of_the_run_is_never_given_up(
        mut scene in anything(), met in tally(&[("move_off", 50), ("start_over", 10)]),
    ) {
        let gives_up = |scene: &Scene| step(scene).filter(gives_up_its_node);
        if let Some(tasks) = &scene.inputs.tasks {
            let task_count = tasks.task_count;
            scene.inputs.tasks = Tasks { task_count, pinned_by_volume: None }.into();
        }
        if let Some((name, _)) = gives_up(&scene) {
            met.count(name);
        }
        prop_assert_eq!(gives_up(&scene.pinned_by_volume("disk")), None);
    }

    #[test]
    fn no_plan_can_scale_both_up_and_down_or_require_a_second_task_count(
        scene in anything(), met in tally(&[("down", 50), ("up", 50)]),
    ) {
        let actions = counted(&scene);
        let replicas = scene.statefulset.as_ref().map(|set| set.spec.replicas);
        let scales = |action: &Decision, how: fn(i32, i32) -> bool| match action {
            Decision::Act(step) => wanted(step).is_some_and(|spec| how(replicas.unwrap(), spec.replicas)),
            _ => false,
        };
        let is_down = |action: &Decision| scales(action, |before, wanted| wanted < before);
        let is_up = |action: &Decision| scales(action, |before, wanted| wanted > before);
        match (actions.iter().any(is_down), actions.iter().any(is_up)) {
            (false, false) => {}
            (true, false) => met.count("down"),
            (false, true) => met.count("up"),
            (true, true) => prop_assert!(false, "{actions:?}"),
        }
        prop_assert!(!actions[1..].contains(&Decision::Read(Read::Tasks)), "{actions:?}");
    }

    #[test]
    fn a_placeholder_always_returns_if_it_may_and_no_quota_prevents_it(
        scene in anything(), met in tally(&[("back", 30)]),
    ) {
        let hold_ends = matches!(name(&scene), "release" | "date_hold" | "quota" | "free_places" | "places");
        if may_come_back(&scene) && !keeps_away(&scene) && !hold_ends {
            met.count("back");
            let expected = if scene.inputs.has(Read::Assistants) { "return_placeholder" } else { "assistants" };
            prop_assert_eq!(name(&scene), expected);
        }
    }

    #[test]
    fn a_placeholder_makes_room_for_at_most_five_minutes(
        mut scene in anything(), met in tally(&[("away", 10)]),
    ) {
        scene.messages.rejection = None;
        if may_come_back(&scene) && keeps_away(&scene) {
            met.count("away");
            let plan = scene.plan();
            prop_assert_eq!(&plan.decision, &Decision::Wait(Wait::Pause));
            prop_assert!(plan.again.is_some_and(|again| again <= Duration::from_mins(5)), "{plan:?}");
        }
    }

    #[test]
    fn a_scaled_down_placeholder_returns_only_if_no_waiting_task_can_be_the_first_pod(
        scene in anything(), met in tally(&[("no task waits", 30), ("waits", 10), ("leaving", 10)]),
    ) {
        if name(&scene) == "return_placeholder" {
            let task_lives = live(&scene).is_some_and(|live| live > 0);
            met.count(match () {
                () if is_leaving(&scene) => "leaving",
                () if scene.waiting.is_empty() => "no task waits",
                () => "waits",
            });
            prop_assert!(scene.waiting.is_empty() || task_lives || scene.waiting.iter().any(lacks_its_group));
            prop_assert!(is_alive(&scene) || is_leaving(&scene));
            prop_assert!(usable_placeholder(&scene).is_some_and(|set| set.spec.replicas <= 0));
        }
    }

    #[test]
    fn a_placeholder_makes_room_only_for_tasks_of_a_running_run_and_before_tekton_retries(
        scene in anything(), met in tally(&[("make_room", 20), ("retry_tasks", 10)]),
    ) {
        let replicas = usable_placeholder(&scene).map(|set| set.spec.replicas);
        let runs = is_alive(&scene) && !scene.run.is_held_by_us() && is_refused(&scene);
        match name(&scene) {
            "make_room" => {
                met.count("make_room");
                prop_assert!(runs && replicas > Some(0));
            }
            "retry_tasks" => {
                met.count("retry_tasks");
                prop_assert!(runs && replicas <= Some(0) && replicas.is_some() && scene.pod.is_none());
            }
            _ => {}
        }
    }

    #[test]
    fn only_a_run_without_a_placeholder_or_a_held_run_without_a_node_waits_for_its_turn(
        scene in anything(), met in tally(&[("without a placeholder", 100), ("without a node", 50)]),
    ) {
        let on_turn = |turn| scene.clone().change(|scene| scene.turn = turn).plan();
        let later = [Before::Rejected, Before::Waiting { ahead: 3 }].map(Turn::Later);
        let waits = |turn| on_turn(turn) != on_turn(Turn::Now);
        if later.into_iter().chain([over_cap()]).any(waits) {
            let has_placeholder = usable_placeholder(&scene).is_some();
            met.count(if has_placeholder { "without a node" } else { "without a placeholder" });
            let has_node = scene.pod.as_ref().is_some_and(|pod| pod.node.is_some() && !pod.ending);
            prop_assert!(!has_placeholder || scene.run.is_held_by_us() && !has_node);
        }
    }

    #[test]
    fn a_run_that_opted_out_keeps_its_placeholder_until_all_assistants_have_a_node(
        scene in anything(), met in tally(&[("delete", 20)]),
    ) {
        if name(&scene) == "delete_placeholder" && is_leaving(&scene) {
            met.count("delete");
            prop_assert!(usable_placeholder(&scene).unwrap().spec.replicas > 0);
            let assistants = scene.inputs.assistants.as_ref().unwrap();
            prop_assert!(assistants.iter().all(|assistant| assistant.node.is_some()));
        }
    }

    #[test]
    fn no_run_is_released_before_its_deadline_for_an_unusable_node_that_it_can_leave(
        scene in anything(), met in tally(&[("released", 10)]),
    ) {
        let unfit = matches!(scene.node, NodeState::Unusable(_)) && scene.config.move_after.is_some();
        let tasks = scene.inputs.tasks.as_ref();
        let free = tasks.is_none_or(|tasks| tasks.task_count.live == 0 && tasks.pinned_by_volume.is_none());
        if let (Some((cause, Some(_))), true) = (release(&scene), unfit && free) {
            met.count("released");
            prop_assert_eq!(cause, ReleaseCause::Deadline);
        }
    }

    #[test]
    fn a_run_with_a_reserve_is_released_for_its_node_only_with_a_small_unpinned_placeholder(
        scene in anything(), met in tally(&[("reserve", 5), ("none", 20)]),
    ) {
        if let Some((ReleaseCause::NodeFound, _)) = release(&scene) {
            let usual = size::usual(&scene.config).requests();
            let shape = &scene.pod.as_ref().unwrap().shape;
            met.count(if shape.reserves { "reserve" } else { "none" });
            prop_assert!(!shape.reserves || shape.requests.beyond(&usual).next().is_none());
            prop_assert_eq!(&usable_placeholder(&scene).unwrap().spec.node, &None);
        }
    }

    #[test]
    fn only_a_held_run_starts_over_and_only_an_existing_pod_is_shrunk(
        scene in anything(), met in tally(&[("start_over", 10), ("shrink", 10), ("recreate_small", 10)]),
    ) {
        let is_pod = |uid: &String| scene.pod.as_ref().is_some_and(|pod| pod.uid == *uid && !pod.ending);
        let Some((name, step)) = step(&scene) else {
            return Ok(());
        };
        let is_right = match (name, step.actions.as_slice()) {
            ("start_over", _) => scene.run.is_held_by_us(),
            ("shrink", [Action::Placeholder(_), Action::Pod(PodChange::Resize(pod))]) => is_pod(pod),
            ("shrink", [Action::Placeholder(_)]) => scene.pod.as_ref().is_none_or(|pod| pod.ending),
            ("recreate_small", [Action::Placeholder(spec), Action::Delete(Target::Pod(pod))]) => {
                is_pod(pod) && spec.node == scene.pod.as_ref().unwrap().node
            }
            _ => return Ok(()),
        };
        met.count(name);
        prop_assert!(is_right);
    }

    #[test]
    fn each_step_has_requests_and_each_request_names_an_observed_object(
        scene in anything(),
        met in tally(&[
            ("adopt_pod", 20), ("size_within_limits", 5), ("create_placeholder", 30), ("date_hold", 3),
            ("delete_placeholder", 200), ("enrol", 30), ("return_placeholder", 50), ("free_places", 5),
            ("give_up_reserve", 5), ("keep_pod", 20), ("keep_node", 5), ("make_room", 20), ("move_off", 30), ("requeue_statefulset", 10),
            ("record_node", 10), ("recreate_small", 10), ("release", 100), ("retry_tasks", 10),
            ("shrink", 10), ("start_over", 10), ("unmount", 10), ("unpin", 10), ("requeue_tasks", 10), ("unenrol", 20),
            ("narrow_isolation", 5), ("leave_out_images", 2), ("step_back", 8), ("suspend_hold", 2),
        ]),
    ) {
        if let Some((name, step)) = step(&scene) {
            met.count(name);
            let observed = scene.observation();
            let requests = step.actions.iter().flat_map(|action| action.requests(&observed, "image"));
            let requests: Vec<_> = requests.collect();
            prop_assert!(!requests.is_empty(), "{step:?}");
            for request in requests {
                prop_assert!(names_observed_object(&scene, &request), "{request:?}");
            }
        }
    }

    #[test]
    fn the_inputs_of_each_step_are_read_first_and_nothing_is_read_twice(
        scene in anything(),
        met in tally(&[
            ("tasks", 30), ("rejected_tasks", 30), ("creation", 30), ("quota", 5), ("assistants", 50),
            ("usage", 5), ("read", 50),
        ]),
    ) {
        if let Decision::Read(read) = scene.decision() {
            met.count("read");
            prop_assert!(!scene.inputs.has(read), "{read:?}");
        }
        if let Some(read) = rests_on(&scene, name(&scene)) {
            met.count(read.into());
            prop_assert!(scene.inputs.has(read), "{read:?}");
        }
    }

    #[test]
    fn no_plan_is_requeued_without_a_delay_and_a_plan_with_a_waiting_pod_is_requeued(
        scene in anything(), met in tally(&[("tasks", 10), ("volume", 10)]),
    ) {
        let plan = scene.plan();
        prop_assert!(plan.again.is_none_or(|again| !again.is_zero()));
        if let Decision::Wait(Wait::Tasks { pod: Some(_), .. } | Wait::Volume { pod: Some(_), .. }) = plan.decision {
            met.count(plan.decision.name());
            prop_assert!(plan.again.is_some());
        }
    }
}
