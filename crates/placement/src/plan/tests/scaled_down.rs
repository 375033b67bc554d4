//! A placeholder that is scaled down: waiting pods are requeued, and the placeholder is scaled up again.

use super::*;

#[test]
fn a_placeholder_returns_after_a_move_if_no_task_waits() {
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
fn a_placeholder_returns_only_if_its_old_pod_is_terminating_or_deleted() {
    let there = || enrolled().moved_off().on(NODE);
    assert_eq!(there().plan(), pod_end());
    assert_eq!(there().pod_ending().plan(), without_timer(follow()));
    let unfit = there().node_is(NodeState::Unusable(Cause::Gone)).counted(0);
    assert_eq!(unfit.plan(), pod_end());
}

#[test]
fn a_placeholder_stays_scaled_down_while_a_task_waits_for_a_node() {
    let away = || enrolled().moved_off();
    assert_eq!(
        away().task_is_new("new").plan(),
        without_timer(Decision::Wait(Wait::Scheduler))
    );
    let quiet = away().task_waits("big", 20).moved_before(1, 4);
    assert_eq!(quiet.decision(), Decision::Read(Read::Tasks));
    assert_eq!(quiet.counted(0).plan(), given_time(6));
}

#[test]
fn the_placeholder_joins_a_task_that_is_bound_while_other_tasks_wait() {
    let beside = || enrolled().moved_off().task_waits("big", 1).counted(1);
    assert_eq!(beside().decision(), follow());
    let made_room = beside().change(|scene| scene.repeated.yields = Repeated::default().incremented(ago(4)));
    assert_eq!(made_room.plan(), pausing(6));
}

#[test]
fn the_wait_of_a_task_that_fits_no_node_names_its_requests_and_the_largest_node() {
    let scene = enrolled()
        .moved_off()
        .task_waits("big", 60)
        .counted(0)
        .change(|scene| {
            scene.cluster.nodes = vec![node("small", "cpu=2"), node("large", "cpu=8")];
        });
    let plan = scene.plan();
    let Decision::Wait(Wait::Fit {
        pod,
        requests,
        message,
        largest,
    }) = &plan.decision
    else {
        panic!("{plan:?}");
    };
    assert_eq!(
        (pod.as_str(), requests, message.as_str()),
        ("big", &amounts("cpu=12"), NO_NODE)
    );
    assert_eq!(largest.as_ref().unwrap().to_string(), "large has cpu 8 of 12");
    assert_eq!(plan.again, None);
}

/// The first task of a run whose placeholder made room may preempt other pods, which takes a while.
#[test]
fn a_task_that_is_created_after_the_move_is_also_given_the_time_of_move_after() {
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
fn a_placeholder_that_another_client_scaled_down_is_scaled_up_again() {
    let scaled = settled().moved_off();
    assert_eq!(scaled.decision(), follow());
    let oddly = scaled.spec(|spec| spec.replicas = -1);
    assert_eq!(oddly.decision(), follow());
}

fn requeueing(mark: RequeueMark) -> Decision {
    let names = vec!["old".to_owned()];
    Decision::act(
        "requeue_tasks",
        None,
        [Action::Requeue(Requeue::Pods { names, mark })],
    )
}

#[test]
fn pods_that_were_unschedulable_before_the_move_are_requeued_once() {
    let asleep = |generation: Option<i64>| {
        let woken = generation.map(requeued_for);
        enrolled()
            .moved_off()
            .task_waits("old", 5)
            .task_is_new("new")
            .change(|scene| scene.waiting[0].woken = woken)
    };
    let wake = requeueing(requeued_for(GENERATION));
    assert_eq!(asleep(None).plan(), without_timer(wake.clone()));
    assert_eq!(asleep(Some(GENERATION - 2)).plan(), without_timer(wake.clone()));
    assert_ne!(asleep(Some(GENERATION)).decision(), wake);
    let still_there = asleep(None).change(|scene| scene.pod = Some(there()));
    assert_eq!(still_there.plan(), pod_end());
}

#[test]
fn a_requeued_pod_is_requeued_again_after_the_end_of_another_task() {
    let asleep = |since: Option<i64>| {
        enrolled()
            .moved_off()
            .task_waits("old", 60)
            .change(|scene| scene.repeated.moves = Repeated::default().incremented(ago(50)))
            .change(|scene| {
                scene.waiting[0].woken = Some(RequeueMark {
                    generation: GENERATION,
                    since,
                });
            })
    };
    let counted = |since, live, ended| asleep(since).task_count(live, Some(ago(ended)));
    let ended = Some(ago(20).as_second());
    let wake = requeueing(RequeueMark {
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

fn assistant(name: &str, node: Option<&str>) -> AssistantPod {
    AssistantPod {
        name: name.to_owned(),
        uid: format!("{name}-uid"),
        node: node.map(str::to_owned),
    }
}

/// An assistant followed a task that has ended before the placeholder returned.
#[test]
fn while_a_task_waits_and_none_lives_assistants_are_deleted_on_any_node() {
    let waits = |previous: Option<&str>| {
        let previous = previous.map(str::to_owned);
        let scene = enrolled().moved_off().spec(|spec| spec.previous_node = previous);
        scene.task_waits("old", 5).change(|scene| {
            scene.waiting[0].woken = None;
            scene.inputs.assistants =
                vec![assistant("followed", Some(NODE)), assistant("waits", None)].into();
        })
    };
    let requeue = || requeueing(requeued_for(GENERATION));
    let deleted = |scene: Scene| {
        let Decision::Act(step) = scene.decision() else {
            panic!("{scene:?}")
        };
        matches!(&step.actions[0], Action::Delete(Target::Assistant { name, .. }) if name == "followed")
    };
    for previous in [None, Some("old")] {
        assert_eq!(
            waits(previous).decision(),
            Decision::Read(Read::Tasks),
            "{previous:?}"
        );
        assert!(deleted(waits(previous).counted(0)), "{previous:?}");
        assert_eq!(waits(previous).counted(1).decision(), requeue(), "{previous:?}");
    }
    assert_eq!(waits(Some("")).counted(0).decision(), requeue(), "it made room");
}

#[test]
fn assistants_on_the_previous_node_are_deleted_before_the_placeholder_or_a_pod_moves() {
    let assistants = vec![
        assistant("here", Some(NODE)),
        assistant("behind", Some("old")),
        assistant("nowhere", None),
    ];
    let away = |left: &str| {
        let left = Some(left.to_owned());
        let scene = enrolled().moved_off().spec(|spec| spec.previous_node = left);
        scene.change(|scene| scene.inputs.assistants = assistants.clone().into())
    };
    let back = |left: &str| {
        Action::Placeholder(Spec {
            previous_node: Some(left.to_owned()),
            ..spec()
        })
    };
    let delete = Action::Delete(Target::Assistant {
        name: "behind".to_owned(),
        uid: "behind-uid".to_owned(),
    });
    assert_eq!(
        away("old").decision(),
        Decision::act("return_placeholder", None, [delete.clone(), back("old")])
    );
    let made_room = away("");
    assert_eq!(
        made_room.decision(),
        Decision::act("return_placeholder", None, [back("")])
    );
    let asleep = away("old")
        .task_waits("old", 5)
        .counted(1)
        .change(|scene| scene.waiting[0].woken = None);
    let Decision::Act(step) = asleep.decision() else {
        panic!("{asleep:?}")
    };
    assert_eq!(step.actions[0], delete);
    assert_eq!(
        Decision::act(step.name, None, &step.actions[1..]),
        requeueing(requeued_for(GENERATION))
    );
}

/// The scheduler of Kubernetes 1.36 does not retry the pod when the pods that keep it away end.
#[test]
fn a_pod_that_waits_because_of_anti_affinity_is_requeued_every_minute() {
    let kept_away = |waits: i64, since: Option<i64>| {
        enrolled()
            .moved_off()
            .task_waits("old", waits)
            .change(|scene| scene.repeated.moves = Repeated::default().incremented(ago(50)))
            .counted(0)
            .change(|scene| {
                let pod = &mut scene.waiting[0];
                pod.woken = Some(RequeueMark {
                    generation: GENERATION,
                    since,
                });
                pod.unschedulable.as_mut().unwrap().message =
                    "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules.".to_owned();
            })
    };
    let woken = |since: i64| {
        requeueing(RequeueMark {
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
fn a_placeholder_returns_if_a_requeued_pod_lacks_its_group_for_15_seconds() {
    let asleep = |moved, ended, message: &str| {
        let message = message.to_owned();
        enrolled()
            .moved_off()
            .task_waits("old", 60)
            .change(|scene| scene.repeated.moves = Repeated::default().incremented(ago(moved)))
            .quiet_for(ended)
            .change(|scene| {
                let pod = &mut scene.waiting[0];
                pod.woken = Some(RequeueMark {
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
}

fn there() -> PlaceholderPod {
    settled().pod.unwrap()
}
