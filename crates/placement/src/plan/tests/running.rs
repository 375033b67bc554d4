//! Running runs: the strategy that they resolve to, the record of their node, and room in a quota of pods.

use super::*;

#[test]
fn a_run_that_runs_and_was_never_in_its_group_is_left_alone() {
    for scene in [fresh(), fresh().in_group("old-uid")] {
        assert_eq!(scene.decision(), Decision::Wait(Wait::LabelledTooLate));
    }
}

#[test]
fn a_running_run_with_a_placeholder_that_lost_its_group_gets_it_back() {
    assert_eq!(fresh().on(NODE).decision(), labelled(None));
}

#[test]
fn a_run_that_somebody_else_released_before_it_was_enrolled_loses_its_placeholder() {
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
fn an_enrolled_run_without_placeholder_gets_one_back() {
    assert_eq!(enrolled().decision(), creation());
}

#[test]
fn an_enrolled_run_whose_node_is_written_down_is_settled() {
    let scene = enrolled()
        .on(NODE)
        .change(|scene| scene.run.node = Some(NODE.to_owned()));
    assert_eq!(scene.plan(), without_timer(Decision::Wait(Wait::Settled)));
}

#[test]
fn a_node_that_is_new_or_not_yet_known_is_written_down() {
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
fn a_placeholder_that_is_between_two_pods_leaves_the_node_as_it_is() {
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
fn a_running_run_waits_for_a_placeholder_on_its_way_out() {
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
fn the_opt_in_label_chooses_and_the_configuration_fills_in() {
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
fn what_was_resolved_once_outlives_a_change_of_the_configuration_and_of_the_label() {
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
fn the_placeholders_labels_come_before_the_runs_own() {
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
fn labels_that_came_with_a_foreign_group_are_not_believed() {
    let scene = held().in_group("old-uid").opt_in(Some("isolateAlways"));
    let anew = Enrolment {
        strategy: Strategy::IsolateAlways,
        ..default_enrolment()
    };
    assert!(enrols_as(&scene.decision(), anew), "{scene:?}");
}

#[test]
fn labels_that_mean_nothing_are_resolved_anew() {
    let scene = enrolled().change(|scene| {
        scene.run.strategy = Some("nonsense".to_owned());
        scene.run.isolation = None;
    });
    assert_eq!(scene.decision(), creation());
}

#[test]
fn the_new_node_is_written_down_once_the_placeholder_is_there() {
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
        scene.rejection = Some("7".into());
        scene.inputs.rejected_tasks = tasks.into();
    })
}

fn made_room(scene: Scene, count: u32, seconds: i64) -> Scene {
    scene.change(|scene| {
        scene.yields = Repeated {
            count,
            last: Some(ago(seconds)),
        }
    })
}

#[test]
fn a_refusal_in_the_namespace_is_looked_into() {
    let scene = settled().change(|scene| scene.rejection = Some("7".into()));
    assert_eq!(scene.plan(), without_timer(Decision::Read(Read::RejectedTasks)));
}

#[test]
fn one_that_is_anothers_changes_nothing() {
    assert_eq!(refused(settled(), &[]).plan(), settled().plan());
    let away = || made_room(enrolled().moved_off(), 1, 10);
    assert_eq!(refused(away(), &[]).plan(), away().plan());
}

#[test]
fn the_placeholder_makes_room_and_when_it_is_gone_tekton_tries_again() {
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
fn it_is_told_so_again_with_growing_pauses_if_another_took_the_place() {
    let gone = |count, seconds| {
        let scene = refused(enrolled().moved_off(), &["build-test"]);
        let retries = Repeated {
            count,
            last: Some(ago(seconds)),
        };
        scene.change(|scene| scene.retries = retries).plan()
    };
    assert_eq!(gone(1, 1), in_seconds(Decision::Wait(Wait::Pause), 1));
    assert_eq!(gone(3, 5), in_seconds(Decision::Wait(Wait::Pause), 3));
    assert_eq!(gone(3, 8).decision, retries());
}

#[test]
fn it_stays_away_for_ten_seconds_and_each_time_twice_as_long() {
    let away = |count, seconds| made_room(enrolled().moved_off(), count, seconds).plan();
    assert_eq!(away(1, 4), in_seconds(Decision::Wait(Wait::Pause), 6));
    assert_eq!(away(3, 4), in_seconds(Decision::Wait(Wait::Pause), 36));
    assert_eq!(away(1, 10), without_timer(follow()));
}

#[test]
fn a_held_run_has_no_task_that_could_be_refused() {
    let held = held().with_statefulset().with_pod();
    assert_eq!(refused(held.clone(), &["another"]).plan(), held.plan());
}
