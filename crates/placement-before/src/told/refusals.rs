//! What the API server does not let in, in words: a placeholder, its pod, or another step; and what to do about it. Pure.

fn is_denial(message: &str) -> bool {
    message.contains("denied the request") || message.contains("denied request")
}
use super::reason::{Note, Reason, note};
use crate::impossible::{self, Impossible};
use crate::plan::Observation;
use placement::requests::Operation;
use placement::run::Run;

/// What else there is to do about a policy.
const REQUIRED: &str = " If the policy requires labels or annotations, add them by placeholder-labels, \
                        placeholder-copied-labels or placeholder-annotations in the ConfigMap config-pod-affinity.";

/// What there is to do about a right that is missing.
const INCOMPLETE: &str =
    "The controller's ClusterRole is incomplete; apply the manifests of the release again.";
/// Likewise about what may pass by itself.
const PATIENCE: &str = "No action is needed, unless this error persists.";

/// Its controller is refused the pod, and says why.
pub fn no_pod(seen: &Observation) -> Option<Note> {
    let complaint = complaint(seen)?;
    let required = is_denial(complaint).then(|| {
        let name = seen.run.key.placeholder();
        format!("{REQUIRED} Then delete the StatefulSet {name}: the controller recreates it with them.")
    });
    let text = format!(
        "The placeholder's pod cannot be created: {complaint}. The run stays held, and the controller retries every \
         few seconds. Raise the quota or relax the policy that the message names.{}",
        required.unwrap_or_default()
    );
    Some(note(Reason::PlaceholderRefused, text))
}

/// It would take the place of a StatefulSet without which Tekton fails a run.
pub fn no_place(run: &Run, quota: &str) -> Note {
    let meanwhile = if run.is_held_by_us() {
        "The run stays held until there is room, at the latest until its hold-deadline."
    } else {
        "Meanwhile, the run goes on without a placeholder: between tasks other runs can take its node."
    };
    let text = format!(
        "{quota} has no room for the placeholder's StatefulSet beside those that Tekton creates for PVCs (affinity \
         assistants). Tekton fails a run if the quota refuses one, so the placeholder gives way. {meanwhile} Raise the quota by \
         one for each labelled run at a time."
    );
    note(Reason::PlaceholderRefused, text)
}

/// It had the place of one without which Tekton fails this run.
pub fn frees_place(seen: &Observation, placeholder: &str) -> Note {
    let quota = seen.short_of.as_ref().and_then(|quota| quota.text());
    let quota = quota.unwrap_or_default();
    let text = format!(
        "{quota} has no room for the StatefulSets that Tekton creates for this run's PVCs (affinity assistants), and Tekton fails a \
         run if the quota refuses one. The hold of this run is over, so the controller deleted the placeholder {placeholder} of \
         another run, which goes on without one. Raise the quota by one for each labelled run at a time."
    );
    note(Reason::MadeRoom, text)
}

/// Why the placeholder has no pod, as its controller says it.
fn complaint(seen: &Observation) -> Option<&str> {
    seen.complaint.as_ref()?.text()
}

/// Likewise, and something is done about it.
pub fn within_limits(seen: &Observation) -> Option<Note> {
    let text = format!(
        "A LimitRange of this namespace does not let the placeholder's pod in: {}. The controller changes what it asks for. To \
         avoid the delay, set placeholder-cpu and placeholder-memory in the configuration of pod-affinity to what the \
         LimitRange allows.",
        complaint(seen)?
    );
    Some(note(Reason::PlaceholderRefused, text))
}

/// Why a run is released for which there will be no placeholder.
pub fn impossible(seen: &Observation) -> String {
    let complaint = complaint(seen).unwrap_or_default();
    match impossible::told_by(complaint) {
        Some(Impossible::OutOfLimits(_)) => format!(
            "Released without a node, because a LimitRange of this namespace does not let its placeholder in: {complaint}. \
             Its pods will share the node that the first of them gets, but between tasks other runs can take that node. Set \
             placeholder-cpu and placeholder-memory in the configuration of pod-affinity to what the LimitRange allows."
        ),
        Some(Impossible::RefersToNothing) | None => format!(
            "Released without a node: its placeholder cannot be created, nor can pods of its tasks that refer to the same \
             object: {complaint}. Create the object, or correct its name in the PipelineRun."
        ),
    }
}
