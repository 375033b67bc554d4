//! Running runs: the strategy that they resolve to, the record of their node, and room in a quota of pods.

use super::*;

#[test]
fn a_running_run_that_was_never_enrolled_is_labelled_too_late() {
    for scene in [fresh(), fresh().in_group("old-uid")] {
        assert_eq!(scene.decision(), Decision::Wait(Wait::LabelledTooLate));
    }
}

#[test]
fn a_running_run_that_lost_its_group_is_enrolled_again_if_it_has_a_placeholder() {
    assert_eq!(fresh().on(NODE).decision(), labelled(None));
}

#[test]
fn the_placeholder_of_a_run_that_another_client_released_before_its_enrolment_is_deleted() {
    let released = |scene: Scene| scene.change(|scene| scene.run.hold = true);
    assert_eq!(
        released(fresh().on(NODE)).decision(),
        cleaned_up(),
        "its placeholder keeps a node from others"
    );
    let later = released(fresh().on(NODE).statefulset_deleting());
    assert_eq!(later.decision(), Decision::Wait(Wait::Settled));
    assert_eq!(
        released(fresh()).decision(),
        Decision::Wait(Wait::LabelledTooLate)
    );
}

#[test]
fn the_lost_placeholder_of_an_enrolled_run_is_recreated() {
    assert_eq!(enrolled().decision(), creation());
}

#[test]
fn an_enrolled_run_with_a_recorded_node_is_settled() {
    let scene = enrolled()
        .on(NODE)
        .change(|scene| scene.run.node = Some(NODE.to_owned()));
    assert_eq!(scene.plan(), without_timer(Decision::Wait(Wait::Settled)));
}

#[test]
fn the_first_and_each_new_node_of_a_run_is_recorded() {
    let record = node_recorded(NODE);
    assert_eq!(enrolled().on(NODE).decision(), record);
    let moved = enrolled()
        .on(NODE)
        .change(|scene| scene.run.node = Some("node-0".to_owned()));
    assert_eq!(moved.decision(), record);
    let kept_by_a_volume = moved
        .node_is(NodeState::Unusable(Cause::Cordoned))
        .pinned_by_volume("disk");
    assert_eq!(kept_by_a_volume.decision(), record);
}

#[test]
fn the_recorded_node_stays_while_the_placeholder_pod_is_terminating_or_missing() {
    let scene = enrolled()
        .on(NODE)
        .change(|scene| scene.run.node = Some("node-0".to_owned()));
    assert_eq!(
        scene.clone().pod_ending().decision(),
        Decision::Wait(Wait::Settled)
    );
    assert_eq!(
        scene.change(|scene| scene.pod = None).decision(),
        Decision::Wait(Wait::Settled)
    );
}

#[test]
fn a_running_run_waits_for_the_deletion_of_its_old_placeholder() {
    assert_eq!(
        enrolled().statefulset_deleting().plan(),
        without_timer(Decision::Wait(Wait::OldStatefulSet))
    );
}

#[test]
fn a_run_that_is_being_cancelled_keeps_its_placeholder_until_it_is_done() {
    for status in ["Cancelled", "CancelledRunFinally", "StoppedRunFinally"] {
        let cancel = |scene: Scene| {
            scene
                .change(|scene| scene.run.status = SpecStatus::Other(status.to_owned()))
                .decision()
        };
        assert_eq!(cancel(held()), Decision::Wait(Wait::Settled), "{status}");
        assert_eq!(cancel(enrolled()), creation(), "{status}");
        assert_eq!(
            cancel(enrolled().with_pod()),
            Decision::Wait(Wait::Settled),
            "{status}"
        );
    }
}

#[test]
fn the_opt_in_label_overrides_the_default_strategy_of_the_configuration() {
    let config = |scene: &mut Scene| {
        scene.config.default_strategy = Strategy::IsolateAlways;
        scene.config.isolation = Isolation {
            scope: Scope::Namespace,
            from: IsolateFrom::Enrolled,
        };
    };
    let with = |strategy| Enrolment {
        strategy,
        isolation: "namespace-enrolled".parse().unwrap(),
    };
    let default = held().change(config).decision();
    assert!(enrols_as(&default, with(Strategy::IsolateAlways)), "{default:?}");
    let chosen = held().opt_in(Some("colocateAlways")).change(config).decision();
    assert!(enrols_as(&chosen, with(Strategy::ColocateAlways)), "{chosen:?}");
}

#[test]
fn a_resolved_enrolment_does_not_change_with_the_configuration_or_the_opt_in_label() {
    let later = |scene: Scene| {
        scene.opt_in(Some("isolateAlways")).change(|scene| {
            scene.config.isolation = Isolation {
                scope: Scope::Namespace,
                from: IsolateFrom::Enrolled,
            };
        })
    };
    for scene in [
        later(held().on(NODE)),
        later(fresh().with_statefulset()),
        later(enrolled()),
    ] {
        assert!(enrols_as(&scene.decision(), default_enrolment()), "{scene:?}");
    }
}

#[test]
fn the_labels_of_the_placeholder_override_the_labels_of_the_run() {
    let resolved = Enrolment {
        strategy: Strategy::ColocateAlways,
        isolation: Isolation {
            scope: Scope::Namespace,
            from: IsolateFrom::Enrolled,
        },
    };
    let scene = held().in_group(UID).on(NODE).change(|scene| {
        let set = scene.statefulset.as_mut().unwrap();
        (set.strategy, set.isolation) = (Some(resolved.strategy), Some(resolved.isolation));
    });
    assert!(enrols_as(&scene.decision(), resolved), "{scene:?}");
}

#[test]
fn the_labels_of_a_run_with_the_group_of_another_run_are_ignored() {
    let scene = held().in_group("old-uid").opt_in(Some("isolateAlways"));
    let own = Enrolment {
        strategy: Strategy::IsolateAlways,
        ..default_enrolment()
    };
    assert!(enrols_as(&scene.decision(), own), "{scene:?}");
}

#[test]
fn invalid_or_missing_labels_of_an_enrolled_run_are_replaced_by_the_default() {
    let scene = enrolled().change(|scene| {
        scene.run.strategy = Some("nonsense".to_owned());
        scene.run.isolation = None;
    });
    assert_eq!(scene.decision(), creation());
}

#[test]
fn the_new_node_is_recorded_when_the_placeholder_is_bound_to_it() {
    let moved = settled().on("node-2");
    let record = node_recorded("node-2");
    assert_eq!(moved.decision(), record);
    let waiting = moved.clone().task_waits("big", 4).plan();
    assert_eq!(waiting, in_seconds(record.clone(), 6));
    let pausing = moved
        .clone()
        .task_waits("big", 60)
        .moved_before(1, 4)
        .counted(0)
        .plan();
    assert_eq!(pausing, in_seconds(record.clone(), 6));
    assert_eq!(moved.clone().task_waits("big", 10).counted(1).decision(), record);
    assert_eq!(
        moved.task_waits("big", 10).counted(0).decision(),
        leaving(Some("node-2"), MISFIT, Some("big"))
    );
}

fn refused(scene: Scene, tasks: &[&str]) -> Scene {
    let tasks: Vec<_> = tasks.iter().map(|task| rejected_task(task)).collect();
    scene.change(|scene| {
        scene.messages.rejection = Some("7".into());
        scene.inputs.rejected_tasks = tasks.into();
    })
}

fn made_room(scene: Scene, count: u32, seconds: i64) -> Scene {
    scene.change(|scene| {
        scene.repeated.yields = Repeated {
            count,
            last: Some(ago(seconds)),
        }
    })
}

#[test]
fn the_rejected_tasks_are_read_after_a_rejection_in_the_namespace() {
    let scene = settled().change(|scene| scene.messages.rejection = Some("7".into()));
    assert_eq!(scene.plan(), without_timer(Decision::Read(Read::RejectedTasks)));
}

#[test]
fn after_a_rejection_that_concerns_no_task_of_the_run_the_plan_looks_again_once() {
    for scene in [settled, || made_room(enrolled().moved_off(), 1, 10)] {
        let usual = scene().plan();
        let again = usual.clone().no_later_than(Duration::from_secs(2));
        assert_eq!(refused(scene(), &[]).plan(), again);
    }
}

#[test]
fn tekton_retries_the_rejected_tasks_when_the_placeholder_has_made_room() {
    let tasks = ["build-test"];
    let event = Event::MadeRoom {
        tasks: vec![rejected_task("build-test")],
    };
    let away = Spec {
        replicas: 0,
        previous_node: Some(String::new()),
        ..spec()
    };
    assert_eq!(
        refused(settled(), &tasks).plan(),
        without_timer(Decision::act("make_room", event, [Action::Placeholder(away)]))
    );
    let ending = refused(enrolled().moved_off().on(NODE).pod_ending(), &tasks);
    assert_eq!(ending.plan(), without_timer(Decision::Wait(Wait::PodEnd)));
    let gone = refused(enrolled().moved_off(), &tasks);
    assert_eq!(gone.plan(), without_timer(retries()));
}

fn retries() -> Decision {
    Decision::act(
        "retry_tasks",
        None,
        [Action::Requeue(Requeue::TaskRuns {
            names: vec!["build-test".into()],
            rejection: "7".into(),
        })],
    )
}

#[test]
fn tekton_retries_again_with_growing_pauses_if_another_pod_took_the_room() {
    let gone = |count, seconds| {
        let scene = refused(enrolled().moved_off(), &["build-test"]);
        let retries = Repeated {
            count,
            last: Some(ago(seconds)),
        };
        scene.change(|scene| scene.repeated.retries = retries).plan()
    };
    assert_eq!(gone(1, 1), in_seconds(Decision::Wait(Wait::Pause), 1));
    assert_eq!(gone(3, 5), in_seconds(Decision::Wait(Wait::Pause), 3));
    assert_eq!(gone(3, 8).decision, retries());
}

#[test]
fn a_placeholder_makes_room_for_ten_seconds_and_twice_as_long_each_time() {
    let away = |count, seconds| made_room(enrolled().moved_off(), count, seconds).plan();
    assert_eq!(away(1, 4), in_seconds(Decision::Wait(Wait::Pause), 6));
    assert_eq!(away(3, 4), in_seconds(Decision::Wait(Wait::Pause), 36));
    assert_eq!(away(1, 10), without_timer(follow()));
}

#[test]
fn the_placeholder_of_a_held_run_makes_no_room() {
    let held = held().with_statefulset().with_pod();
    assert_eq!(refused(held.clone(), &["another"]).plan(), held.plan());
}
