//! A placeholder with a reserve becomes small before its run starts, by a resize or by a new pod.

use super::*;
use crate::notes::of_state;

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
fn the_size_that_a_policy_gives_to_a_resized_placeholder_is_kept() {
    let raised = big().shape(|shape| shape.resize = Resize::Accepted);
    assert_eq!(raised.decision(), released(ReleaseCause::NodeFound, Some(NODE)));
}

#[test]
fn a_big_placeholder_waits_for_a_node_that_is_large_enough() {
    let waiting = held()
        .in_group(UID)
        .placeholder_unschedulable(300)
        .with_reserve(RESERVE);
    let waiting = waiting.change(|scene| scene.cluster.nodes = vec![node("n", "cpu=2,memory=16Gi")]);
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
fn only_a_wait_with_a_reserve_names_the_nearest_node() {
    let small = held()
        .in_group(UID)
        .placeholder_unschedulable(300)
        .change(|scene| scene.cluster.nodes = vec![node("n", "cpu=1m")]);
    let told = Decision::Wait(Wait::Node {
        unschedulable: Some(NO_NODE.to_owned()),
        autoscaler: None,
        largest: None,
    });
    assert_eq!(small.decision(), told);
}

#[test]
fn a_run_whose_reserve_fits_no_node_is_released_at_its_deadline() {
    let late = held()
        .placeholder_unschedulable(600)
        .with_reserve(RESERVE)
        .created_ago(600);
    assert_eq!(late.decision(), released(ReleaseCause::Deadline, None));
}

#[test]
fn release_when_created_waits_for_the_node_of_a_run_with_a_reserve() {
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
fn a_run_waits_for_the_default_reserve_unless_its_own_reserve_is_empty() {
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
fn a_placeholder_whose_resize_is_refused_is_recreated_on_its_node() {
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
fn a_placeholder_with_an_extended_resource_is_recreated_instead_of_resized() {
    assert_eq!(held().on(NODE).with_reserve(GPU).decision(), recreate(Some(NODE)));
}

#[test]
fn a_recreated_small_placeholder_is_unpinned_and_then_the_run_is_released() {
    let back = pinned(held().on(NODE));
    assert_eq!(back.decision(), unpin());
    let unpinned = back.spec(|spec| spec.node = None);
    assert_eq!(unpinned.decision(), released(ReleaseCause::NodeFound, Some(NODE)));
}

#[test]
fn a_pinned_placeholder_whose_node_has_no_room_starts_over() {
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
fn a_run_with_a_reserve_starts_over_if_its_node_becomes_unusable() {
    let unfit = |scene: Scene| scene.node_is(NodeState::Unusable(Cause::Cordoned));
    let expected = start_over(MoveCause::Node(Cause::Cordoned));
    for scene in [big(), big().shrunk(), refused(big()), pinned(held().on(NODE))] {
        assert_eq!(unfit(scene.clone()).decision(), Decision::Read(Read::Tasks));
        assert_eq!(unfit(scene).counted(0).decision(), expected);
    }
}

#[test]
fn a_placeholder_that_is_big_at_the_end_of_the_hold_is_shrunk_after_the_release() {
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
fn a_placeholder_whose_pod_is_rejected_loses_its_reserve_after_the_release() {
    let rejected = |scene: Scene| scene.with_statefulset().failed_create("exceeded quota: few");
    let small = Decision::act("shrink", None, [Action::Placeholder(spec())]);
    assert_eq!(rejected(enrolled()).with_reserve(RESERVE).decision(), small);
    assert_ne!(
        rejected(held()).with_reserve(RESERVE).decision(),
        small,
        "the run searches a node"
    );
    assert_eq!(rejected(enrolled()).decision(), Decision::Wait(Wait::Settled));
    let within_limits = rejected(enrolled())
        .with_reserve(RESERVE)
        .spec(|spec| spec.within_limits = true);
    assert_ne!(within_limits.decision(), small);
}

#[test]
fn a_placeholder_that_is_pinned_at_the_end_of_the_hold_is_unpinned_after_the_release() {
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
fn a_big_placeholder_is_shrunk_before_its_node_is_given_up_for_a_task() {
    let stuck = settled().with_reserve(RESERVE).task_waits("task", 60).counted(0);
    assert_eq!(stuck.decision(), shrink());
}

#[test]
fn sizes_are_compared_by_amount_and_not_by_spelling() {
    let scene = big().shape(|shape| shape.requests = amounts("cpu=0.05,memory=104857600"));
    assert_eq!(scene.decision(), released(ReleaseCause::NodeFound, Some(NODE)));
}

#[test]
fn a_smaller_configured_size_does_not_change_a_placeholder_without_a_reserve() {
    let scene = settled()
        .shape(|shape| shape.requests = amounts("cpu=50m,memory=100Mi"))
        .change(|scene| scene.config.placeholder_cpu = "10m".to_owned());
    assert_eq!(scene.decision(), Decision::Wait(Wait::Settled));
}

#[test]
fn an_invalid_reserve_annotation_is_reported_and_does_not_delay_the_release() {
    let bad = held()
        .on(NODE)
        .change(|scene| scene.run.reserve = Some("cpu=lots".to_owned()));
    let notes = |scene: &Scene| {
        let notes = of_state(&scene.observation(), &scene.plan()).into_iter();
        notes.map(|note| note.text).collect::<Vec<_>>()
    };
    assert_eq!(bad.plan().decision, released(ReleaseCause::NodeFound, Some(NODE)));
    let [ignored] = notes(&bad).try_into().unwrap();
    assert!(
        ignored.starts_with(
            "annotation pod-affinity.tekton.dev/reserve has the bad value \"cpu=lots\": cpu: \"lots\" is not a quantity \
             such as 500m, 2, 1.5 or 8Gi"
        ),
        "{ignored}"
    );
    for silent in [held().on(NODE).with_reserve(RESERVE), held().on(NODE)] {
        assert_eq!(notes(&silent), [""; 0]);
    }
}
