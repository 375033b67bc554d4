//! Held runs whose node is unusable.

use super::*;

#[test]
fn a_held_run_leaves_an_unfit_node_before_it_is_released() {
    for cause in CAUSES {
        let held = held().on(NODE).node_is(NodeState::Unfit(cause));
        assert_eq!(held.decision(), Decision::Read(Read::Tasks), "{cause:?}");
        let expected = moving_off(MoveCause::Node(cause), None);
        assert_eq!(held.counted(0).decision(), expected, "{cause:?}");
    }
}

#[test]
fn a_held_run_that_moved_off_takes_a_new_node_and_is_released_there() {
    assert_eq!(held().moved_off().decision(), follow());
    assert_eq!(held().moved_off().on(NODE).plan(), with_timer(await_node(), SOON));
    assert_eq!(held().moved_off().on(NODE).pod_ending().decision(), follow());
    let found = held().on(NODE).node_is(NodeState::Fit).moved_before(1, 2);
    assert_eq!(found.decision(), released(ReleaseCause::NodeFound, Some(NODE)));
}

#[test]
fn a_held_run_that_keeps_finding_unfit_nodes_waits_between_them_and_not_beyond_its_deadline() {
    let unfit = || {
        held()
            .on(NODE)
            .node_is(NodeState::Unfit(Cause::Tainted))
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
fn a_held_run_is_released_to_an_unfit_node_only_where_moving_is_off_or_pods_of_it_live_there() {
    let unfit = || held().on(NODE).node_is(NodeState::Unfit(Cause::Cordoned));
    let release = released(ReleaseCause::NodeFound, Some(NODE));
    let off = unfit().counted(0).change(|scene| scene.config.move_after = None);
    assert_eq!(off.decision(), release);
    assert_eq!(unfit().counted(1).decision(), release);
}

#[test]
fn release_when_created_does_not_release_to_an_unfit_node_either() {
    let created = |scene: Scene| {
        scene
            .change(|scene| scene.config.release_when = ReleaseWhen::Created)
            .decision()
    };
    let unfit = held().on(NODE).node_is(NodeState::Unfit(Cause::Gone));
    assert_eq!(created(unfit), Decision::Read(Read::Tasks));
    assert_eq!(created(held().moved_off()), follow());
}
