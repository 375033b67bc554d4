//! The notes about a plan and its result: `placement::notes` has the texts about the run, and this file those about rejected requests.

use crate::api_error::{ErrorCause, StepError};
use crate::write::Effect;
use placement::notes::{Note, POLICY_REMEDY, Reason, note, of_event, of_state};
use placement::plan::{Decision, Observation, Plan};
use placement::requests::Operation;

/// The remedy for a missing right.
const INCOMPLETE: &str =
    "The controller's ClusterRole is incomplete; apply the manifests of the release again.";
/// The advice for an error that may be temporary.
const PATIENCE: &str = "No action is needed, unless this error persists.";

/// The notes about a plan and its result.
pub(crate) fn notes(observed: &Observation, plan: &Plan, result: &Result<Effect, StepError>) -> Vec<Note> {
    let mut notes = of_state(observed, plan);
    match (&plan.decision, result) {
        (Decision::Act(step), Ok(Effect::Written)) => {
            notes.extend(step.event.iter().flat_map(|event| of_event(observed, event)));
        }
        (_, Ok(_)) => {}
        (_, Err(error)) => notes.extend(of_rejection(error)),
    }
    notes
}

/// The note about a failed step, if the user should know of the failure.
fn of_rejection(error: &StepError) -> Option<Note> {
    let cause = error.cause();
    let (reason, what, advice) = match error.operation {
        Operation::Release => (
            Reason::ReleaseRefused,
            "The run could not be released",
            release_advice(cause),
        ),
        // The release of the run reports the message.
        Operation::Placeholder if error.invalid_template().is_some() => return None,
        Operation::Placeholder | Operation::Claims | Operation::Labels | Operation::Places => (
            Reason::PlaceholderRefused,
            "The placeholder could not be created",
            placeholder_advice(cause),
        ),
        Operation::Enrol | Operation::DateHold | Operation::RecordNode => {
            (Reason::EnrolRefused, "The run could not be labelled", "")
        }
        Operation::CleanUp => (
            Reason::CleanUpRefused,
            "The placeholder of this run could not be removed",
            "",
        ),
        Operation::Change
        | Operation::Shrink
        | Operation::Wake
        | Operation::Retry
        | Operation::Assistants => (
            Reason::MoveRefused,
            "The placeholder could not be moved or resized",
            move_advice(cause),
        ),
        Operation::Sync | Operation::Count | Operation::Need | Operation::RecordUse | Operation::KeepNode => {
            return None;
        }
    };
    let space = if advice.is_empty() { "" } else { " " };
    let remedy = match (reason, cause) {
        (Reason::PlaceholderRefused, ErrorCause::Denied) => POLICY_REMEDY,
        _ => "",
    };
    let fault = &error.fault;
    let text = format!("{what}; the controller retries: {fault}.{space}{advice}{remedy}");
    Some(note(reason, text))
}

fn release_advice(cause: ErrorCause) -> &'static str {
    match cause {
        ErrorCause::Denied => {
            "Usual cause: Tekton's configuration or version changed while this run was held, so that Tekton now takes \
             the release for a change of the spec. If this error persists, create the run again."
        }
        ErrorCause::WebhookDown => {
            "A run cannot start while Tekton's webhook is unavailable; check its pods."
        }
        ErrorCause::Forbidden => INCOMPLETE,
        _ => PATIENCE,
    }
}

fn placeholder_advice(cause: ErrorCause) -> &'static str {
    match cause {
        ErrorCause::Quota => "Raise the ResourceQuota of this namespace or remove what uses it up.",
        ErrorCause::Denied => {
            "An admission policy of this cluster rejects the placeholder; exempt the placeholder or change the policy."
        }
        ErrorCause::Invalid => {
            "A setting that the placeholder copies from this run's podTemplate is not valid there."
        }
        ErrorCause::Forbidden => INCOMPLETE,
        _ => PATIENCE,
    }
}

fn move_advice(cause: ErrorCause) -> &'static str {
    match cause {
        ErrorCause::Forbidden => INCOMPLETE,
        ErrorCause::Denied => {
            "An admission policy of this cluster rejects changes of the placeholder; exempt the placeholder or change the policy."
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests;
