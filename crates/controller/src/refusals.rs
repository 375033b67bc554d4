//! Event texts for what the API server rejects: a placeholder, its pod, or another step. Each text has a remedy. Pure.

use crate::api_error::{ErrorCause, StepError};
use crate::reason::{Note, Reason, note};
use placement::messages;
use placement::pod_rejection::{self, PermanentRejection};
use placement::requests::Operation;
use placement::run::Run;

/// The remedy for a policy that requires labels or annotations.
const REQUIRED: &str = " If the policy requires labels or annotations, add them by placeholder-labels, \
                        placeholder-copied-labels or placeholder-annotations in the ConfigMap config-pod-affinity.";

/// The remedy for a missing right.
const INCOMPLETE: &str =
    "The controller's ClusterRole is incomplete; apply the manifests of the release again.";
/// The advice for an error that may be temporary.
const PATIENCE: &str = "No action is needed, unless this error persists.";

/// The note about a failed step, if the user should know of the failure.
pub(crate) fn of(refused: &StepError) -> Option<Note> {
    match refused.operation {
        Operation::Release => Some(release_refused(refused)),
        Operation::Placeholder | Operation::Claims | Operation::Labels | Operation::Places => {
            Some(placeholder_refused(refused))
        }
        Operation::Enrol | Operation::DateHold | Operation::RecordNode => Some(enrol_refused(refused)),
        Operation::CleanUp => Some(clean_up_refused(refused)),
        Operation::Change
        | Operation::Shrink
        | Operation::Wake
        | Operation::Retry
        | Operation::Assistants => Some(move_refused(refused)),
        Operation::Sync | Operation::Lookup | Operation::Count | Operation::Need | Operation::RecordUse => {
            None
        }
    }
}

/// The StatefulSet controller cannot create the placeholder's pod. `complaint` is the message of its event.
pub(crate) fn no_pod(run: &Run, complaint: Option<&str>) -> Option<Note> {
    let complaint = complaint?;
    let required = messages::is_denied(complaint).then(|| {
        let name = run.key.placeholder();
        format!("{REQUIRED} Then delete the StatefulSet {name}: the controller recreates it with them.")
    });
    let text = format!(
        "The placeholder's pod cannot be created: {complaint}. The run stays held, and the controller retries every \
         few seconds. Raise the quota or relax the policy that the message names.{}",
        required.unwrap_or_default()
    );
    Some(note(Reason::PlaceholderRefused, text))
}

/// A quota rejected the placeholder of an older run, so this run does not try yet.
pub(crate) fn older_runs_first(run: &Run) -> Note {
    let text = format!(
        "The placeholder waits for older runs of this namespace, because a ResourceQuota rejected one of their placeholders. The \
         controller tries the two oldest runs first. {} Raise the quota or remove what uses it up.",
        meanwhile(run)
    );
    note(Reason::PlaceholderRefused, text)
}

/// The placeholder would use the room in a quota for a StatefulSet of Tekton. Without that StatefulSet, Tekton fails a run.
pub(crate) fn no_place(run: &Run, quota: &str) -> Note {
    let text = format!(
        "{quota} has no room for the placeholder's StatefulSet beside those that Tekton creates for PVCs (affinity \
         assistants). Tekton fails a run if the quota refuses one, so the placeholder gives way. {} Raise the quota by \
         one for each labelled run at a time.",
        meanwhile(run)
    );
    note(Reason::PlaceholderRefused, text)
}

fn meanwhile(run: &Run) -> &'static str {
    if run.is_held_by_us() {
        "The run stays held until there is room, at the latest until its hold-deadline."
    } else {
        "Meanwhile, the run goes on without a placeholder: between tasks other runs can take its node."
    }
}

/// The placeholder of another run used the room in a quota for a StatefulSet of Tekton, without which Tekton fails this run.
pub(crate) fn frees_place(placeholder: &str, quota: &str) -> Note {
    let text = format!(
        "{quota} has no room for the StatefulSets that Tekton creates for this run's PVCs (affinity assistants), and Tekton fails a \
         run if the quota refuses one. The hold of this run is over, so the controller deleted the placeholder {placeholder} of \
         another run, which goes on without one. Raise the quota by one for each labelled run at a time."
    );
    note(Reason::MadeRoom, text)
}

/// A `LimitRange` rejected the placeholder's pod, and the controller changes the size.
pub(crate) fn within_limits(complaint: &str) -> Note {
    let text = format!(
        "A LimitRange of this namespace does not let the placeholder's pod in: {complaint}. The controller changes what it asks \
         for. To avoid the delay, set placeholder-cpu and placeholder-memory in the configuration of pod-affinity to what the \
         LimitRange allows."
    );
    note(Reason::PlaceholderRefused, text)
}

/// Why the controller releases a run whose placeholder can never be created.
pub(crate) fn impossible(complaint: &str) -> String {
    match pod_rejection::parse(complaint) {
        Some(PermanentRejection::OutOfLimitRange(_)) => format!(
            "Released without a node, because a LimitRange of this namespace does not let its placeholder in: {complaint}. \
             Its pods will share the node that the first of them gets, but between tasks other runs can take that node. Set \
             placeholder-cpu and placeholder-memory in the configuration of pod-affinity to what the LimitRange allows."
        ),
        Some(PermanentRejection::MissingObject) | None => format!(
            "Released without a node: its placeholder cannot be created, nor can pods of its tasks that refer to the same \
             object: {complaint}. Create the object, or correct its name in the PipelineRun."
        ),
    }
}

fn release_refused(refused: &StepError) -> Note {
    let advice = match refused.cause() {
        ErrorCause::Denied => {
            "Usual cause: Tekton's configuration or version changed while this run was held, so that Tekton now takes \
             the release for a change of the spec. If this error persists, create the run again."
        }
        ErrorCause::WebhookDown => {
            "A run cannot start while Tekton's webhook is unavailable; check its pods."
        }
        ErrorCause::Forbidden => INCOMPLETE,
        _ => PATIENCE,
    };
    note(
        Reason::ReleaseRefused,
        format!(
            "The run could not be released; the controller retries: {}. {advice}",
            refused.fault
        ),
    )
}

fn placeholder_refused(refused: &StepError) -> Note {
    let required = if refused.cause() == ErrorCause::Denied {
        REQUIRED
    } else {
        ""
    };
    let advice = match refused.cause() {
        ErrorCause::Quota => "Raise the ResourceQuota of this namespace or remove what uses it up.",
        ErrorCause::Denied => {
            "An admission policy of this cluster rejects the placeholder; exempt the placeholder or change the policy."
        }
        ErrorCause::Invalid => {
            "A setting that the placeholder copies from this run's podTemplate is not valid there."
        }
        ErrorCause::Forbidden => INCOMPLETE,
        _ => PATIENCE,
    };
    note(
        Reason::PlaceholderRefused,
        format!(
            "The placeholder could not be created; the controller retries: {}. {advice}{required}",
            refused.fault
        ),
    )
}

fn enrol_refused(refused: &StepError) -> Note {
    note(
        Reason::EnrolRefused,
        format!(
            "The run could not be labelled; the controller retries: {}.",
            refused.fault
        ),
    )
}

fn clean_up_refused(refused: &StepError) -> Note {
    note(
        Reason::CleanUpRefused,
        format!(
            "The placeholder of this run could not be removed; the controller retries: {}.",
            refused.fault
        ),
    )
}

fn move_refused(refused: &StepError) -> Note {
    let advice = match refused.cause() {
        ErrorCause::Forbidden => format!(" {INCOMPLETE}"),
        ErrorCause::Denied => {
            " An admission policy of this cluster rejects changes of the placeholder; exempt the placeholder or change the policy."
                .to_owned()
        }
        _ => String::new(),
    };
    let text = format!(
        "The placeholder could not be moved or resized; the controller retries: {}.{advice}",
        refused.fault
    );
    note(Reason::MoveRefused, text)
}
