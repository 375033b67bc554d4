//! The request for each change of a run.

use super::*;
use crate::fixture::run;
use crate::requests::{adoption_patch, statefulset_requeue_patch};
use crate::strategy::{Isolation, Strategy};
use jiff::Timestamp;

mod properties;

fn enrolment() -> Enrolment {
    Enrolment {
        strategy: Strategy::ColocateCompleted,
        isolation: Isolation::default(),
    }
}

/// The request that changes the run to another state.
fn change(run: &Run, change: impl FnOnce(&mut RunState)) -> Request {
    let mut wanted = RunState::from_run(run);
    change(&mut wanted);
    request(run, &wanted).unwrap()
}

fn json_patch_of(request: Request) -> Patch {
    match request.verb {
        Verb::Json(patch) => patch,
        other => panic!("{other:?}"),
    }
}

fn release(run: &Run, enrolment: Option<Enrolment>, node: Option<&str>) -> Patch {
    json_patch_of(change(run, |run| {
        run.hold = None;
        run.group = enrolment.map(Into::into);
        run.node = node.map(str::to_owned);
    }))
}

fn held() -> Value {
    json!({
        "metadata": {
            "uid": "u1", "name": "build",
            "labels": {keys::OPT_IN: "true", "app": "x"},
            "annotations": {keys::HOLD: "true", "note": "y"},
        },
        "spec": {"status": keys::PENDING, "pipelineRef": {"name": "p"}},
    })
}

/// The user opted the run out and removed one of the labels of the group.
fn enrolled() -> (Run, Value) {
    let run = Run {
        group: Some("u1".into()),
        strategy: Some("colocateCompleted".into()),
        isolation: None,
        ..run()
    };
    let labels = json!({keys::OPT_IN: null, keys::GROUP: "u1", keys::STRATEGY: "colocateCompleted"});
    let mut object = held();
    json_patch::merge(&mut object, &json!({"metadata": {"labels": labels}}));
    (run, object)
}

fn released(mut object: Value) -> Result<Value, json_patch::PatchError> {
    let patch = release(&run(), Some(enrolment()), Some("n1"));
    json_patch::patch(&mut object, &patch).map(|()| object)
}

#[test]
fn a_release_changes_only_the_status_and_the_keys_of_pod_affinity() {
    let expected = json!({
        "metadata": {
            "uid": "u1", "name": "build",
            "labels": {
                keys::OPT_IN: "true", "app": "x", keys::GROUP: "u1",
                keys::STRATEGY: "colocateCompleted", keys::ISOLATION: "cluster-all",
            },
            "annotations": {"note": "y", keys::NODE: "n1"},
        },
        "spec": {"pipelineRef": {"name": "p"}},
    });
    assert_eq!(released(held()).unwrap(), expected);
}

#[test]
fn a_release_of_an_opted_out_run_adds_no_labels() {
    let mut object = held();
    object["metadata"].as_object_mut().unwrap().remove("labels");
    json_patch::patch(&mut object, &release(&run(), None, None)).unwrap();
    assert_eq!(
        object["metadata"],
        json!({"uid": "u1", "name": "build", "annotations": {"note": "y"}})
    );
    assert_eq!(object["spec"].get("status"), None);
}

#[test]
fn a_release_of_an_opted_out_run_removes_the_labels_of_its_group() {
    let (enrolled, object) = enrolled();
    let mut after = object;
    json_patch::patch(&mut after, &release(&enrolled, None, None)).unwrap();
    assert_eq!(after["metadata"]["labels"], json!({"app": "x"}));
    assert_eq!(after["spec"].get("status"), None);
}

#[test]
fn a_release_by_the_user_opts_the_run_out_and_fails_without_a_hold_of_pod_affinity() {
    let (enrolled, mut object) = enrolled();
    object["metadata"]["labels"][keys::OPT_IN] = json!("true");
    let patch = release_by_hand(&enrolled);
    let mut after = object.clone();
    json_patch::patch(&mut after, &patch).unwrap();
    assert_eq!(
        after["metadata"]["labels"],
        json!({"app": "x", keys::OPT_IN: "false"})
    );
    assert_eq!(after["metadata"]["annotations"], json!({"note": "y"}));
    assert_eq!(after["spec"].get("status"), None);
    for change in [
        json!({"metadata": {"uid": "u2"}}),
        json!({"metadata": {"annotations": {keys::HOLD: null}}}),
        json!({"metadata": {"labels": {keys::OPT_IN: "isolateAlways"}}}),
        json!({"spec": {"status": "Cancelled"}}),
    ] {
        let mut changed = object.clone();
        json_patch::merge(&mut changed, &change);
        json_patch::patch(&mut changed, &patch).expect_err("it was decided on something else");
    }
}

#[test]
fn an_enrolment_fails_if_the_uid_the_opt_in_label_or_the_status_has_changed() {
    let patch = json_patch_of(change(&run(), |run| run.group = Some(enrolment().into())));
    let mut after = held();
    json_patch::patch(&mut after, &patch).unwrap();
    let labels = json!({
        keys::GROUP: "u1", keys::STRATEGY: "colocateCompleted", keys::ISOLATION: "cluster-all",
    });
    let mut expected = held();
    json_patch::merge(&mut expected, &json!({"metadata": {"labels": labels}}));
    assert_eq!(after, expected);
    for change in [
        json!({"metadata": {"uid": "u2"}}),
        json!({"metadata": {"labels": {keys::OPT_IN: "false"}}}),
        json!({"metadata": {"labels": null}}),
        json!({"spec": {"status": null}}),
    ] {
        let mut changed = held();
        json_patch::merge(&mut changed, &change);
        json_patch::patch(&mut changed, &patch).expect_err("it was decided on something else");
    }
}

#[test]
fn a_release_fails_if_any_field_that_it_read_has_changed() {
    for (pointer, value) in [
        ("/metadata/uid", json!("u2")),
        ("/spec/status", json!("Cancelled")),
        ("/spec", json!({})),
        ("/metadata/labels", json!({keys::OPT_IN: "false"})),
        ("/metadata/labels", json!(null)),
        ("/metadata/annotations", json!({})),
        ("/metadata/annotations", json!(null)),
    ] {
        let mut object = held();
        *object.pointer_mut(pointer).unwrap() = value;
        assert!(released(object).is_err(), "{pointer}");
    }
}

#[test]
fn an_unenrolment_removes_only_the_labels_of_the_group_and_fails_on_a_started_run() {
    let (enrolled, object) = enrolled();
    let mut after = object.clone();
    let patch = json_patch_of(change(&enrolled, |run| run.group = None));
    json_patch::patch(&mut after, &patch).unwrap();
    let left = json!({"metadata": {"labels": {keys::GROUP: null, keys::STRATEGY: null}}});
    let mut expected = object.clone();
    json_patch::merge(&mut expected, &left);
    assert_eq!(after, expected);
    for change in [
        json!({"metadata": {"uid": "u2"}}),
        json!({"spec": {"status": null}}),
        json!({"metadata": {"labels": {keys::GROUP: "u2"}}}),
    ] {
        let mut changed = object.clone();
        json_patch::merge(&mut changed, &change);
        json_patch::patch(&mut changed, &patch).expect_err("it was decided on something else");
    }
}

#[test]
fn a_hold_gets_its_date_once_and_only_while_the_run_is_pending() {
    let observed = Run {
        held_from: HeldFrom::UndatedRelease,
        ..run()
    };
    let now = "2026-11-23T08:00:00.5Z".parse().unwrap();
    let patch = json_patch_of(change(&observed, |run| run.hold = Some(HeldFrom::Release(now))));
    let mut undated = held();
    undated["metadata"]["annotations"][keys::HOLD] = json!("released");
    let mut after = undated.clone();
    json_patch::patch(&mut after, &patch).unwrap();
    let mut expected = undated.clone();
    expected["metadata"]["annotations"][keys::HOLD] = json!("2026-11-23T08:00:00Z");
    assert_eq!(after, expected);
    for change in [
        json!({"metadata": {"uid": "u2"}}),
        json!({"metadata": {"annotations": {keys::HOLD: "true"}}}),
        json!({"spec": {"status": null}}),
    ] {
        let mut changed = undated.clone();
        json_patch::merge(&mut changed, &change);
        json_patch::patch(&mut changed, &patch).expect_err("it was decided on something else");
    }
}

#[test]
fn slashes_in_keys_are_escaped() {
    let patch = serde_json::to_string(&release(&run(), Some(enrolment()), Some("n1"))).unwrap();
    assert!(
        patch.contains("/metadata/labels/pod-affinity.tekton.dev~1group"),
        "{patch}"
    );
}

#[test]
fn each_merge_patch_has_the_uid_of_its_object() {
    let Verb::Merge(recorded) = change(&run(), |run| run.node = Some("n2".to_owned())).verb else {
        panic!("annotations alone are merged")
    };
    let node = json!({"metadata": {"uid": "u1", "annotations": {keys::NODE: "n2"}}});
    assert_eq!(recorded, node);
    for (patch, uid) in [
        (recorded, "u1"),
        (adoption_patch(&run().key, "p1", Some("s1")), "p1"),
        (statefulset_requeue_patch("s1", Timestamp::UNIX_EPOCH), "s1"),
    ] {
        assert_eq!(patch["metadata"]["uid"], uid, "{patch}");
    }
}

#[test]
fn an_adoption_replaces_the_statefulset_by_the_run_as_controller_of_the_pod() {
    let patch = adoption_patch(&run().key, "p1", Some("s1"));
    let owner = &patch["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["controller"], owner.get("blockOwnerDeletion")),
        (&json!(true), None)
    );
    let set = json!({"$patch": "delete", "uid": "s1"});
    assert_eq!(patch["metadata"]["ownerReferences"][1], set);
}
