//! A run that runs, whoever released it: labels first, so that no more pods come without them, then the placeholder.

use super::action::Event;
use super::decision::{Decision, Wait, Why};
use super::inputs::{Inputs, Read};
use super::observation::{Observation, Placeholder};
use super::reshape::{Reshape, reshape};
use super::state::Set;
use super::{Plan, at_once, creation, ending, moving, pod_quota, run_should, scaled_down};
use crate::run::SpecStatus;
use crate::strategy::Enrolment;

pub(super) fn follow(seen: &Observation, inputs: &Inputs, enrolment: Enrolment) -> Result<Plan, Read> {
    match seen.placeholder() {
        _ if !seen.run.is_enrolled() => Ok(at_once(join(seen, enrolment))),
        Set::Missing => creation::create(seen, inputs, enrolment),
        Set::Unusable => Ok(at_once(Decision::Wait(Wait::OldStatefulSet))),
        Set::Usable(set) => match pod_quota::make_room(seen, inputs, set)? {
            Some(plan) => Ok(plan),
            None if seen.is_scaled_down() => scaled_down::follow(seen, inputs, set),
            None => stay(seen, inputs, set),
        },
    }
}

/// Tekton creates the first tasks of a run in the moment in which the run starts, and their pods would have no terms: they may be
/// on several nodes, and the others would be sent after one of them at random, away from a volume that they share. So a run is
/// enrolled only while it cannot start. A placeholder proves that the run was enrolled and lost its labels; but not if the hold
/// annotation is still there, which a release by the controller removes: then another client ended a hold that was too short for
/// the enrolment.
fn join(seen: &Observation, enrolment: Enrolment) -> Decision {
    match (seen.placeholder(), seen.run.hold) {
        (Set::Usable(_), false) => enrol(seen, enrolment),
        (Set::Usable(set), true) => ending::delete(seen, Some(set), None, Why::NotOptedIn),
        (Set::Missing, _) if seen.run.status == SpecStatus::Unset => Decision::Wait(Wait::LabelledTooLate),
        (Set::Missing | Set::Unusable, _) => Decision::Wait(Wait::Settled),
    }
}

/// Nothing of pod-affinity holds the run.
pub(super) fn enrol(seen: &Observation, enrolment: Enrolment) -> Decision {
    let run = run_should(seen, |run| run.group = Some(enrolment.into()));
    Decision::act("enrol", Event::Enrolled, [run])
}

/// A task that does not fit may only be short of what the placeholder requests, so the placeholder's size comes first.
fn stay(seen: &Observation, inputs: &Inputs, set: &Placeholder) -> Result<Plan, Read> {
    match reshape(seen, set) {
        Reshape::No => Ok(recorded(seen, moving::move_off_if_stuck(seen, inputs, set)?)),
        Reshape::Wait(left) => Ok(moving::move_off_if_stuck(seen, inputs, set)?.no_later_than(left)),
        Reshape::Now(decision) => Ok(at_once(decision)),
    }
}

/// If nothing else is to be done, the run's annotation gets the node.
fn recorded(seen: &Observation, plan: Plan) -> Plan {
    let node = seen
        .live_node()
        .filter(|node| seen.run.node.as_deref() != Some(*node));
    let is_idle = matches!(
        plan.decision,
        Decision::Wait(
            Wait::Settled | Wait::Scheduler | Wait::Pause | Wait::Tasks { .. } | Wait::Volume { .. }
        )
    );
    match node.filter(|_| is_idle) {
        Some(node) => Plan {
            decision: record_node(seen, node.to_owned()),
            ..plan
        },
        None => plan,
    }
}

fn record_node(seen: &Observation, node: String) -> Decision {
    let run = run_should(seen, |run| run.node = Some(node.clone()));
    Decision::act("record_node", Event::NodeRecorded { node }, [run])
}
