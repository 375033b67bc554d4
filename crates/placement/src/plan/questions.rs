//! Writes that rest on an answer of the API server: the question comes first.

use super::decision::{Decision, Question, Write};
use super::observation::Observation;
use crate::placeholder::size::is_automatic;
use crate::strategy::Enrolment;

/// A PVC that is bound to a zone decides the zone of the run, so the placeholder mounts those that it may. Labels of the
/// run are not in the cache, where those of ten thousand runs would weigh.
pub(super) fn create(seen: &Observation, enrolment: Enrolment) -> Decision {
    if seen.claims.is_none() && !seen.run.claims.is_empty() {
        return Decision::Count(Question::Claims);
    }
    if seen.copied_labels.is_none() && !seen.config.placeholder_copied_labels.is_empty() {
        return Decision::Count(Question::Labels);
    }
    if seen.need.is_none() && seen.run.is_held_by_us() && is_automatic(&seen.run, &seen.config) {
        return Decision::Count(Question::Need);
    }
    Decision::Write(Write::CreatePlaceholder(enrolment))
}

/// Tekton's assistants leave the old node before anything else of the run goes anywhere: as long as one is there, the
/// scheduler sends the others after it.
pub(super) fn without_assistants(seen: &Observation, write: Write) -> Decision {
    match seen.assistants {
        None => Decision::Count(Question::Assistants),
        Some(_) => Decision::Write(write),
    }
}
