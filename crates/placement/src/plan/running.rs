//! A running run: it gets its labels first, so that no more pods start without terms, then its placeholder.
//!
//! If a quota of pods rejects a task's pod, the placeholder makes room and is scaled up later (`scaled_down.rs`). A task
//! without a pod cannot wait for a node, and Tekton retries only after a minute. So the controller requeues the TaskRun
//! at Tekton as soon as the placeholder is gone. The running tasks keep their node by their terms; between tasks, other
//! runs can take the node.

use super::action::{Action, Event, Requeue};
use super::decision::{Decision, Wait, Why};
use super::inputs::{Inputs, Read};
use super::observation::{Observation, Placeholder};
use super::reshape::{Reshape, reshape};
use super::state::Set;
use super::{Plan, again, at_once, creation, ending, moving, run_should, scaled_down, spec_should};
use crate::run::SpecStatus;
use crate::strategy::Enrolment;
use std::time::Duration;

/// The first pause between retries. A quota may count the placeholder for a moment after its end, or the placeholder of
/// another run may take the room.
const FIRST_RETRY: Duration = Duration::from_secs(2);

pub(super) fn follow(seen: &Observation, inputs: &Inputs, enrolment: Enrolment) -> Result<Plan, Read> {
    match seen.placeholder() {
        _ if !seen.run.is_enrolled() => Ok(at_once(join(seen, enrolment))),
        Set::Missing => creation::create(seen, inputs, enrolment),
        Set::Unusable => Ok(at_once(Decision::Wait(Wait::OldStatefulSet))),
        Set::Usable(set) => match make_room(seen, inputs, set)? {
            Some(plan) => Ok(plan),
            None if seen.is_scaled_down() => scaled_down::follow(seen, inputs, set),
            None => stay(seen, inputs, set),
        },
    }
}

/// Enrols a run only while Tekton cannot start it. Tekton creates the first tasks in the moment in which the run
/// starts. Their pods would have no terms and could be on several nodes, and the later pods would follow any of them,
/// away from a volume that they share. A placeholder proves that the run was enrolled and lost its labels. It proves
/// nothing while the hold annotation is there: the controller removes the annotation when it releases a run, so another
/// client ended a hold before the run was enrolled.
fn join(seen: &Observation, enrolment: Enrolment) -> Decision {
    match (seen.placeholder(), seen.run.hold) {
        (Set::Usable(_), false) => enrol(seen, enrolment),
        (Set::Usable(set), true) => ending::delete(seen, Some(set), None, Why::NotOptedIn),
        (Set::Missing, _) if seen.run.status == SpecStatus::Unset => Decision::Wait(Wait::LabelledTooLate),
        (Set::Missing | Set::Unusable, _) => Decision::Wait(Wait::Settled),
    }
}

/// Enrols a run that pod-affinity does not hold.
pub(super) fn enrol(seen: &Observation, enrolment: Enrolment) -> Decision {
    let run = run_should(seen, |run| run.group = Some(enrolment.into()));
    Decision::act("enrol", Event::Enrolled, [run])
}

/// The size of the placeholder comes first: a task may not fit only because of the placeholder's requests.
fn stay(seen: &Observation, inputs: &Inputs, set: &Placeholder) -> Result<Plan, Read> {
    match reshape(seen, set) {
        Reshape::No => Ok(recorded(seen, moving::move_off_if_stuck(seen, inputs, set)?)),
        Reshape::Wait(left) => Ok(moving::move_off_if_stuck(seen, inputs, set)?.no_later_than(left)),
        Reshape::Now(decision) => Ok(at_once(decision)),
    }
}

/// Records the node on the run if the plan has nothing else to do.
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

/// Handles a rejection in the namespace; `None` if the rejection concerns another run.
fn make_room(seen: &Observation, inputs: &Inputs, set: &Placeholder) -> Result<Option<Plan>, Read> {
    let Some(refusal) = &seen.refusal else {
        return Ok(None);
    };
    let tasks = inputs.rejected_tasks.get()?;
    Ok(if tasks.is_empty() {
        None
    } else if set.spec.replicas > 0 {
        Some(at_once(leave_to_make_room(set, tasks)))
    } else if seen.pod.is_some() {
        Some(at_once(Decision::Wait(Wait::PodEnd)))
    } else {
        Some(retry(seen, tasks, refusal))
    })
}

/// Scales the placeholder down. The annotation `left` is empty, because the run does not move: its active pods stay on
/// the node.
fn leave_to_make_room(set: &Placeholder, tasks: &[String]) -> Decision {
    let away = spec_should(set, |spec| {
        spec.replicas = 0;
        spec.left = Some(String::new());
    });
    let tasks = tasks.to_vec();
    Decision::act("make_room", Event::MadeRoom { tasks }, [away])
}

/// Requeues the TaskRuns at Tekton, and repeats this because another run may have taken the room. Tekton itself retries
/// each minute.
fn retry(seen: &Observation, tasks: &[String], refusal: &str) -> Plan {
    let left = seen.pause_after(seen.retries, FIRST_RETRY);
    if !left.is_zero() {
        return again(Decision::Wait(Wait::Pause), left);
    }
    let requeue = Requeue::TaskRuns {
        names: tasks.to_vec(),
        refusal: refusal.to_owned(),
    };
    at_once(Decision::act("retry_tasks", None, [Action::Requeue(requeue)]))
}
