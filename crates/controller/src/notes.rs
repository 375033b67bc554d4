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
    match error.operation {
        Operation::Release => Some(release_refused(error)),
        // The release of the run reports the message.
        Operation::Placeholder if error.invalid_template().is_some() => None,
        Operation::Placeholder | Operation::Claims | Operation::Labels | Operation::Places => {
            Some(placeholder_refused(error))
        }
        Operation::Enrol | Operation::DateHold | Operation::RecordNode => Some(enrol_refused(error)),
        Operation::CleanUp => Some(clean_up_refused(error)),
        Operation::Change
        | Operation::Shrink
        | Operation::Wake
        | Operation::Retry
        | Operation::Assistants => Some(move_refused(error)),
        Operation::Sync | Operation::Count | Operation::Need | Operation::RecordUse | Operation::KeepNode => {
            None
        }
    }
}

fn release_refused(error: &StepError) -> Note {
    let advice = match error.cause() {
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
            error.fault
        ),
    )
}

fn placeholder_refused(error: &StepError) -> Note {
    let required = if error.cause() == ErrorCause::Denied {
        POLICY_REMEDY
    } else {
        ""
    };
    let advice = match error.cause() {
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
            error.fault
        ),
    )
}

fn enrol_refused(error: &StepError) -> Note {
    note(
        Reason::EnrolRefused,
        format!(
            "The run could not be labelled; the controller retries: {}.",
            error.fault
        ),
    )
}

fn clean_up_refused(error: &StepError) -> Note {
    note(
        Reason::CleanUpRefused,
        format!(
            "The placeholder of this run could not be removed; the controller retries: {}.",
            error.fault
        ),
    )
}

fn move_refused(error: &StepError) -> Note {
    let advice = match error.cause() {
        ErrorCause::Forbidden => format!(" {INCOMPLETE}"),
        ErrorCause::Denied => {
            " An admission policy of this cluster rejects changes of the placeholder; exempt the placeholder or change the policy."
                .to_owned()
        }
        _ => String::new(),
    };
    let text = format!(
        "The placeholder could not be moved or resized; the controller retries: {}.{advice}",
        error.fault
    );
    note(Reason::MoveRefused, text)
}

#[cfg(test)]
mod tests;
