//! Event texts for a placeholder that cannot be created, and for its StatefulSet in a quota.

use super::reason::{Note, Reason, note};
use super::seconds;
use crate::messages;
use crate::plan::Observation;
use crate::pod_rejection::{self, PermanentRejection};
use crate::run::Run;

/// The remedy for a policy that requires labels or annotations.
pub const POLICY_REMEDY: &str = " If the policy requires labels or annotations, add them by placeholder-labels, \
                        placeholder-copied-labels or placeholder-annotations in the ConfigMap config-pod-affinity.";

/// The StatefulSet controller cannot create the placeholder's pod. `complaint` is the message of its event.
pub(super) fn no_pod(run: &Run, complaint: Option<&str>) -> Option<Note> {
    let complaint = complaint?;
    let required = messages::is_denied(complaint).then(|| {
        let name = run.key.placeholder();
        format!("{POLICY_REMEDY} Then delete the StatefulSet {name}: the controller recreates it with them.")
    });
    let text = format!(
        "The placeholder's pod cannot be created: {complaint}. {} Raise the quota or relax the policy that the message names.{}",
        if run.is_held_by_us() {
            "The run stays held, and the controller retries every few seconds."
        } else {
            meanwhile(run)
        },
        required.unwrap_or_default()
    );
    Some(note(Reason::PlaceholderRefused, text))
}

/// The run was held until its deadline, and its placeholder has no node.
pub(super) fn deadline(observed: &Observation) -> Note {
    let (why, remedy) = match (&observed.pod, &observed.messages.failed_create) {
        (None, Some(rejected)) => (
            format!(": its placeholder's pod cannot be created: {rejected}"),
            "raise the quota or relax the policy that the message names, which can reject the pods of its tasks as well",
        ),
        (pod, _) => (
            pod.as_ref()
                .and_then(|pod| pod.unschedulable.as_ref())
                .map_or_else(String::new, |why| format!(": {}", why.message)),
            "add nodes, or raise hold-deadline if new nodes take longer",
        ),
    };
    let text = format!(
        "The hold reached hold-deadline ({}) without a node{why}. The run is released without a node; {remedy}.",
        seconds(observed.config.hold_deadline),
    );
    note(Reason::HoldDeadlineExceeded, text)
}

/// A quota rejected the placeholder of an older run, so this run does not try yet.
pub(super) fn older_runs_first(run: &Run) -> Note {
    let text = format!(
        "The placeholder waits for older runs of this namespace, because a ResourceQuota rejected one of their placeholders. The \
         controller tries the two oldest runs first. {} Raise the quota or remove what uses it up.",
        meanwhile(run)
    );
    note(Reason::PlaceholderRefused, text)
}

/// A quota has too little room for the placeholder and the StatefulSets of Tekton, without which Tekton fails a run.
pub(super) fn no_place(run: &Run, quota: &str) -> Note {
    let text = format!(
        "{quota} has no room for placeholders beside the StatefulSets that Tekton creates for PVCs (affinity \
         assistants). Tekton fails a run if the quota refuses one, so these StatefulSets come first. {} Raise the quota by \
         one for each labelled run at a time.",
        meanwhile(run)
    );
    note(Reason::PlaceholderRefused, text)
}

fn meanwhile(run: &Run) -> &'static str {
    if run.is_held_by_us() {
        "The run stays held until there is room, at the latest until its hold-deadline."
    } else {
        "Meanwhile, the run continues without a placeholder: between tasks, other runs can use its node."
    }
}

/// Placeholders used the room in a quota for a StatefulSet of Tekton, without which Tekton fails this run.
pub(super) fn frees_places(placeholders: &[String], quota: &str) -> Note {
    let placeholders = placeholders.join(", ");
    let text = format!(
        "{quota} has no room for the StatefulSets that Tekton creates for this run's PVCs (affinity assistants), and Tekton fails a \
         run if the quota refuses one. The hold of this run has ended, so the controller deleted these placeholders, whose runs continue \
         without a placeholder: {placeholders}. Raise the quota by one for each labelled run at a time."
    );
    note(Reason::MadeRoom, text)
}

/// A `LimitRange` rejected the placeholder's pod, and the controller changes the size.
pub(super) fn within_limits(complaint: &str) -> Note {
    let text = format!(
        "A LimitRange of this namespace rejects the placeholder's pod: {complaint}. The controller changes the requests of the pod. \
         To avoid the delay, set placeholder-cpu and placeholder-memory in the configuration of pod-affinity to what the \
         LimitRange allows."
    );
    note(Reason::PlaceholderRefused, text)
}

/// The controller releases a run whose podTemplate Kubernetes rejects, so that the run fails as soon as without pod-affinity.
pub(super) fn invalid_template(message: &str) -> String {
    format!(
        "Released without a node: Kubernetes rejects the podTemplate of this run, for the placeholder as for the pods of the tasks: \
         {message}. Correct the podTemplate, and create the run again."
    )
}

/// Why the controller releases a run whose placeholder can never be created.
pub(super) fn impossible(complaint: &str) -> String {
    match pod_rejection::parse(complaint) {
        Some(PermanentRejection::OutOfLimitRange(_)) => format!(
            "Released without a node, because LimitRanges of this namespace reject its placeholder: {complaint}. \
             Its pods will share the node that the first of them gets, but between tasks other runs can take that node. Set \
             placeholder-cpu and placeholder-memory in the configuration of pod-affinity to what all LimitRanges allow."
        ),
        Some(PermanentRejection::NamespaceConflict) => format!(
            "Released without a node: the podTemplate conflicts with the restrictions of this namespace, for the placeholder as for \
             the pods of the tasks: {complaint}. Correct the node selector or the tolerations, and create the run again."
        ),
        Some(PermanentRejection::MissingObject) | None => format!(
            "Released without a node: its placeholder cannot be created, nor can pods of its tasks that refer to the same \
             object: {complaint}. Create the object, or correct its name in the PipelineRun."
        ),
    }
}
