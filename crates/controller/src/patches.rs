//! The bodies of our writes, pure: each names what it relies on, so that a stale decision changes nothing.

use jiff::Timestamp;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, TestOperation};
use placement::keys;
use placement::plan::Enrolment;
use placement::run::Run;
use serde_json::{Value, json};

/// Clears Pending and our hold, and enrols, in one write that fails as a whole unless the run is still this very
/// run, still Pending, still held by us and, if it is to be enrolled, still opted in as it was.
pub(crate) fn release(run: &Run, enrolment: Option<Enrolment>, node: Option<&str>) -> Patch {
    let mut patch = vec![
        test(["metadata", "uid"], run.key.uid.as_str()),
        test(["spec", "status"], keys::PENDING),
        remove(["spec", "status"]),
    ];
    if let Some(enrolment) = enrolment {
        // Also proves that there are labels to add to; the removal of the hold below proves it for annotations.
        patch.push(test(
            ["metadata", "labels", keys::OPT_IN],
            run.opt_in.as_deref().unwrap_or_default(),
        ));
        let labels = labels(run, enrolment).map(|(key, value)| add(["metadata", "labels", key], value));
        patch.extend(labels);
    }
    patch.extend(node.map(|node| add(["metadata", "annotations", keys::NODE], node)));
    patch.push(remove(["metadata", "annotations", keys::HOLD]));
    Patch(patch)
}

/// Adds the labels that make the run a group.
pub(crate) fn enrol(run: &Run, enrolment: Enrolment) -> Value {
    let labels: serde_json::Map<_, _> = labels(run, enrolment)
        .map(|(key, value)| (key.to_owned(), value.into()))
        .into_iter()
        .collect();
    json!({"metadata": {"uid": run.key.uid, "labels": labels}})
}

/// Takes back the labels that make the run a group, unless it was started meanwhile.
pub(crate) fn withdraw(run: &Run) -> Patch {
    let mut patch = vec![
        test(["metadata", "uid"], run.key.uid.as_str()),
        test(["spec", "status"], keys::PENDING),
        test(["metadata", "labels", keys::GROUP], run.key.uid.as_str()),
        remove(["metadata", "labels", keys::GROUP]),
    ];
    let others = [(keys::STRATEGY, &run.strategy), (keys::ISOLATION, &run.isolation)];
    let there = others.into_iter().filter(|(_, value)| value.is_some());
    patch.extend(there.map(|(key, _)| remove(["metadata", "labels", key])));
    Patch(patch)
}

/// Writes down where the run is.
pub(crate) fn record_node(run: &Run, node: &str) -> Value {
    json!({"metadata": {"uid": run.key.uid, "annotations": {keys::NODE: node}}})
}

/// Makes the run the owner of its placeholder's pod in the StatefulSet's stead, and lets autoscalers have the node. One
/// strategic merge patch, which merges owners by UID: at no moment is the pod without an owner, nor is it ever left
/// behind, as it was when the set was deleted with its dependants orphaned while the run was deleted too.
pub(crate) fn adopt(run: &Run, pod: &str, set: Option<&str>) -> Value {
    let owner = json!({
        "apiVersion": "tekton.dev/v1",
        "kind": "PipelineRun",
        "name": run.key.name,
        "uid": run.key.uid,
        "controller": false,
    });
    let mut owners = vec![owner];
    owners.extend(set.map(|uid| json!({"$patch": "delete", "uid": uid})));
    json!({"metadata": {
        "uid": pod,
        "ownerReferences": owners,
        "labels": {keys::KEPT_BY: null},
        "annotations": {keys::SAFE_TO_EVICT: "true", keys::DO_NOT_DISRUPT: null},
    }})
}

/// Changes the StatefulSet so that its controller looks at it now, instead of when its own backoff ends.
pub(crate) fn nudge(set: &str, now: Timestamp) -> Value {
    json!({"metadata": {"uid": set, "annotations": {keys::NUDGED: now.to_string()}}})
}

fn labels(run: &Run, enrolment: Enrolment) -> [(&'static str, &str); 3] {
    let Enrolment { strategy, isolation } = enrolment;
    [
        (keys::GROUP, run.key.uid.as_str()),
        (keys::STRATEGY, strategy.as_str()),
        (keys::ISOLATION, isolation.as_str()),
    ]
}

fn test<const N: usize>(path: [&str; N], value: &str) -> PatchOperation {
    PatchOperation::Test(TestOperation {
        path: PointerBuf::from_tokens(path),
        value: value.into(),
    })
}

fn add<const N: usize>(path: [&str; N], value: &str) -> PatchOperation {
    PatchOperation::Add(AddOperation {
        path: PointerBuf::from_tokens(path),
        value: value.into(),
    })
}

fn remove<const N: usize>(path: [&str; N]) -> PatchOperation {
    PatchOperation::Remove(RemoveOperation {
        path: PointerBuf::from_tokens(path),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{enrolment, run};

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

    fn released(mut object: Value) -> Result<Value, json_patch::PatchError> {
        let patch = release(&run(), Some(enrolment()), Some("n1"));
        json_patch::patch(&mut object, &patch).map(|()| object)
    }

    #[test]
    fn a_release_touches_the_status_and_our_own_keys_only() {
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
    fn a_release_for_an_opted_out_run_only_lets_go() {
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
    fn a_release_fails_as_a_whole_when_anything_it_relies_on_has_changed() {
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
    fn a_withdrawal_takes_back_our_labels_from_a_run_that_was_not_started_and_nothing_else() {
        let enrolled = Run {
            group: Some("u1".into()),
            strategy: Some("colocateCompleted".into()),
            isolation: None,
            ..run()
        };
        let ours = json!({keys::OPT_IN: null, keys::GROUP: "u1", keys::STRATEGY: "colocateCompleted"});
        let mut object = held();
        json_patch::merge(&mut object, &json!({"metadata": {"labels": ours}}));
        let mut after = object.clone();
        json_patch::patch(&mut after, &withdraw(&enrolled)).unwrap();
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
            json_patch::patch(&mut changed, &withdraw(&enrolled))
                .expect_err("it was decided on something else");
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
    fn merge_patches_carry_the_uid_they_are_meant_for() {
        for (patch, uid) in [
            (enrol(&run(), enrolment()), "u1"),
            (record_node(&run(), "n2"), "u1"),
            (adopt(&run(), "p1", Some("s1")), "p1"),
            (nudge("s1", Timestamp::UNIX_EPOCH), "s1"),
        ] {
            assert_eq!(patch["metadata"]["uid"], uid, "{patch}");
        }
    }

    #[test]
    fn adoption_makes_no_second_controller() {
        let patch = adopt(&run(), "p1", Some("s1"));
        let owner = &patch["metadata"]["ownerReferences"][0];
        assert_eq!(
            (&owner["controller"], owner.get("blockOwnerDeletion")),
            (&json!(false), None)
        );
    }
}
