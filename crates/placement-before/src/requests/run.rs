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
