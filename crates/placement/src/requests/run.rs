//! The patches of a run. Each names what it relies on, so that a stale decision changes nothing.

use crate::keys;
use crate::opt_in::DECLINED;
use crate::raw::{add, remove, replace, test};
use crate::run::{RELEASED, Run, dated};
use crate::strategy::Enrolment;
use jiff::Timestamp;
use json_patch::{Patch, PatchOperation};
use serde_json::{Value, json};

/// Clears Pending and our hold, and enrols, in one write that fails as a whole unless the run is still this very
/// run, still Pending, still held by us and, if it is to be enrolled, still opted in as it was. One that is not to be
/// is in no group afterwards.
pub(super) fn release(run: &Run, enrolment: Option<Enrolment>, node: Option<&str>) -> Patch {
    let mut patch = vec![
        test(&["metadata", "uid"], run.key.uid.as_str()),
        test(&["spec", "status"], keys::PENDING),
        remove(&["spec", "status"]),
    ];
    patch.extend(match enrolment {
        Some(enrolment) => joins(run, enrolment),
        None => leaves(run),
    });
    patch.extend(node.map(|node| add(&["metadata", "annotations", keys::NODE], node)));
    patch.push(remove(&["metadata", "annotations", keys::HOLD]));
    Patch(patch)
}

/// Writes down when the hold of this very run began, while it waits by that hold.
pub(super) fn date_hold(run: &Run, now: Timestamp) -> Patch {
    let mark = ["metadata", "annotations", keys::HOLD];
    Patch(vec![
        test(&["metadata", "uid"], run.key.uid.as_str()),
        test(&["spec", "status"], keys::PENDING),
        test(&mark, RELEASED),
        replace(&mark, dated(now)),
    ])
}

/// What a user does to start a held run without its node: it is opted out and released in one write, which fails as a
/// whole as every release does.
pub fn release_by_hand(run: &Run) -> Patch {
    let mut patch = opt_out(run);
    patch.0.extend(release(run, None, None).0);
    patch
}

/// Opts this very run out, if it is opted in as it was.
pub fn opt_out(run: &Run) -> Patch {
    let mut patch = vec![test(&["metadata", "uid"], run.key.uid.as_str())];
    if let Some(value) = run.opt_in.as_deref().filter(|value| *value != DECLINED) {
        let label = ["metadata", "labels", keys::OPT_IN];
        patch.extend([test(&label, value), replace(&label, DECLINED)]);
    }
    Patch(patch)
}

/// Makes the run a group, if it is still this very run and opted in as it was, and as the guard says.
pub(super) fn enrol(run: &Run, enrolment: Enrolment, guard: Option<PatchOperation>) -> Patch {
    let mut patch = vec![test(&["metadata", "uid"], run.key.uid.as_str())];
    patch.extend(guard);
    patch.extend(joins(run, enrolment));
    Patch(patch)
}

/// Has the run be a group no more, unless it was started meanwhile.
pub(super) fn withdraw(run: &Run) -> Patch {
    let mut patch = vec![
        test(&["metadata", "uid"], run.key.uid.as_str()),
        test(&["spec", "status"], keys::PENDING),
    ];
    patch.extend(leaves(run));
    Patch(patch)
}

/// Adds the labels that make the run a group. That it is opted in also proves that there are labels to add to.
fn joins(run: &Run, enrolment: Enrolment) -> Vec<PatchOperation> {
    let Enrolment { strategy, isolation } = enrolment;
    vec![
        test(
            &["metadata", "labels", keys::OPT_IN],
            run.opt_in.as_deref().unwrap_or_default(),
        ),
        add(&["metadata", "labels", keys::GROUP], run.key.uid.as_str()),
        add(&["metadata", "labels", keys::STRATEGY], strategy.as_str()),
        add(&["metadata", "labels", keys::ISOLATION], isolation.as_str()),
    ]
}

/// Takes back the labels that make the run a group, if it is one.
///
/// One that is seen to have opted out is seen with its labels too: they are added to none that has.
fn leaves(run: &Run) -> Vec<PatchOperation> {
    if !run.is_enrolled() {
        return Vec::new();
    }
    let mut patch = vec![
        test(&["metadata", "labels", keys::GROUP], run.key.uid.as_str()),
        remove(&["metadata", "labels", keys::GROUP]),
    ];
    let others = [(keys::STRATEGY, &run.strategy), (keys::ISOLATION, &run.isolation)];
    let there = others.into_iter().filter(|(_, value)| value.is_some());
    patch.extend(there.map(|(key, _)| remove(&["metadata", "labels", key])));
    patch
}

/// Writes down where the run is.
pub(super) fn record_node(run: &Run, node: &str) -> Value {
    json!({"metadata": {"uid": run.key.uid, "annotations": {keys::NODE: node}}})
}

/// Writes down the most that its tasks asked for at the same time.
pub(super) fn record_use(run: &Run, used: &str) -> Value {
    json!({"metadata": {"uid": run.key.uid, "annotations": {keys::USED: used}}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::run;
    use crate::placeholder::patches::{adopt, nudge};
    use crate::strategy::{Isolation, Strategy};

    fn enrolment() -> Enrolment {
        Enrolment {
            strategy: Strategy::ColocateCompleted,
            isolation: Isolation::default(),
        }
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

    /// Opted out since; its user has taken one of our labels away.
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
    fn a_release_for_an_opted_out_run_takes_back_that_it_is_a_group() {
        let (enrolled, object) = enrolled();
        let mut after = object;
        json_patch::patch(&mut after, &release(&enrolled, None, None)).unwrap();
        assert_eq!(after["metadata"]["labels"], json!({"app": "x"}));
        assert_eq!(after["spec"].get("status"), None);
    }

    #[test]
    fn a_user_releases_only_a_run_that_we_hold_and_opts_it_out() {
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
    fn only_this_very_run_is_enrolled_and_only_while_it_is_opted_in_as_it_was() {
        let patch = enrol(&run(), enrolment(), None);
        let mut after = held();
        json_patch::patch(&mut after, &patch).unwrap();
        let labels = json!({
            keys::GROUP: "u1", keys::STRATEGY: "colocateCompleted", keys::ISOLATION: "cluster-all",
        });
        let mut expected = held();
        json_patch::merge(&mut expected, &json!({"metadata": {"labels": labels}}));
        assert_eq!(after, expected);
        for change in [
            json!({"uid": "u2"}),
            json!({"labels": {keys::OPT_IN: "false"}}),
            json!({"labels": null}),
        ] {
            let mut changed = held();
            json_patch::merge(&mut changed, &json!({"metadata": change}));
            json_patch::patch(&mut changed, &patch).expect_err("it was decided on something else");
        }
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
        let (enrolled, object) = enrolled();
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
    fn a_hold_is_dated_once_and_only_while_it_lasts() {
        let patch = date_hold(&run(), "2026-11-23T08:00:00.5Z".parse().unwrap());
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
    fn merge_patches_carry_the_uid_they_are_meant_for() {
        for (patch, uid) in [
            (record_node(&run(), "n2"), "u1"),
            (adopt(&run().key, "p1", Some("s1")), "p1"),
            (nudge("s1", Timestamp::UNIX_EPOCH), "s1"),
        ] {
            assert_eq!(patch["metadata"]["uid"], uid, "{patch}");
        }
    }

    #[test]
    fn adoption_makes_the_run_the_controller_in_the_sets_stead() {
        let patch = adopt(&run().key, "p1", Some("s1"));
        let owner = &patch["metadata"]["ownerReferences"][0];
        assert_eq!(
            (&owner["controller"], owner.get("blockOwnerDeletion")),
            (&json!(true), None)
        );
        let set = json!({"$patch": "delete", "uid": "s1"});
        assert_eq!(patch["metadata"]["ownerReferences"][1], set);
    }
}
