//! A quota of pods rejects a task's pod: the placeholder makes room, and comes back later.
//!
//! A task without a pod cannot wait for a node, and Tekton retries only after a minute, so Tekton is made to retry as soon as the
//! placeholder is gone. The running tasks keep their node by their terms; between tasks, other runs can take the node.

use super::action::{Action, Event, Requeue};
use super::decision::{Decision, Wait};
use super::inputs::{Inputs, Read};
use super::observation::{Observation, Placeholder, Repeated};
use super::{Plan, again, at_once, spec_should};
use std::time::Duration;

/// A quota may count the placeholder for a moment after its end, and another run's placeholder may come back to take the room.
const FIRST_RETRY: Duration = Duration::from_secs(2);

/// What to do about a rejection in the namespace; `None` if it concerned another run, or was handled.
pub(super) fn make_room(
    seen: &Observation,
    inputs: &Inputs,
    set: &Placeholder,
) -> Result<Option<Plan>, Read> {
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

/// No node is given up: what exists of the run stays.
fn leave_to_make_room(set: &Placeholder, tasks: &[String]) -> Decision {
    let away = spec_should(set, |spec| {
        spec.replicas = 0;
        spec.left = Some(String::new());
    });
    let tasks = tasks.to_vec();
    Decision::act("make_room", Event::MadeRoom { tasks }, [away])
}

/// Another run may have taken the room first, so the retry is repeated; Tekton itself retries each minute.
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

/// How long the placeholder that made room stays away. Only the quota knows whether there is room again; if there is none, the next
/// rejected task makes the placeholder leave again, for longer.
pub(super) fn absence_left(seen: &Observation) -> Duration {
    seen.pause_after(seen.yields, Repeated::PAUSE)
}
