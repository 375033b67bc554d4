//! A quota of pods rejects a task's pod: the placeholder makes room and is scaled up later.
//!
//! A task without a pod cannot wait for a node, and Tekton retries only after a minute. So the controller requeues the
//! TaskRun at Tekton as soon as the placeholder is gone. The running tasks keep their node by their terms; between
//! tasks, other runs can take the node.

use super::action::{Action, Event, Requeue};
use super::decision::{Decision, Wait};
use super::inputs::{Inputs, Read};
use super::observation::{Observation, Placeholder, Repeated};
use super::{Plan, again, at_once, spec_should};
use std::time::Duration;

/// The first pause between retries. A quota may count the placeholder for a moment after its end, or the placeholder of
/// another run may take the room.
const FIRST_RETRY: Duration = Duration::from_secs(2);

/// Handles a rejection in the namespace; `None` if the rejection concerns another run.
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

/// How long a placeholder that made room stays scaled down. Only the quota knows whether it has room again. If it has
/// none, the next rejected task scales the placeholder down again, for longer.
pub(super) fn absence_left(seen: &Observation) -> Duration {
    seen.pause_after(seen.yields, Repeated::PAUSE)
}
