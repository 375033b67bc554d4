//! What a run carries of pod-affinity: labels, annotations and the hold. The patch changes the observed state to the
//! wanted state.

use super::{Object, Operation, Request, Verb, request as request_for};
use crate::keys;
use crate::opt_in::DECLINED;
use crate::raw::{add, remove, replace, test};
use crate::run::{HeldFrom, Run, SpecStatus};
use crate::strategy::Enrolment;
use json_patch::{Patch, PatchOperation};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What a run carries of pod-affinity, or should carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunState {
    /// The hold annotation. Removing the hold also clears `spec.status`.
    pub hold: Option<HeldFrom>,
    /// The labels that make the run a group.
    pub group: Option<GroupLabels>,
    /// The annotation of the run's node.
    pub node: Option<String>,
    /// The annotation of what the run's tasks requested at once.
    pub used: Option<String>,
}

/// The labels of a group; a user may have removed one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLabels {
    strategy: Option<String>,
    isolation: Option<String>,
}

impl RunState {
    /// What the run carries.
    pub fn from_run(run: &Run) -> Self {
        Self {
            hold: run.hold.then_some(run.held_from),
            group: run.is_enrolled().then(|| GroupLabels {
                strategy: run.strategy.clone(),
                isolation: run.isolation.clone(),
            }),
            node: run.node.clone(),
            used: run.used.clone(),
        }
    }
}

impl From<Enrolment> for GroupLabels {
    fn from(Enrolment { strategy, isolation }: Enrolment) -> Self {
        Self {
            strategy: Some(strategy.to_string()),
            isolation: Some(isolation.as_str().to_owned()),
        }
    }
}

/// The request that changes the run to the wanted state; `None` if both are equal.
pub(super) fn request(run: &Run, wanted: &RunState) -> Option<Request> {
    let observed = RunState::from_run(run);
    let operation = if observed.hold.is_some() && wanted.hold.is_none() {
        Operation::Release
    } else if observed.hold != wanted.hold {
        Operation::DateHold
    } else if observed.group != wanted.group {
        Operation::Enrol
    } else if observed.node != wanted.node {
        Operation::RecordNode
    } else if observed.used != wanted.used {
        Operation::RecordUse
    } else {
        return None;
    };
    let verb = match operation {
        Operation::RecordNode | Operation::RecordUse => {
            Verb::Merge(annotations_patch(run, &observed, wanted))
        }
        _ => Verb::Json(patch(run, &observed, wanted)),
    };
    Some(request_for(operation, Object::Run, verb))
}

/// The patch fails as a whole unless the run has this UID, is still Pending if it was, still has the observed hold and,
/// if the run is to be enrolled, still has the observed opt-in label.
fn patch(run: &Run, observed: &RunState, wanted: &RunState) -> Patch {
    let mut patch = vec![test(&["metadata", "uid"], run.key.uid.as_str())];
    if run.status == SpecStatus::Pending {
        patch.push(test(&["spec", "status"], keys::PENDING));
    }
    let released = observed.hold.is_some() && wanted.hold.is_none();
    if released {
        patch.push(remove(&["spec", "status"]));
    }
    patch.extend(match &wanted.group {
        Some(group) => join_group(run, observed, group),
        None => leave_group(observed, run),
    });
    patch.extend(annotations(observed, wanted).map(|(key, value)| {
        let at = ["metadata", "annotations", key];
        value.map_or_else(|| remove(&at), |value| add(&at, value))
    }));
    let mark = ["metadata", "annotations", keys::HOLD];
    match (observed.hold, wanted.hold) {
        (was, is) if was == is => {}
        (_, None) => patch.push(remove(&mark)),
        (was, Some(is)) => {
            patch.extend(was.map(|was| test(&mark, was.to_string())));
            patch.push(add(&mark, is.to_string()));
        }
    }
    Patch(patch)
}

/// A merge patch, because a run without annotations has no member to which a JSON patch could add.
fn annotations_patch(run: &Run, observed: &RunState, wanted: &RunState) -> Value {
    let annotations: BTreeMap<_, _> = annotations(observed, wanted).collect();
    json!({"metadata": {"uid": run.key.uid, "annotations": annotations}})
}

/// The changed annotations, without the hold.
fn annotations<'a>(
    observed: &'a RunState,
    wanted: &'a RunState,
) -> impl Iterator<Item = (&'static str, Option<&'a str>)> {
    let all = [
        (keys::NODE, &observed.node, &wanted.node),
        (keys::USED, &observed.used, &wanted.used),
    ];
    let changed = all.into_iter().filter(|(_, was, is)| was != is);
    changed.map(|(key, _, is)| (key, is.as_deref()))
}

/// Starts a held run without a node, for a user: one write opts the run out and releases it. The write fails as a whole
/// under the conditions of any release.
pub fn release_by_hand(run: &Run) -> Patch {
    let mut patch = opt_out(run);
    let observed = RunState::from_run(run);
    let released = RunState {
        hold: None,
        group: None,
        ..observed.clone()
    };
    patch.0.extend(self::patch(run, &observed, &released).0);
    patch
}

/// Opts the run of this UID out, if its opt-in label has not changed.
pub fn opt_out(run: &Run) -> Patch {
    let mut patch = vec![test(&["metadata", "uid"], run.key.uid.as_str())];
    if let Some(value) = run.opt_in.as_deref().filter(|value| *value != DECLINED) {
        let label = ["metadata", "labels", keys::OPT_IN];
        patch.extend([test(&label, value), replace(&label, DECLINED)]);
    }
    Patch(patch)
}

/// The test of the opt-in label also proves that the run has labels to add to.
fn join_group(run: &Run, observed: &RunState, group: &GroupLabels) -> Vec<PatchOperation> {
    let label = |key| ["metadata", "labels", key];
    let opt_in = run.opt_in.as_deref().unwrap_or_default();
    let mut patch = vec![test(&label(keys::OPT_IN), opt_in)];
    if observed.group.as_ref() != Some(group) {
        patch.push(add(&label(keys::GROUP), run.key.uid.as_str()));
        let others = [
            (keys::STRATEGY, &group.strategy),
            (keys::ISOLATION, &group.isolation),
        ];
        let others = others
            .into_iter()
            .filter_map(|(key, value)| Some((key, value.as_deref()?)));
        patch.extend(others.map(|(key, value)| add(&label(key), value)));
    }
    patch
}

fn leave_group(observed: &RunState, run: &Run) -> Vec<PatchOperation> {
    let Some(group) = &observed.group else {
        return Vec::new();
    };
    let label = |key| ["metadata", "labels", key];
    let mut patch = vec![
        test(&label(keys::GROUP), run.key.uid.as_str()),
        remove(&label(keys::GROUP)),
    ];
    let others = [
        (keys::STRATEGY, &group.strategy),
        (keys::ISOLATION, &group.isolation),
    ];
    let there = others.into_iter().filter(|(_, value)| value.is_some());
    patch.extend(there.map(|(key, _)| remove(&label(key))));
    patch
}

#[cfg(test)]
mod tests;
