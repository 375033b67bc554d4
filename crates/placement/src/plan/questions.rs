//! Writes that rest on an answer of the API server: the question comes first.

use super::decision::{Decision, Question, Wait, Write};
use super::observation::{Message, Observation};
use super::{Plan, SOON, again, at_once};
use crate::placeholder::size::is_automatic;
use crate::strategy::Enrolment;
use std::time::Duration;

/// How soon a run that runs without a placeholder looks for room for it again.
const ROOM: Duration = Duration::from_secs(30);

/// A PVC that is bound to a zone decides the zone of the run, so the placeholder mounts those that it may. Labels of the
/// run are not in the cache, where those of ten thousand runs would weigh. The last question is about room that others take, too.
pub(super) fn create(seen: &Observation, enrolment: Enrolment) -> Plan {
    let held = seen.run.is_held_by_us();
    let question = if seen.claims.is_none() && !seen.run.claims.is_empty() {
        Question::Claims
    } else if seen.copied_labels.is_none() && !seen.config.placeholder_copied_labels.is_empty() {
        Question::Labels
    } else if seen.need.is_none() && held && is_automatic(&seen.run, &seen.config) {
        Question::Need
    } else {
        return create_where_there_is_room(seen, enrolment);
    };
    at_once(Decision::Count(question))
}

fn create_where_there_is_room(seen: &Observation, enrolment: Enrolment) -> Plan {
    match &seen.short_of {
        None => at_once(Decision::Count(Question::Places)),
        Some(Message(None)) => at_once(Decision::Write(Write::CreatePlaceholder(enrolment))),
        Some(Message(Some(quota))) => {
            let quota = quota.clone();
            let pause = if seen.run.is_held_by_us() { SOON } else { ROOM };
            again(Decision::Wait(Wait::Places { quota }), pause)
        }
    }
}

/// Tekton's assistants leave the old node before anything else of the run goes anywhere: as long as one is there, the
/// scheduler sends the others after it.
pub(super) fn without_assistants(seen: &Observation, write: Write) -> Decision {
    match seen.assistants {
        None => Decision::Count(Question::Assistants),
        Some(_) => Decision::Write(write),
    }
}
