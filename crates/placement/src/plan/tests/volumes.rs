//! A placeholder whose PVCs keep it from every node, or from the node of its group, gives them up.

use super::*;

const OTHERS_MISS_THE_GROUP: &str = "2 node(s) didn't match pod affinity rules";
const OTHERS_ARE_TAINTED: &str = "2 node(s) had untolerated taint(s)";
const OTHERS_ARE_FULL: &str = "2 Insufficient cpu";

/// The placeholder mounts this number of PVCs, and has been unschedulable for this number of seconds.
fn kept_off(scene: Scene, pvcs: usize, seconds: i64, others: &str) -> Scene {
    let message = volume_elsewhere(others);
    let claims = ["source", "cache", "data"].into_iter().take(pvcs);
    scene
        .placeholder_unschedulable(seconds)
        .spec(|spec| spec.claims = claims.map(str::to_owned).collect())
        .shape(|shape| shape.mounts = pvcs > 0)
        .change(|scene| {
            let pod = scene.pod.as_mut().unwrap();
            pod.unschedulable.as_mut().unwrap().message = message;
        })
}

/// The placeholder's template and its pod without PVCs.
fn unmounted() -> Decision {
    let actions = [
        Action::Placeholder(spec()),
        Action::Delete(Target::Pod(POD.to_owned())),
    ];
    Decision::act("unmount", None, actions)
}

#[test]
fn a_placeholder_that_cannot_follow_its_group_to_a_node_gives_up_its_pvcs_at_once() {
    assert_eq!(
        kept_off(enrolled(), 1, 0, OTHERS_MISS_THE_GROUP).decision(),
        unmounted()
    );
    for other in [
        kept_off(enrolled(), 0, 0, OTHERS_MISS_THE_GROUP),
        kept_off(enrolled(), 1, 9999, OTHERS_ARE_TAINTED),
        enrolled().placeholder_unschedulable(9999),
    ] {
        assert_eq!(other.plan(), settled_for_good(), "{other:?}");
    }
}

#[test]
fn a_held_run_gives_up_pvcs_that_keep_its_placeholder_from_all_nodes_unless_an_autoscaler_adds_a_node() {
    let waits = |pvcs, seconds, others| kept_off(held().in_group(UID), pvcs, seconds, others);
    let again = |scene: Scene| scene.plan().again.unwrap();
    assert_eq!(again(waits(2, 20, OTHERS_ARE_TAINTED)), Duration::from_secs(10));
    assert_eq!(waits(2, 30, OTHERS_ARE_TAINTED).decision(), unmounted());
    let changed_already = waits(2, 30, OTHERS_ARE_TAINTED).spec(|spec| spec.claims.clear());
    assert_eq!(changed_already.decision(), unmounted());
    let promised = waits(2, 30, OTHERS_ARE_TAINTED)
        .change(|scene| scene.messages.autoscaler = Some("pod triggered scale-up: pool".to_owned()));
    for other in [
        promised,
        waits(1, 30, OTHERS_ARE_TAINTED),
        waits(2, 30, OTHERS_ARE_FULL),
    ] {
        let decision = other.decision();
        assert!(
            matches!(decision, Decision::Wait(Wait::Node { .. })),
            "{decision:?}"
        );
    }
}
