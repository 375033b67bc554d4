//! Moving off a node, while a run is held and while it runs: every condition that is not about the reserve.

use super::*;

#[test]
fn a_run_moves_only_after_a_task_is_unschedulable_for_move_after() {
    let waits = |seconds| settled().task_waits("big", seconds).plan();
    assert_eq!(waits(0), given_time(10));
    assert_eq!(waits(7), given_time(3));
    assert_eq!(waits(10), without_timer(Decision::Read(Read::Tasks)));
    let patient = settled()
        .task_waits("big", 10)
        .change(|scene| scene.config.move_after = Some(Duration::from_mins(1)));
    assert_eq!(patient.plan(), given_time(50));
}

#[test]
fn a_task_whose_volume_is_on_another_node_moves_its_run_at_once_unless_room_is_short() {
    let waits = |message: &str| {
        let scene = settled().task_waits("big", 0).change(|scene| {
            let pod = scene.waiting.last_mut().unwrap();
            pod.unschedulable.as_mut().unwrap().message = message.to_owned();
        });
        scene.plan()
    };
    let elsewhere = "0/4 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, 3 node(s) didn't match \
                     pod affinity rules.";
    assert_eq!(waits(elsewhere), without_timer(Decision::Read(Read::Tasks)));
    for short_of_room in [
        "1 Insufficient cpu",
        "1 Too many pods",
        "1 node(s) didn't have free ports for the requested pod ports",
        "1 node(s) didn't match pod anti-affinity rules",
    ] {
        let also_short = elsewhere.replace(", 3", &format!(", {short_of_room}, 2"));
        let patient = given_time(10);
        assert_eq!(waits(&also_short), patient, "{also_short}");
    }
}

#[test]
fn a_task_whose_volume_does_not_exist_yet_does_not_move_its_run() {
    let waits = settled().task_waits("big", 300).change(|scene| {
        let pod = scene.waiting.last_mut().unwrap();
        pod.unschedulable.as_mut().unwrap().message =
            "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found".to_owned();
    });
    assert_eq!(waits.clone().counted(0).plan(), settled_for_good());
    let with_another = waits.task_waits("other", 10).counted(0);
    assert_eq!(with_another.decision(), moving_off(MISFIT, Some("other")));
}

#[test]
fn a_node_is_given_up_when_no_task_of_the_run_is_on_it() {
    let scene = settled().task_waits("big", 10);
    assert_eq!(
        scene.clone().counted(0).plan(),
        without_timer(moving_off(MISFIT, Some("big")))
    );
    let busy = in_seconds(awaiting_tasks(MISFIT, Some("big"), 2), 30);
    assert_eq!(scene.counted(2).plan(), busy);
}

#[test]
fn a_task_waits_for_a_running_task_of_its_run_and_then_for_move_after() {
    let second = || settled().task_waits("second", 300);
    assert_eq!(
        second().counted(1).decision(),
        awaiting_tasks(MISFIT, Some("second"), 1)
    );
    assert_eq!(second().quiet_for(0).plan(), given_time(10));
    assert_eq!(second().quiet_for(9).plan(), given_time(1));
    assert_eq!(
        second().quiet_for(10).decision(),
        moving_off(MISFIT, Some("second"))
    );
}

#[test]
fn a_pod_that_is_not_marked_as_unschedulable_does_not_move_its_run() {
    assert_eq!(settled().task_is_new("new").counted(0).plan(), settled_for_good());
    let with_another = settled().task_is_new("new").task_waits("big", 10).counted(0);
    assert_eq!(with_another.decision(), moving_off(MISFIT, Some("big")));
}

#[test]
fn the_event_of_moving_off_names_the_pod_that_waits_longest() {
    let scene = settled()
        .task_waits("late", 11)
        .task_waits("first", 60)
        .counted(0);
    assert_eq!(scene.decision(), moving_off(MISFIT, Some("first")));
}

#[test]
fn an_unusable_node_is_given_up_at_once_with_or_without_a_waiting_task() {
    for cause in CAUSES {
        let scene = settled().node_is(NodeState::Unusable(cause));
        let cause = MoveCause::Node(cause);
        assert_eq!(
            scene.plan(),
            without_timer(Decision::Read(Read::Tasks)),
            "{cause:?}"
        );
        assert_eq!(
            scene.clone().counted(0).decision(),
            moving_off(cause, None),
            "{cause:?}"
        );
        assert_eq!(
            scene.clone().quiet_for(0).decision(),
            moving_off(cause, None),
            "{cause:?}"
        );
        let waiting = scene.task_waits("next", 0).quiet_for(0);
        assert_eq!(waiting.decision(), moving_off(cause, Some("next")), "{cause:?}");
    }
}

#[test]
fn a_run_stays_on_the_only_node_that_can_use_its_pvc() {
    let tied = |scene: Scene| scene.pinned_by_volume("disk");
    let stays = |cause, pod: Option<&str>| {
        Decision::Wait(Wait::Volume {
            cause,
            pod: pod.map(str::to_owned),
            claim: "disk".to_owned(),
        })
    };
    let cordoned = MoveCause::Node(Cause::Cordoned);
    let scene = settled().node_is(NodeState::Unusable(Cause::Cordoned)).counted(0);
    assert_eq!(tied(scene.clone()).plan(), without_timer(stays(cordoned, None)));
    let waiting = tied(scene.task_waits("next", 99));
    assert_eq!(waiting.plan(), in_seconds(stays(cordoned, Some("next")), 30));
    let big = tied(settled().task_waits("big", 10).counted(0));
    assert_eq!(big.plan(), in_seconds(stays(MISFIT, Some("big")), 30));
}

#[test]
fn a_run_waits_for_its_tasks_on_an_unusable_node() {
    for cause in CAUSES {
        let scene = settled().node_is(NodeState::Unusable(cause)).counted(1);
        let cause = MoveCause::Node(cause);
        assert_eq!(
            scene.plan(),
            without_timer(awaiting_tasks(cause, None, 1)),
            "{cause:?}"
        );
        let waiting = scene.task_waits("next", 99).plan();
        assert_eq!(
            waiting,
            in_seconds(awaiting_tasks(cause, Some("next"), 1), 30),
            "{cause:?}"
        );
    }
}

#[test]
fn a_run_keeps_a_usable_or_unknown_node() {
    for state in [NodeState::Usable, NodeState::Unknown] {
        assert_eq!(
            settled().node_is(state).counted(0).plan(),
            settled_for_good(),
            "{state:?}"
        );
    }
}

#[test]
fn no_run_moves_if_moves_are_disabled() {
    let off = |scene: Scene| {
        scene
            .counted(0)
            .change(|scene| scene.config.move_after = None)
            .plan()
    };
    assert_eq!(off(settled().task_waits("big", 9999)), settled_for_good());
    assert_eq!(
        off(settled().node_is(NodeState::Unusable(Cause::Gone))),
        settled_for_good()
    );
    assert_eq!(
        off(enrolled().placeholder_unschedulable(9999).task_waits("big", 9999)),
        settled_for_good()
    );
}

#[test]
fn the_pause_after_each_move_doubles_up_to_five_minutes() {
    let pauses: Vec<_> = (0..8)
        .map(|count| {
            let scene = settled().task_waits("big", 9999).counted(0);
            scene
                .moved_before(count, 0)
                .plan()
                .again
                .unwrap_or_default()
                .as_secs()
        })
        .collect();
    assert_eq!(pauses, [0, 10, 20, 40, 80, 160, 300, 300]);
    let many = settled()
        .task_waits("big", 9999)
        .moved_before(u32::MAX, 0)
        .counted(0);
    assert_eq!(many.plan(), pausing(300));
}

#[test]
fn the_pause_counts_from_the_last_move_and_applies_to_unusable_nodes() {
    let unfit = || settled().node_is(NodeState::Unusable(Cause::Cordoned)).counted(0);
    assert_eq!(unfit().moved_before(2, 13).plan(), pausing(7));
    let cause = MoveCause::Node(Cause::Cordoned);
    assert_eq!(unfit().moved_before(2, 20).decision(), moving_off(cause, None));
    let slower = settled().task_waits("big", 1).moved_before(1, 9).plan();
    assert_eq!(slower, given_time(9));
}

#[test]
fn a_task_that_labels_or_taints_of_the_node_exclude_moves_its_run_at_once() {
    let excluded = || {
        settled()
            .task_waits("room", 4)
            .task_waits("arm", 1)
            .change(|scene| scene.waiting[1].excludes_node = true)
    };
    assert_eq!(excluded().plan(), without_timer(Decision::Read(Read::Tasks)));
    assert_eq!(
        excluded().counted(0).decision(),
        leaving(Some("node-1"), MISFIT, Some("room"))
    );
    assert_eq!(excluded().counted(0).moved_before(1, 4).plan(), pausing(6));
    let bound_soon = settled().task_waits("room", 4).task_is_new("arm");
    let bound_soon = bound_soon.change(|scene| scene.waiting[1].excludes_node = true);
    assert_eq!(
        bound_soon.plan(),
        given_time(6),
        "the scheduler has not tried the pod"
    );
}

#[test]
fn the_count_of_moves_has_the_time_of_the_last_move() {
    let twice = Repeated::default().incremented(ago(60)).incremented(now());
    assert_eq!((twice.count, twice.last), (2, Some(now())));
}

#[test]
fn an_unschedulable_placeholder_is_scaled_down_while_a_task_waits() {
    let scene = enrolled().placeholder_unschedulable(10).task_is_new("task");
    assert_eq!(scene.plan(), without_timer(Decision::Read(Read::Tasks)));
    assert_eq!(
        scene.clone().counted(0).decision(),
        leaving(None, DOES_NOT_FIT, Some("task"))
    );
    assert_eq!(
        enrolled().placeholder_unschedulable(4).task_is_new("task").plan(),
        given_time(6)
    );
    let earlier = enrolled()
        .placeholder_unschedulable(20)
        .task_waits("task", 10)
        .counted(0);
    assert_eq!(earlier.decision(), leaving(None, DOES_NOT_FIT, Some("task")));
    let later = enrolled()
        .placeholder_unschedulable(10)
        .task_waits("task", 20)
        .counted(0);
    assert_eq!(later.decision(), leaving(None, MISFIT, Some("task")));
}

#[test]
fn a_placeholder_stays_if_no_task_waits_or_the_scheduler_has_not_tried_it() {
    assert_eq!(
        enrolled().placeholder_unschedulable(9999).counted(0).plan(),
        settled_for_good()
    );
    assert_eq!(
        enrolled().with_pod().task_is_new("task").counted(0).plan(),
        settled_for_good()
    );
}

#[test]
fn an_evicted_placeholder_stays_while_tasks_of_its_run_are_on_the_cordoned_node() {
    let evicted = enrolled()
        .placeholder_unschedulable(9999)
        .node_is(NodeState::Unusable(Cause::Cordoned));
    assert_eq!(evicted.clone().counted(1).plan(), settled_for_good());
    let waiting = evicted.task_waits("next", 10).counted(1).decision();
    assert_eq!(waiting, awaiting_tasks(DOES_NOT_FIT, Some("next"), 1));
}

#[test]
fn a_terminating_or_missing_placeholder_pod_is_left_to_the_statefulset_controller() {
    let scene = settled().node_is(NodeState::Unusable(Cause::Gone)).counted(0);
    assert_eq!(scene.clone().pod_ending().plan(), settled_for_good());
    assert_eq!(scene.change(|scene| scene.pod = None).plan(), settled_for_good());
}

#[test]
fn a_run_that_is_not_enrolled_or_has_no_usable_placeholder_does_not_move() {
    let stuck = |scene: Scene| scene.task_waits("big", 99).counted(0).decision();
    assert_eq!(stuck(fresh().on(NODE)), labelled(None));
    assert_eq!(stuck(enrolled()), creation());
    assert_eq!(
        stuck(enrolled().on(NODE).statefulset_deleting()),
        Decision::Wait(Wait::OldStatefulSet)
    );
    assert_eq!(
        stuck(enrolled().on(NODE).foreign_statefulset()),
        Decision::Wait(Wait::OldStatefulSet)
    );
}

#[test]
fn a_task_count_has_the_time_since_which_no_task_is_on_the_node() {
    let task_count = |live, quiet_since| TaskCount { live, quiet_since };
    let table = [
        (None, 1, Some(ago(5)), task_count(1, None)),
        (None, 0, Some(ago(5)), task_count(0, Some(ago(5)))),
        (None, 0, None, task_count(0, None)),
        (None, 0, Some(ago(-60)), task_count(0, None)),
        (
            Some(task_count(2, None)),
            0,
            Some(ago(5)),
            task_count(0, Some(now())),
        ),
        (Some(task_count(2, None)), 0, None, task_count(0, Some(now()))),
        (
            Some(task_count(0, Some(ago(30)))),
            0,
            None,
            task_count(0, Some(ago(30))),
        ),
        (
            Some(task_count(0, Some(ago(30)))),
            0,
            Some(ago(5)),
            task_count(0, Some(ago(5))),
        ),
        (
            Some(task_count(0, Some(ago(30)))),
            1,
            Some(ago(5)),
            task_count(1, None),
        ),
    ];
    for (before, live, ended, expected) in table {
        assert_eq!(
            TaskCount::after(before, live, ended, now()),
            expected,
            "{before:?} {live} {ended:?}"
        );
    }
}

#[test]
fn a_held_run_moves_off_an_unusable_node_before_its_release() {
    for cause in CAUSES {
        let held = held().on(NODE).node_is(NodeState::Unusable(cause));
        assert_eq!(held.decision(), Decision::Read(Read::Tasks), "{cause:?}");
        let expected = moving_off(MoveCause::Node(cause), None);
        assert_eq!(held.counted(0).decision(), expected, "{cause:?}");
    }
}

#[test]
fn a_held_run_that_moved_off_is_released_for_its_new_node() {
    assert_eq!(held().moved_off().decision(), follow());
    assert_eq!(held().moved_off().on(NODE).plan(), with_timer(await_node(), SOON));
    assert_eq!(held().moved_off().on(NODE).pod_ending().decision(), follow());
    let found = held().on(NODE).node_is(NodeState::Usable).moved_before(1, 2);
    assert_eq!(found.decision(), released(ReleaseCause::NodeFound, Some(NODE)));
}

#[test]
fn a_held_run_pauses_between_unusable_nodes_and_is_released_at_its_deadline() {
    let unfit = || {
        held()
            .on(NODE)
            .node_is(NodeState::Unusable(Cause::Tainted))
            .moved_before(3, 10)
    };
    assert_eq!(unfit().plan(), in_seconds(await_node(), 30));
    assert_eq!(unfit().created_ago(590).plan(), in_seconds(await_node(), 10));
    for late in [unfit(), unfit().counted(0), held().moved_off()] {
        let release = late.created_ago(600).decision();
        let Decision::Act(Step {
            event: Some(Event::Released { cause, .. }),
            ..
        }) = release
        else {
            panic!("{release:?}")
        };
        assert_eq!(cause, ReleaseCause::Deadline);
    }
}

#[test]
fn a_held_run_that_cannot_move_is_released_for_an_unusable_node() {
    let unfit = || held().on(NODE).node_is(NodeState::Unusable(Cause::Cordoned));
    let release = released(ReleaseCause::NodeFound, Some(NODE));
    let off = unfit().counted(0).change(|scene| scene.config.move_after = None);
    assert_eq!(off.decision(), release);
    assert_eq!(unfit().counted(1).decision(), release);
}

#[test]
fn release_when_created_does_not_release_a_run_for_an_unusable_node() {
    let created = |scene: Scene| {
        scene
            .change(|scene| scene.config.release_when = ReleaseWhen::Created)
            .decision()
    };
    let unfit = held().on(NODE).node_is(NodeState::Unusable(Cause::Gone));
    assert_eq!(created(unfit), Decision::Read(Read::Tasks));
    assert_eq!(created(held().moved_off()), follow());
}
