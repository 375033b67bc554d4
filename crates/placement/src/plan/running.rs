//! A run that runs, whoever released it: labels first, so that no more pods come without them, then the placeholder.

use super::action::{Action, Enrolment};
use super::observed::Placeholder;
use super::view::{Look, Set};
use super::weight::{Weight, weigh};
use super::{Plan, at_once, stuck};

pub(super) fn accompany(look: &Look<'_>, enrolment: Enrolment) -> Plan {
    match look.set {
        _ if !look.run().is_enrolled() => at_once(join(look, enrolment)),
        Set::Missing => at_once(Action::CreatePlaceholder(enrolment)),
        Set::Unusable => at_once(Action::Steady),
        Set::Usable(set) if look.has_let_go() => stuck::follow(look, set),
        Set::Usable(set) => stay(look, set),
    }
}

/// Pods that run already may be on several nodes, and group affinity would then pin the rest to one of them at
/// random. A placeholder tells that the run was enrolled before and lost its label.
fn join(look: &Look<'_>, enrolment: Enrolment) -> Action {
    let had_placeholder = look
        .observed
        .placeholder
        .is_some_and(|placeholder| placeholder.owned);
    if look.run().has_children && !had_placeholder {
        return Action::LabelledTooLate;
    }
    Action::Enrol(enrolment)
}

/// A task that does not fit may only be short of what the placeholder asks for, so that comes first.
fn stay(look: &Look<'_>, set: &Placeholder) -> Plan {
    match weigh(look, set) {
        Weight::Right => recorded(look, stuck::let_go_if_stuck(look, set)),
        Weight::Settling(left) => stuck::let_go_if_stuck(look, set).no_later_than(left),
        Weight::TooHeavy(action) => at_once(action),
    }
}

/// Where nothing else is to be done, the node is written down.
fn recorded(look: &Look<'_>, plan: Plan) -> Plan {
    let node = look
        .node()
        .filter(|node| look.run().node.as_deref() != Some(*node));
    match (&plan.action, node) {
        (Action::Steady | Action::AwaitTasks { .. }, Some(node)) => Plan {
            action: Action::RecordNode {
                node: node.to_owned(),
            },
            ..plan
        },
        _ => plan,
    }
}
