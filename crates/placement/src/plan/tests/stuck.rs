//! Moving off a node and scaling up again: every condition that is not about the reserve.

use super::*;

fn awaiting_tasks(cause: MoveCause, pod: Option<&str>, live: usize) -> Decision {
    Decision::Wait(Wait::Tasks {
        cause,
        pod: pod.map(str::to_owned),
        live,
    })
}

fn settled_for_good() -> Plan {
    without_timer(Decision::Wait(Wait::Settled))
}

/// The scheduler has this number of seconds left.
fn given_time(seconds: u64) -> Plan {
    in_seconds(Decision::Wait(Wait::Scheduler), seconds)
}

fn pausing(seconds: u64) -> Plan {
    in_seconds(Decision::Wait(Wait::Pause), seconds)
}

fn pod_end() -> Plan {
    without_timer(Decision::Wait(Wait::PodEnd))
}

const MISFIT: MoveCause = MoveCause::TaskDoesNotFit;
const STRANDED: MoveCause = MoveCause::PlaceholderDoesNotFit;

#[test]
fn a_task_that_does_not_fit_is_given_the_configured_time() {
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
fn a_task_whose_volume_is_elsewhere_is_given_no_time_unless_it_may_be_short_of_room() {
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
fn the_node_is_given_up_once_nothing_of_the_run_is_found_to_live() {
    let scene = settled().task_waits("big", 10);
    assert_eq!(
        scene.clone().counted(0).plan(),
        without_timer(moving_off(MISFIT, Some("big")))
    );
    let busy = in_seconds(awaiting_tasks(MISFIT, Some("big"), 2), 30);
    assert_eq!(scene.counted(2).plan(), busy);
}

#[test]
fn of_two_tasks_that_do_not_fit_together_the_second_gets_the_place_of_the_first_and_nothing_moves() {
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
fn a_pod_that_is_new_or_waits_for_its_claim_is_no_reason_to_move_off() {
    assert_eq!(settled().task_is_new("new").counted(0).plan(), settled_for_good());
    let with_another = settled().task_is_new("new").task_waits("big", 10).counted(0);
    assert_eq!(with_another.decision(), moving_off(MISFIT, Some("big")));
}

#[test]
fn the_pod_that_waits_longest_is_the_one_that_is_told() {
    let scene = settled()
        .task_waits("late", 11)
        .task_waits("first", 60)
        .counted(0);
    assert_eq!(scene.decision(), moving_off(MISFIT, Some("first")));
}

#[test]
fn a_node_where_no_pod_can_start_is_given_up_at_once_whether_a_task_waits_or_not() {
    for cause in CAUSES {
        let scene = settled().node_is(NodeState::Unfit(cause));
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
fn the_only_node_that_a_claim_can_be_used_on_is_never_given_up() {
    let tied = |scene: Scene| scene.pinned_by_volume("disk");
    let stays = |cause, pod: Option<&str>| {
        Decision::Wait(Wait::Volume {
            cause,
            pod: pod.map(str::to_owned),
            claim: "disk".to_owned(),
        })
    };
    let cordoned = MoveCause::Node(Cause::Cordoned);
    let scene = settled().node_is(NodeState::Unfit(Cause::Cordoned)).counted(0);
    assert_eq!(tied(scene.clone()).plan(), without_timer(stays(cordoned, None)));
    let waiting = tied(scene.task_waits("next", 99));
    assert_eq!(waiting.plan(), in_seconds(stays(cordoned, Some("next")), 30));
    let big = tied(settled().task_waits("big", 10).counted(0));
    assert_eq!(big.plan(), in_seconds(stays(MISFIT, Some("big")), 30));
}

#[test]
fn tasks_that_still_live_on_an_unfit_node_are_waited_for() {
    for cause in CAUSES {
        let scene = settled().node_is(NodeState::Unfit(cause)).counted(1);
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
fn a_fit_node_and_one_that_nobody_looked_at_are_kept() {
    for state in [NodeState::Fit, NodeState::Unknown] {
        assert_eq!(
            settled().node_is(state).counted(0).plan(),
            settled_for_good(),
            "{state:?}"
        );
    }
}

#[test]
fn with_moving_switched_off_a_stuck_run_stays_stuck() {
    let off = |scene: Scene| {
        scene
            .counted(0)
            .change(|scene| scene.config.move_after = None)
            .plan()
    };
    assert_eq!(off(settled().task_waits("big", 9999)), settled_for_good());
    assert_eq!(
        off(settled().node_is(NodeState::Unfit(Cause::Gone))),
        settled_for_good()
    );
    assert_eq!(
        off(enrolled().placeholder_unschedulable(9999).task_waits("big", 9999)),
        settled_for_good()
    );
}

#[test]
fn each_move_keeps_longer_from_the_next_one_up_to_five_minutes() {
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
    let many = settled().task_waits("big", 9999).moved_before(u32::MAX, 0).plan();
    assert_eq!(many, pausing(300));
}

#[test]
fn the_pause_counts_from_the_last_move_and_holds_for_unfit_nodes_too() {
    let unfit = || settled().node_is(NodeState::Unfit(Cause::Cordoned)).counted(0);
    assert_eq!(unfit().moved_before(2, 13).plan(), pausing(7));
    let cause = MoveCause::Node(Cause::Cordoned);
    assert_eq!(unfit().moved_before(2, 20).decision(), moving_off(cause, None));
    let slower = settled().task_waits("big", 1).moved_before(1, 9).plan();
    assert_eq!(slower, given_time(9));
}

#[test]
fn moves_are_counted_with_the_time_of_the_last() {
    let twice = Repeated::default().and_one(ago(60)).and_one(now());
    assert_eq!((twice.count, twice.last), (2, Some(now())));
}

#[test]
fn a_placeholder_that_finds_no_node_itself_is_given_up_while_a_task_waits() {
    let scene = enrolled().placeholder_unschedulable(10).task_is_new("task");
    assert_eq!(scene.plan(), without_timer(Decision::Read(Read::Tasks)));
    assert_eq!(
        scene.clone().counted(0).decision(),
        leaving(None, STRANDED, Some("task"))
    );
    assert_eq!(
        enrolled().placeholder_unschedulable(4).task_is_new("task").plan(),
        given_time(6)
    );
    let earlier = enrolled()
        .placeholder_unschedulable(20)
        .task_waits("task", 10)
        .counted(0);
    assert_eq!(earlier.decision(), leaving(None, STRANDED, Some("task")));
    let later = enrolled()
        .placeholder_unschedulable(10)
        .task_waits("task", 20)
        .counted(0);
    assert_eq!(later.decision(), leaving(None, MISFIT, Some("task")));
}

#[test]
fn a_placeholder_without_a_node_waits_when_nobody_else_does() {
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
fn an_evicted_placeholder_waits_while_its_group_lives_on_the_cordoned_node() {
    let evicted = enrolled()
        .placeholder_unschedulable(9999)
        .node_is(NodeState::Unfit(Cause::Cordoned));
    assert_eq!(evicted.clone().counted(1).plan(), settled_for_good());
    let waiting = evicted.task_waits("next", 10).counted(1).decision();
    assert_eq!(waiting, awaiting_tasks(STRANDED, Some("next"), 1));
}

#[test]
fn a_placeholder_between_two_pods_is_left_to_its_stateful_set() {
    let scene = settled().node_is(NodeState::Unfit(Cause::Gone)).counted(0);
    assert_eq!(scene.clone().pod_ending().plan(), settled_for_good());
    assert_eq!(scene.change(|scene| scene.pod = None).plan(), settled_for_good());
}

#[test]
fn after_moving_off_the_placeholder_follows_when_no_task_waits_any_more() {
    assert_eq!(enrolled().moved_off().plan(), without_timer(follow()));
    assert_eq!(
        enrolled().moved_off().counted(3).moved_before(5, 0).plan(),
        without_timer(follow())
    );
    let off = enrolled()
        .moved_off()
        .change(|scene| scene.config.move_after = None);
    assert_eq!(off.plan(), without_timer(follow()));
}

#[test]
fn the_old_placeholder_pod_is_gone_or_going_before_the_next_one_is_asked_for() {
    let there = || enrolled().moved_off().on(NODE);
    assert_eq!(there().plan(), pod_end());
    assert_eq!(there().pod_ending().plan(), without_timer(follow()));
    let unfit = there().node_is(NodeState::Unfit(Cause::Gone)).counted(0);
    assert_eq!(unfit.plan(), pod_end());
}

#[test]
fn as_long_as_a_task_waits_unbound_the_placeholder_stays_away() {
    let away = || enrolled().moved_off();
    assert_eq!(
        away().task_is_new("new").plan(),
        without_timer(Decision::Wait(Wait::Scheduler))
    );
    let quiet = away().task_waits("big", 20).moved_before(1, 4);
    assert_eq!(quiet.plan(), given_time(6));
    assert_eq!(
        away().task_waits("big", 20).moved_before(1, 10).decision(),
        Decision::Read(Read::Tasks)
    );
    let beside = away().task_waits("big", 20).counted(1).plan();
    assert_eq!(beside, in_seconds(awaiting_tasks(MISFIT, Some("big"), 1), 30));
}

#[test]
fn a_task_that_fits_no_node_is_told_with_what_it_asks_for_and_the_largest_node() {
    let scene = enrolled()
        .moved_off()
        .task_waits("big", 60)
        .counted(0)
        .change(|scene| {
            scene.nodes = vec![node("small", "cpu=2"), node("large", "cpu=8")];
        });
    let plan = scene.plan();
    let Decision::Wait(Wait::Fit {
        pod,
        asks,
        message,
        largest,
    }) = &plan.decision
    else {
        panic!("{plan:?}");
    };
    assert_eq!(
        (pod.as_str(), asks, message.as_str()),
        ("big", &amounts("cpu=12"), NO_NODE)
    );
    assert_eq!(largest.as_ref().unwrap().to_string(), "large has cpu 8 of 12");
    assert_eq!(plan.again, None);
}

/// The first task of a run whose placeholder made room may preempt other pods, which takes a while.
#[test]
fn a_task_that_came_after_the_run_had_left_is_given_as_much_time_as_any() {
    let came = |seconds| {
        enrolled()
            .moved_off()
            .task_waits("big", seconds)
            .counted(0)
            .plan()
    };
    assert_eq!(came(4), given_time(6));
    assert!(matches!(came(10).decision, Decision::Wait(Wait::Fit { .. })));
}

#[test]
fn a_placeholder_that_somebody_scaled_down_comes_back() {
    let scaled = settled().moved_off();
    assert_eq!(scaled.decision(), follow());
    let oddly = scaled.spec(|spec| spec.replicas = -1);
    assert_eq!(oddly.decision(), follow());
}

#[test]
fn the_new_node_is_written_down_once_the_placeholder_is_there() {
    let moved = settled().on("node-2");
    let record = node_recorded("node-2");
    assert_eq!(moved.decision(), record);
    let waiting = moved.clone().task_waits("big", 4).plan();
    assert_eq!(waiting, in_seconds(record.clone(), 6));
    let pausing = moved.clone().task_waits("big", 60).moved_before(1, 4).plan();
    assert_eq!(pausing, in_seconds(record.clone(), 6));
    assert_eq!(moved.clone().task_waits("big", 10).counted(1).decision(), record);
    assert_eq!(
        moved.task_waits("big", 10).counted(0).decision(),
        leaving(Some("node-2"), MISFIT, Some("big"))
    );
}

#[test]
fn a_run_that_is_not_enrolled_or_has_no_usable_placeholder_lets_nothing_go() {
    let stuck = |scene: Scene| scene.task_waits("big", 99).counted(0).decision();
    assert_eq!(stuck(fresh().on(NODE)), labelled(None));
    assert_eq!(stuck(enrolled()), creation());
    assert_eq!(
        stuck(enrolled().on(NODE).set_deleting()),
        Decision::Wait(Wait::OldStatefulSet)
    );
    assert_eq!(
        stuck(enrolled().on(NODE).foreign_set()),
        Decision::Wait(Wait::OldStatefulSet)
    );
}

#[test]
fn a_count_tells_since_when_it_is_quiet() {
    let census = |live, quiet_since| Census { live, quiet_since };
    let table = [
        (None, 1, Some(ago(5)), census(1, None)),
        (None, 0, Some(ago(5)), census(0, Some(ago(5)))),
        (None, 0, None, census(0, None)),
        (Some(census(2, None)), 0, Some(ago(5)), census(0, Some(now()))),
        (Some(census(2, None)), 0, None, census(0, Some(now()))),
        (Some(census(0, Some(ago(30)))), 0, None, census(0, Some(ago(30)))),
        (
            Some(census(0, Some(ago(30)))),
            0,
            Some(ago(5)),
            census(0, Some(ago(5))),
        ),
        (Some(census(0, Some(ago(30)))), 1, Some(ago(5)), census(1, None)),
    ];
    for (before, live, ended, expected) in table {
        assert_eq!(
            Census::after(before, live, ended, now()),
            expected,
            "{before:?} {live} {ended:?}"
        );
    }
}

fn waking(wake: Wake) -> Decision {
    let names = vec!["old".to_owned()];
    Decision::act(
        "wake_tasks",
        None,
        [Action::Requeue(Requeue::Pods { names, wake })],
    )
}

#[test]
fn pods_that_were_set_aside_before_the_run_moved_off_are_woken_once() {
    let asleep = |generation: Option<i64>| {
        let woken = generation.map(requeued_for);
        enrolled()
            .moved_off()
            .task_waits("old", 5)
            .task_is_new("new")
            .change(|scene| scene.waiting[0].woken = woken)
    };
    let wake = waking(requeued_for(GENERATION));
    assert_eq!(asleep(None).plan(), without_timer(wake.clone()));
    assert_eq!(asleep(Some(GENERATION - 2)).plan(), without_timer(wake.clone()));
    assert_ne!(asleep(Some(GENERATION)).decision(), wake);
    let still_there = asleep(None).change(|scene| scene.pod = Some(there()));
    assert_eq!(still_there.plan(), pod_end());
}

#[test]
fn a_pod_that_was_woken_while_another_task_ran_is_woken_again_when_that_one_has_ended() {
    let asleep = |since: Option<i64>| {
        enrolled()
            .moved_off()
            .task_waits("old", 60)
            .change(|scene| scene.moves = Repeated::default().and_one(ago(50)))
            .change(|scene| {
                scene.waiting[0].woken = Some(Wake {
                    generation: GENERATION,
                    since,
                });
            })
    };
    let counted = |since, live, ended| asleep(since).census(live, Some(ago(ended)));
    let ended = Some(ago(20).as_second());
    let wake = waking(Wake {
        generation: GENERATION,
        since: ended,
    });
    assert_eq!(asleep(None).decision(), Decision::Read(Read::Tasks));
    assert_eq!(counted(None, 0, 20).decision(), wake);
    let is_told = |scene: Scene| matches!(scene.decision(), Decision::Wait(Wait::Fit { .. }));
    assert!(is_told(counted(ended, 0, 20)), "woken for that already");
    assert!(is_told(counted(None, 0, 55)), "it ended before the run moved off");
    assert!(is_told(counted(None, 0, 50)), "it ended as the run moved off");
}

#[test]
fn assistants_on_the_node_that_was_left_are_deleted_before_anything_goes_elsewhere() {
    let assistant = |name: &str, node: Option<&str>| AssistantPod {
        name: name.to_owned(),
        uid: format!("{name}-uid"),
        node: node.map(str::to_owned),
    };
    let assistants = vec![
        assistant("here", Some(NODE)),
        assistant("behind", Some("old")),
        assistant("nowhere", None),
    ];
    let away = |left: &str| {
        let left = Some(left.to_owned());
        let scene = enrolled().moved_off().spec(|spec| spec.left = left);
        scene.change(|scene| scene.inputs.assistants = assistants.clone().into())
    };
    let back = |left: &str| {
        Action::Placeholder(Spec {
            left: Some(left.to_owned()),
            ..spec()
        })
    };
    let delete = Action::Delete(Target::Assistant {
        name: "behind".to_owned(),
        uid: "behind-uid".to_owned(),
    });
    assert_eq!(
        away("old").decision(),
        Decision::act("follow", None, [delete.clone(), back("old")])
    );
    let made_room = away("");
    assert_eq!(made_room.decision(), Decision::act("follow", None, [back("")]));
    let asleep = away("old")
        .task_waits("old", 5)
        .change(|scene| scene.waiting[0].woken = None);
    let Decision::Act(step) = asleep.decision() else {
        panic!("{asleep:?}")
    };
    assert_eq!(step.actions[0], delete);
    assert_eq!(
        Decision::act(step.name, None, &step.actions[1..]),
        waking(requeued_for(GENERATION))
    );
}

/// The scheduler of Kubernetes 1.36 does not retry the pod when the pods that keep it away end.
#[test]
fn a_pod_that_others_keep_away_is_woken_again_every_minute() {
    let kept_away = |waits: i64, since: Option<i64>| {
        enrolled()
            .moved_off()
            .task_waits("old", waits)
            .change(|scene| scene.moves = Repeated::default().and_one(ago(50)))
            .counted(0)
            .change(|scene| {
                let pod = &mut scene.waiting[0];
                pod.woken = Some(Wake {
                    generation: GENERATION,
                    since,
                });
                pod.unschedulable.as_mut().unwrap().message =
                    "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules.".to_owned();
            })
    };
    let woken = |since: i64| {
        waking(Wake {
            generation: GENERATION,
            since: Some(since),
        })
    };
    let minute = |waits: i64, minutes: i64| ago(waits).as_second() + minutes * 60;
    let is_told = |scene: Scene| {
        let plan = scene.plan();
        matches!(plan.decision, Decision::Wait(Wait::Fit { .. }))
            && plan.again == Some(Duration::from_mins(1))
    };
    assert!(is_told(kept_away(59, None)));
    assert_eq!(kept_away(61, None).decision(), woken(minute(61, 1)));
    assert!(is_told(kept_away(119, Some(minute(119, 1)))));
    assert_eq!(
        kept_away(120, Some(minute(120, 1))).decision(),
        woken(minute(120, 2))
    );
}

/// Schedulers before Kubernetes 1.36 do not retry a pod whose label changes.
#[test]
fn a_pod_that_still_misses_its_group_long_after_it_was_woken_is_woken_by_the_placeholder() {
    let asleep = |moved, ended, message: &str| {
        let message = message.to_owned();
        enrolled()
            .moved_off()
            .task_waits("old", 60)
            .change(|scene| scene.moves = Repeated::default().and_one(ago(moved)))
            .quiet_for(ended)
            .change(|scene| {
                let pod = &mut scene.waiting[0];
                pod.woken = Some(Wake {
                    generation: GENERATION,
                    since: Some(i64::MAX),
                });
                pod.unschedulable.as_mut().unwrap().message = message;
            })
    };
    assert_eq!(asleep(15, 15, ELSEWHERE).decision(), follow());
    assert_eq!(asleep(11, 30, ELSEWHERE).plan(), given_time(4));
    assert_eq!(asleep(60, 12, ELSEWHERE).plan(), given_time(3));
    assert_ne!(asleep(60, 60, NO_NODE).decision(), follow());
    assert_ne!(asleep(60, 60, ELSEWHERE).counted(1).decision(), follow());
}

fn there() -> PlaceholderPod {
    settled().pod.unwrap()
}
