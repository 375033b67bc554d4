//! A run that runs, whoever released it: labels first, so that no more pods come without them, then the placeholder.

use super::decision::{Decision, Enrolment, Question, Wait, Write};
use super::observation::{Beginning, Observation, Placeholder};
use super::view::Set;
use super::weight::{Weight, weigh};
use super::{Plan, at_once, questions, room, stuck};

pub(super) fn accompany(seen: &Observation, enrolment: Enrolment) -> Plan {
    match seen.placeholder() {
        _ if !seen.run.is_enrolled() => at_once(join(seen, enrolment)),
        Set::Missing => at_once(questions::create(seen, enrolment)),
        Set::Unusable => at_once(Decision::Wait(Wait::Steady)),
        Set::Usable(set) => room::make_room(seen, set).unwrap_or_else(|| settle(seen, set)),
    }
}

/// Tasks that there are already have no terms: they may be on several nodes, and the others would be sent after one of them
/// at random. A label that comes late comes with them: Tekton copies those of a Pipeline to its run when it has made the first
/// tasks. A placeholder tells that the run was enrolled before and lost its label.
fn join(seen: &Observation, enrolment: Enrolment) -> Decision {
    let had_placeholder = seen.set.as_ref().is_some_and(|set| set.owned);
    match &seen.beginning {
        _ if had_placeholder => Decision::Write(Write::Enrol(enrolment)),
        _ if seen.run.has_children => Decision::Wait(Wait::LabelledTooLate),
        None => Decision::Count(Question::Beginning),
        Some(Beginning::Nothing { .. }) => Decision::Write(Write::Enrol(enrolment)),
        Some(Beginning::Begun) => Decision::Wait(Wait::LabelledTooLate),
    }
}

fn settle(seen: &Observation, set: &Placeholder) -> Plan {
    if seen.has_moved_off() {
        stuck::follow(seen, set)
    } else {
        stay(seen, set)
    }
}

/// A task that does not fit may only be short of what the placeholder asks for, so that comes first.
fn stay(seen: &Observation, set: &Placeholder) -> Plan {
    match weigh(seen, set) {
        Weight::Right => recorded(seen, stuck::move_off_if_stuck(seen, set)),
        Weight::Settling(left) => stuck::move_off_if_stuck(seen, set).no_later_than(left),
        Weight::TooHeavy(write) => at_once(write),
    }
}

/// Where nothing else is to be done, the node is written down.
fn recorded(seen: &Observation, plan: Plan) -> Plan {
    let node = seen
        .live_node()
        .filter(|node| seen.run.node.as_deref() != Some(*node));
    match (&plan.decision, node) {
        (Decision::Wait(Wait::Steady | Wait::Tasks { .. } | Wait::Volume { .. }), Some(node)) => Plan {
            decision: Decision::Write(Write::RecordNode {
                node: node.to_owned(),
            }),
            ..plan
        },
        _ => plan,
    }
}
