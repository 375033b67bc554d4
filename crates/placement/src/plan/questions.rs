//! Writes that rest on an answer of the API server: the question comes first.

use super::decision::{Decision, Enrolment, MoveCause, Question, Write};
use super::observation::Observation;

/// A PVC that is bound to a zone decides the zone of the run, so the placeholder mounts those that it may.
pub(super) fn create(seen: &Observation, enrolment: Enrolment) -> Decision {
    if seen.claims.is_none() && !seen.run.claims.is_empty() {
        return Decision::Count(Question::Claims);
    }
    Decision::Write(Write::CreatePlaceholder(enrolment))
}

/// Tekton's assistants leave before the placeholder: as long as one is on the old node, the scheduler sends the
/// tasks there.
pub(super) fn move_off(seen: &Observation, set: String, cause: MoveCause) -> Decision {
    let pod = seen.waits();
    with_assistants(seen, Write::MoveOff { set, cause, pod })
}

pub(super) fn follow(seen: &Observation, set: String) -> Decision {
    with_assistants(seen, Write::Follow { set })
}

fn with_assistants(seen: &Observation, write: Write) -> Decision {
    match seen.assistants {
        None => Decision::Count(Question::Assistants),
        Some(_) => Decision::Write(write),
    }
}
