//! A run that runs, whoever released it: labels first, so that no more pods come without them, then the placeholder.

use super::decision::{Decision, Wait, Why, Write};
use super::observation::{Observation, Placeholder};
use super::shape::{Reshape, reshape};
use super::view::Set;
use super::{Plan, at_once, ending, questions, room, stuck};
use crate::run::SpecStatus;
use crate::strategy::Enrolment;

pub(super) fn accompany(seen: &Observation, enrolment: Enrolment) -> Plan {
    match seen.placeholder() {
        _ if !seen.run.is_enrolled() => at_once(join(seen, enrolment)),
        Set::Missing => questions::create(seen, enrolment),
        Set::Unusable => at_once(Decision::Wait(Wait::Steady)),
        Set::Usable(set) => room::make_room(seen, set).unwrap_or_else(|| settle(seen, set)),
    }
}

/// Tekton creates the first tasks of a run in the moment in which it starts, and they would have no terms: they may be on
/// several nodes, and the others would be sent after one of them at random, away from a volume that they share. So a run is
/// enrolled only while it cannot start. A placeholder says that it was, and lost its labels; but not where our hold is still
/// noted, since our own release removes that: somebody else ended a hold that was too young to have enrolled the run.
fn join(seen: &Observation, enrolment: Enrolment) -> Decision {
    match (seen.placeholder(), seen.run.hold) {
        (Set::Usable(_), false) => Decision::Write(Write::Enrol(enrolment)),
        (Set::Usable(set), true) => ending::delete_or_leave(Some(set.uid.clone()), None, Why::NotOptedIn),
        (Set::Missing, _) if seen.run.status == SpecStatus::Unset => Decision::Wait(Wait::LabelledTooLate),
        (Set::Missing | Set::Unusable, _) => Decision::Wait(Wait::Steady),
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
    match reshape(seen, set) {
        Reshape::No => recorded(seen, stuck::move_off_if_stuck(seen, set)),
        Reshape::Wait(left) => stuck::move_off_if_stuck(seen, set).no_later_than(left),
        Reshape::Now(write) => at_once(write),
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
