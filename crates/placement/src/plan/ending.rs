//! The end of a run, and the opt-out: what is deleted and what is kept.
//!
//! A run with `isolateAlways` that ends after it gave up its node, and before it has another, keeps no node.

use super::action::{Action, Event, New, PodChange, ReleaseCause};
use super::decision::{Decision, IgnoreReason, Wait};
use super::inputs::{Inputs, Read};
use super::observation::{Observation, Placeholder, PlaceholderPod};
use super::{Plan, SOON, change_run, creation, held, scaled_down, with_timer, without_timer};
use crate::automatic_reserve;
use crate::kept_node::NewKeptNode;
use crate::node::NodeState;
use crate::placeholder::size::is_automatic;
use crate::run::SpecStatus;
use crate::strategy::Strategy;
use std::time::Duration;

/// The run is being deleted: everything is deleted, including a reserved node. Finalizers of other controllers may
/// delay garbage collection for long, so the plan does not wait for it.
pub(super) fn on_deletion(observed: &Observation) -> Decision {
    let adopted = observed.live_pod().filter(|pod| pod.adopted);
    delete(
        observed,
        observed.placeholder().usable(),
        adopted,
        IgnoreReason::Done,
    )
}

/// The run is done: its node becomes free, unless the strategy keeps the node.
pub(super) fn on_done(observed: &Observation, inputs: &Inputs) -> Result<Decision, Read> {
    let placeholder = observed.placeholder().usable();
    match (kept_pod(observed), placeholder) {
        (Some(pod), _) if !pod.adopted => Ok(adopt(pod)),
        (kept, Some(placeholder)) => {
            let keep = new_kept_node(observed).filter(|_| kept.is_none());
            let (name, event) = match (kept, &keep) {
                (Some(_), _) => ("keep_pod", Some(Event::NodeKept)),
                (None, Some(_)) => ("keep_node", None),
                (None, None) => ("delete_placeholder", None),
            };
            let keep = keep.map(|node| Action::Create(New::KeptNode(node))).into_iter();
            let actions = keep
                .chain([placeholder.delete()])
                .chain(record_usage(observed, inputs)?);
            Ok(Decision::act(name, event, actions.collect::<Vec<_>>()))
        }
        (_, None) => Ok(Decision::Ignore(IgnoreReason::Done)),
    }
}

/// The pod that keeps the node comes before the placeholder goes: the node is never without a pod that autoscalers respect.
fn new_kept_node(observed: &Observation) -> Option<NewKeptNode> {
    let pod = observed
        .live_pod()
        .filter(|pod| !pod.adopted && observed.node == NodeState::Usable)
        .filter(|_| !observed.cluster.keeps_node)?;
    NewKeptNode::after_run(
        &observed.run,
        &observed.config,
        pod.node.as_deref()?,
        &pod.tolerations,
        &observed.cluster.kept_nodes,
        observed.now,
    )
}

/// The run owns the pod before the StatefulSet is deleted: otherwise the pod would be deleted with it.
fn adopt(pod: &PlaceholderPod) -> Decision {
    Decision::act(
        "adopt_pod",
        None,
        [Action::Pod(PodChange::Adopt(pod.uid.clone()))],
    )
}

/// Records on a successful run what a later run of the same Pipeline will request. The record is best effort, so it is
/// sent last.
fn record_usage(observed: &Observation, inputs: &Inputs) -> Result<Option<Action>, Read> {
    let run = &observed.run;
    if !run.succeeded || run.used.is_some() || !is_automatic(run, &observed.config) {
        return Ok(None);
    }
    let usage = inputs.usage.as_ref().ok_or(Read::Usage)?;
    let used = (!usage.is_empty()).then(|| automatic_reserve::format_record(&automatic_reserve::peak(usage)));
    Ok(used.map(|used| change_run(observed, |run| run.used = Some(used))))
}

/// The pod that reserves the node after the run, if the strategy says so.
fn kept_pod(observed: &Observation) -> Option<&PlaceholderPod> {
    let is_kept =
        |pod: &&PlaceholderPod| pod.node.is_some() && !pod.shape.mounts && !observed.is_scaled_down();
    let keeps = observed.run.is_enrolled() && observed.enrolment().strategy == Strategy::IsolateAlways;
    observed.live_pod().filter(is_kept).filter(|_| keeps)
}

/// An opted-out run is neither held nor moved. Before its release, the run gives up its placeholder if Tekton's assistants need the
/// place in a quota. A run that has started keeps its labels, because some of its pods have the terms already.
pub(super) fn on_opt_out(observed: &Observation, inputs: &Inputs) -> Result<Plan, Read> {
    let run = &observed.run;
    if run.is_held_by_us() {
        let shortage = held::shortage(observed, inputs, Duration::ZERO)?;
        let frees_places = shortage.and_then(|shortage| creation::free_places(observed, shortage));
        let release = || without_timer(held::release(observed, ReleaseCause::OptedOut, None));
        return Ok(frees_places.unwrap_or_else(release));
    }
    if run.status == SpecStatus::Pending && run.is_enrolled() {
        let withdrawn = change_run(observed, |run| run.group = None);
        return Ok(without_timer(Decision::act("unenrol", None, [withdrawn])));
    }
    match observed.placeholder().usable() {
        Some(placeholder) if placeholder.spec.node_given_up().is_some() => {
            delete_after_move(observed, inputs, placeholder)
        }
        placeholder => Ok(without_timer(delete(
            observed,
            placeholder,
            None,
            IgnoreReason::NotOptedIn,
        ))),
    }
}

/// Deletes the placeholder after a move. Until then, Tekton's assistants may wait for the placeholder to be bound, and
/// tasks without terms may depend on the assistants.
fn delete_after_move(
    observed: &Observation,
    inputs: &Inputs,
    placeholder: &Placeholder,
) -> Result<Plan, Read> {
    if observed.is_scaled_down() {
        return scaled_down::on_scaled_down(observed, inputs, placeholder);
    }
    let mut assistants = inputs.assistants.as_ref().ok_or(Read::Assistants)?.iter();
    if assistants.any(|assistant| assistant.node.is_none()) {
        Ok(with_timer(Decision::Wait(Wait::Assistants), SOON))
    } else {
        Ok(without_timer(delete(
            observed,
            Some(placeholder),
            None,
            IgnoreReason::NotOptedIn,
        )))
    }
}

/// Deletes what exists. An event reports the deletion if the run continues.
pub(super) fn delete(
    observed: &Observation,
    placeholder: Option<&Placeholder>,
    pod: Option<&PlaceholderPod>,
    otherwise: IgnoreReason,
) -> Decision {
    let placeholder = placeholder.map(Placeholder::delete);
    let deletes: Vec<_> = placeholder
        .into_iter()
        .chain(pod.map(PlaceholderPod::delete))
        .collect();
    if deletes.is_empty() {
        return Decision::Ignore(otherwise);
    }
    let goes_on = !(observed.run.deleting || observed.run.done);
    Decision::act("delete_placeholder", goes_on.then_some(Event::CleanedUp), deletes)
}
