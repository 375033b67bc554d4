//! A placeholder with a reserve becomes small before its run starts, by a resize or by a new pod.

use super::*;

const RESERVE: &str = "cpu=4,memory=8Gi";
const GPU: &str = "cpu=4,nvidia.com/gpu=1";

fn big() -> Scene {
    held().on(NODE).with_reserve(RESERVE)
}

fn refused(scene: Scene) -> Scene {
    scene.shape(|shape| shape.resize = Resize::Refused)
}

/// The spec of a small placeholder that is pinned to its node.
fn pinned(scene: Scene) -> Scene {
    scene
        .with_reserve(RESERVE)
        .shrunk()
        .shape(|shape| shape.pinned = true)
        .spec(|spec| spec.node = Some(NODE.to_owned()))
}

fn shrink() -> Decision {
    let resize = Action::Pod(PodChange::Resize(POD.to_owned()));
    Decision::act("shrink", None, [Action::Placeholder(spec()), resize])
}

fn recreate(node: Option<&str>) -> Decision {
    recreated_as(Spec {
        node: node.map(str::to_owned),
        ..spec()
    })
}

/// The removal of the pin.
fn unpin() -> Decision {
    Decision::act("unpin", None, [Action::Placeholder(spec())])
}

fn start_over(cause: MoveCause) -> Decision {
    let event = Event::MovedOff {
        cause,
        pod: None,
        starts_over: true,
    };
    Decision::act(
        "start_over",
        event,
        [Action::Delete(Target::Placeholder(SET.to_owned()))],
    )
}

#[test]
fn a_big_placeholder_on_its_node_is_shrunk_and_then_the_run_is_released() {
    assert_eq!(big().decision(), shrink());
    assert_eq!(
        big().shrunk().decision(),
        released(ReleaseCause::NodeFound, Some(NODE))
    );
}

#[test]
fn a_big_placeholder_without_a_node_waits_for_one_that_is_large_enough() {
    let waiting = held()
        .in_group(UID)
        .placeholder_unschedulable(300)
        .with_reserve(RESERVE);
    let waiting = waiting.change(|scene| scene.nodes = vec![node("n", "cpu=2,memory=16Gi")]);
    let Decision::Wait(Wait::Node {
        unschedulable,
        autoscaler: None,
        largest,
    }) = waiting.decision()
    else {
        panic!("{waiting:?}");
    };
    assert_eq!(unschedulable.as_deref(), Some(NO_NODE));
    assert_eq!(largest.unwrap().to_string(), "n has cpu 2 of 4100m");
    assert_eq!(held().with_pod().with_reserve(RESERVE).decision(), await_node());
}

#[test]
fn numbers_are_told_only_of_a_reserve() {
    let small = held()
        .in_group(UID)
        .placeholder_unschedulable(300)
        .change(|scene| scene.nodes = vec![node("n", "cpu=1m")]);
    let told = Decision::Wait(Wait::Node {
        unschedulable: Some(NO_NODE.to_owned()),
        autoscaler: None,
        largest: None,
    });
    assert_eq!(small.decision(), told);
}

#[test]
fn a_reserve_that_no_node_can_hold_ends_with_the_deadline() {
    let late = held()
        .placeholder_unschedulable(600)
        .with_reserve(RESERVE)
        .created_ago(600);
    assert_eq!(late.decision(), released(ReleaseCause::Deadline, None));
}

#[test]
fn release_when_created_waits_for_a_reserve_all_the_same() {
    let created = |scene: Scene| {
        scene
            .change(|scene| scene.config.release_when = ReleaseWhen::Created)
            .decision()
    };
    assert_eq!(created(held().with_pod().with_reserve(RESERVE)), await_node());
    assert_eq!(
        created(held().with_statefulset().with_reserve(RESERVE)),
        pod_missing(None)
    );
    assert_eq!(created(big()), shrink());
    let nothing = held().with_pod().with_reserve("");
    assert_eq!(created(nothing), released(ReleaseCause::PlaceholderCreated, None));
}

#[test]
fn a_default_reserve_is_honoured_like_the_runs_own_and_the_runs_own_goes_first() {
    let default = |scene: Scene| {
        scene.change(|scene| {
            scene.config.default_reserve = crate::reserve::parse_setting(RESERVE).unwrap();
            scene.config.release_when = ReleaseWhen::Created;
        })
    };
    assert_eq!(default(held().with_pod()).decision(), await_node());
    let none = default(held().with_pod()).with_reserve("");
    assert_eq!(none.decision(), released(ReleaseCause::PlaceholderCreated, None));
}

#[test]
fn where_a_resize_is_refused_the_placeholder_is_made_anew_in_its_place() {
    assert_eq!(refused(big()).decision(), recreate(Some(NODE)));
    assert_eq!(
        refused(big().shrunk()).decision(),
        recreate(Some(NODE)),
        "a kubelet's refusal comes late"
    );
}

#[test]
fn a_placeholder_without_a_reserve_is_never_recreated_for_a_refused_resize() {
    let node_found = released(ReleaseCause::NodeFound, Some(NODE));
    assert_eq!(refused(held().on(NODE)).decision(), node_found);
    assert_eq!(refused(settled()).decision(), Decision::Wait(Wait::Settled));
}

#[test]
fn what_kubernetes_resizes_in_no_pod_is_not_tried() {
    assert_eq!(held().on(NODE).with_reserve(GPU).decision(), recreate(Some(NODE)));
}

#[test]
fn a_placeholder_that_came_back_small_is_unpinned_and_then_the_run_is_released() {
    let back = pinned(held().on(NODE));
    assert_eq!(back.decision(), unpin());
    let unpinned = back.spec(|spec| spec.node = None);
    assert_eq!(unpinned.decision(), released(ReleaseCause::NodeFound, Some(NODE)));
}

#[test]
fn a_placeholder_whose_node_was_taken_meanwhile_starts_over() {
    let taken = |seconds| pinned(held().placeholder_unschedulable(seconds)).plan();
    assert_eq!(taken(4).again, Some(Duration::from_secs(6)));
    assert!(matches!(taken(4).decision, Decision::Wait(Wait::Node { .. })));
    assert_eq!(taken(10).decision, start_over(MoveCause::PlaceholderDoesNotFit));
    let off = pinned(held().placeholder_unschedulable(10)).change(|scene| scene.config.move_after = None);
    assert_eq!(off.decision(), start_over(MoveCause::PlaceholderDoesNotFit));
    assert_eq!(
        pinned(held().with_pod()).decision(),
        await_node(),
        "the scheduler has not looked yet"
    );
}

#[test]
fn a_run_with_a_reserve_starts_over_when_its_node_turns_out_unfit() {
    let unfit = |scene: Scene| scene.node_is(NodeState::Unusable(Cause::Cordoned));
    let expected = start_over(MoveCause::Node(Cause::Cordoned));
    for scene in [big(), big().shrunk(), refused(big()), pinned(held().on(NODE))] {
        assert_eq!(unfit(scene.clone()).decision(), Decision::Read(Read::Tasks));
        assert_eq!(unfit(scene).counted(0).decision(), expected);
    }
}

#[test]
fn whatever_is_still_big_when_the_hold_ends_is_made_small_then() {
    let late = |scene: Scene| scene.created_ago(600).decision();
    assert_eq!(late(big()), released(ReleaseCause::Deadline, Some(NODE)));
    assert_eq!(settled().with_reserve(RESERVE).decision(), shrink());
    assert_eq!(
        refused(settled().with_reserve(RESERVE)).decision(),
        recreate(Some(NODE))
    );
    assert_eq!(
        enrolled().with_pod().with_reserve(RESERVE).decision(),
        recreate(None)
    );
    assert_eq!(
        settled().with_reserve(RESERVE).shrunk().decision(),
        Decision::Wait(Wait::Settled)
    );
}

#[test]
fn a_placeholder_that_is_still_pinned_when_the_hold_ends_is_free_again_after_a_while() {
    assert_eq!(pinned(settled()).decision(), unpin());
    assert_eq!(
        pinned(enrolled().placeholder_unschedulable(4)).plan(),
        in_seconds(Decision::Wait(Wait::Settled), 6)
    );
    assert_eq!(
        pinned(enrolled().placeholder_unschedulable(10)).decision(),
        recreate(None)
    );
}

#[test]
fn a_big_placeholder_is_made_small_before_its_node_is_given_up_for_a_task() {
    let stuck = settled().with_reserve(RESERVE).task_waits("task", 60).counted(0);
    assert_eq!(stuck.decision(), shrink());
}

#[test]
fn a_size_is_judged_by_amount_and_not_by_spelling() {
    let scene = big().shape(|shape| shape.requests = amounts("cpu=0.05,memory=104857600"));
    assert_eq!(scene.decision(), released(ReleaseCause::NodeFound, Some(NODE)));
}

#[test]
fn a_smaller_usual_size_newly_configured_leaves_placeholders_without_a_reserve_alone() {
    let scene = settled()
        .shape(|shape| shape.requests = amounts("cpu=50m,memory=100Mi"))
        .change(|scene| scene.config.placeholder_cpu = "10m".to_owned());
    assert_eq!(scene.decision(), Decision::Wait(Wait::Settled));
}

#[test]
fn an_annotation_that_means_nothing_is_told_and_holds_up_nothing() {
    let bad = held()
        .on(NODE)
        .change(|scene| scene.run.reserve = Some("cpu=lots".to_owned()));
    let plan = bad.plan();
    assert_eq!(plan.decision, released(ReleaseCause::NodeFound, Some(NODE)));
    assert_eq!(
        plan.note.unwrap().to_string(),
        "annotation pod-affinity.tekton.dev/reserve has the bad value \"cpu=lots\": cpu: \"lots\" is not a quantity \
         such as 500m, 2, 1.5 or 8Gi"
    );
    assert_eq!(held().on(NODE).with_reserve(RESERVE).plan().note, None);
    assert_eq!(held().on(NODE).plan().note, None);
}
