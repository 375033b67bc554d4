//! Writes that rest on an answer of the API server: the question comes first.

use super::decision::{Decision, Question, Wait, Write};
use super::observation::{Message, Observation};
use super::{Plan, SOON, again, at_once};
use crate::placeholder::size::is_automatic;
use crate::sets::InTheWay;
use crate::strategy::Enrolment;
use std::time::Duration;

/// How soon a run that runs without a placeholder looks for room for it again.
const ROOM: Duration = Duration::from_secs(30);
/// How soon a quota has forgotten what is gone.
const A_MOMENT: Duration = Duration::from_secs(1);

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

/// If a quota has no room for what Tekton makes for this run, but for a placeholder.
pub(super) fn free_place(seen: &Observation) -> Option<Plan> {
    match (&seen.short_of, &seen.in_the_way) {
        (None, _) => Some(at_once(Decision::Count(Question::Places))),
        (Some(Message(Some(quota))), Some(InTheWay::Gone)) => {
            let quota = quota.clone();
            Some(again(Decision::Wait(Wait::Places { quota }), A_MOMENT))
        }
        (Some(Message(Some(_))), Some(InTheWay::Placeholder { name, uid })) => {
            let (name, uid) = (name.clone(), uid.clone());
            Some(again(Decision::Write(Write::FreePlace { name, uid }), A_MOMENT))
        }
        (Some(Message(None)), _) | (Some(_), None) => None,
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
