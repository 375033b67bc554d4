//! A run that runs, whoever released it: labels first, so that no more pods come without them, then the placeholder.

use super::decision::{Decision, Enrolment, Wait, Write};
use super::observation::{Observation, Placeholder};
use super::view::Set;
use super::weight::{Weight, weigh};
use super::{Plan, at_once, questions, stuck};

pub(super) fn accompany(seen: &Observation, enrolment: Enrolment) -> Plan {
    match seen.placeholder() {
        _ if !seen.run.is_enrolled() => at_once(join(seen, enrolment)),
        Set::Missing => at_once(questions::create(seen, enrolment)),
        Set::Unusable => at_once(Decision::Wait(Wait::Steady)),
        Set::Usable(set) if seen.has_moved_off() => stuck::follow(seen, set),
        Set::Usable(set) => stay(seen, set),
    }
}

/// Pods that run already may be on several nodes, and group affinity would then pin the rest to one of them at
/// random. A placeholder tells that the run was enrolled before and lost its label.
fn join(seen: &Observation, enrolment: Enrolment) -> Decision {
    let had_placeholder = seen.set.as_ref().is_some_and(|set| set.owned);
    if seen.run.has_children && !had_placeholder {
        return Decision::Wait(Wait::LabelledTooLate);
    }
    Decision::Write(Write::Enrol(enrolment))
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
        (Decision::Wait(Wait::Steady | Wait::Tasks { .. }), Some(node)) => Plan {
            decision: Decision::Write(Write::RecordNode {
                node: node.to_owned(),
            }),
            ..plan
        },
        _ => plan,
    }
}
