//! The requests by which a placeholder makes room, moves off its node or gets another size.

use super::*;
use crate::keys;
use crate::requests::{Object, Request, Verb};
use crate::strategy::Strategy;
use k8s_openapi::api::core::v1::Toleration;
use serde_json::{Value, json};

/// The patch of the StatefulSet, which comes first.
fn patch(scene: &Scene) -> Value {
    let Request {
        object: Object::StatefulSet,
        verb: Verb::Json(patch),
        ..
    } = scene.requests().swap_remove(0)
    else {
        panic!("{scene:?}")
    };
    json!(patch)
}

/// The value that the patch adds to the template at this path.
fn added(scene: &Scene, path: &str) -> Option<Value> {
    let (patch, path) = (patch(scene), format!("/spec/template{path}"));
    let mut operations = patch.as_array().unwrap().iter();
    let add = operations.find(|it| it["op"] == "add" && it["path"] == path)?;
    Some(add["value"].clone())
}

fn annotation(scene: &Scene, key: &str) -> Option<Value> {
    added(
        scene,
        &format!("/metadata/annotations/{}", key.replace('/', "~1")),
    )
}

fn tolerations(scene: &Scene) -> Option<Value> {
    added(scene, "/spec/tolerations")
}

fn toleration(key: &str) -> Toleration {
    Toleration {
        key: Some(key.to_owned()),
        operator: Some("Exists".to_owned()),
        ..Toleration::default()
    }
}

/// The CLI reads the empty annotation as a placeholder that makes room.
#[test]
fn a_placeholder_that_makes_room_records_no_previous_node() {
    let makes_room = settled().change(|scene| {
        scene.statefulset.as_mut().unwrap().spec.previous_node = Some("old".to_owned());
        scene.messages.rejection = Some("7".into());
        scene.inputs.rejected_tasks = vec![rejected_task("build-test")].into();
    });
    let left = format!(
        "/spec/template/metadata/annotations/{}",
        keys::LEFT.replace('/', "~1")
    );
    let expected = json!([
        {"op": "test", "path": "/metadata/uid", "value": SET},
        {"op": "test", "path": "/spec/replicas", "value": 1},
        {"op": "replace", "path": "/spec/replicas", "value": 0},
        {"op": "add", "path": left, "value": ""},
    ]);
    assert_eq!(patch(&makes_room), expected);
}

#[test]
fn the_previous_node_is_the_node_of_the_placeholder_or_else_the_recorded_node() {
    let recorded = |scene: Scene| scene.change(|scene| scene.run.node = Some("recorded".to_owned()));
    let left = |scene| annotation(&recorded(scene), keys::LEFT);
    let unschedulable = enrolled()
        .placeholder_unschedulable(10)
        .task_is_new("task")
        .counted(0);
    assert_eq!(left(unschedulable), Some(json!("recorded")));
    let elsewhere = enrolled().on(NODE).task_waits("task", 10).counted(0);
    assert_eq!(left(elsewhere), Some(json!(NODE)));
}

#[test]
fn a_placeholder_that_moves_off_gets_the_tolerations_of_the_pod_that_waits_longest() {
    let stuck = settled()
        .task_waits("late", 11)
        .task_waits("first", 60)
        .counted(0)
        .change(|scene| {
            scene.waiting[0].tolerations = vec![toleration("other")];
            scene.waiting[1].tolerations = vec![toleration("gpu")];
        });
    assert_eq!(tolerations(&stuck), Some(json!([toleration("gpu")])));
}

/// A placeholder with a reserve, on a node that refuses the resize.
fn recreated() -> Scene {
    settled()
        .with_reserve("cpu=4")
        .shape(|shape| shape.resize = Resize::Refused)
        .change(|scene| scene.pod.as_mut().unwrap().tolerations = vec![toleration("gpu")])
}

#[test]
fn a_placeholder_that_is_recreated_on_its_node_gets_the_tolerations_of_its_pod() {
    assert_eq!(tolerations(&recreated()), Some(json!([toleration("gpu")])));
    let pinned = recreated().spec(|spec| spec.node = Some("node-0".to_owned()));
    assert_eq!(annotation(&pinned, keys::PINNED), Some(json!(NODE)));
    let anywhere = pinned.change(|scene| scene.pod.as_mut().unwrap().node = None);
    assert_eq!(annotation(&anywhere, keys::PINNED), Some(json!("")));
    assert_eq!(tolerations(&anywhere), None);
}

#[test]
fn a_placeholder_that_outlives_its_run_is_recreated_without_pvcs() {
    let volumes = |strategy| {
        let scene = recreated()
            .spec(|spec| spec.claims = vec!["source".to_owned()])
            .change(|scene| scene.statefulset.as_mut().unwrap().strategy = Some(strategy));
        added(&scene, "/spec/volumes")
    };
    assert_eq!(volumes(Strategy::IsolateAlways), Some(json!([])));
    assert_eq!(volumes(Strategy::ColocateCompleted), None);
}

#[test]
fn a_placeholder_that_is_recreated_without_pvcs_keeps_its_images() {
    let volumes = recreated()
        .spec(|spec| {
            spec.claims = vec!["source".to_owned()];
            spec.images = ["golang".to_owned()].into_iter().collect();
        })
        .change(|scene| scene.statefulset.as_mut().unwrap().strategy = Some(Strategy::IsolateAlways));
    let images = json!([{"name": "image-0", "image": {"reference": "golang", "pullPolicy": "IfNotPresent"}}]);
    assert_eq!(added(&volumes, "/spec/volumes"), Some(images));
}

#[test]
fn giving_up_a_reserve_restores_the_usual_size_and_deletes_the_big_pod() {
    let too_large = held()
        .in_group(UID)
        .placeholder_unschedulable(30)
        .with_reserve("cpu=4")
        .change(|scene| {
            scene.run.reserve = Some("auto".to_owned());
            scene.cluster.nodes = vec![node("n", "cpu=2,memory=16Gi")];
        });
    let expected = json!({"cpu": "50m", "memory": "100Mi"});
    let patch = patch(&too_large);
    let resources = patch.as_array().unwrap().iter().find(|it| it["op"] == "replace");
    assert_eq!(resources.unwrap()["value"]["requests"], expected, "{patch}");
    let requests = too_large.requests();
    let uid = POD.to_owned();
    let deleted = Verb::Delete { uid, at_once: false };
    assert_eq!((&requests[1].object, &requests[1].verb), (&Object::Pod, &deleted));
}
