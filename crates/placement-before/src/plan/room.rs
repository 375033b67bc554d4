//! Make room: where a quota lets a task have no pod, the placeholder gives its own place up, and takes it back later.
//!
//! A task without a pod has nothing that could wait for a node, and Tekton tries again only after a minute. So it is told to as
//! soon as the placeholder is gone. The tasks that run keep their node by their terms; between tasks it is anybody's.

use super::decision::{Decision, Question, Wait, Write};
use super::observation::{Observation, Placeholder, Repeated};
use super::{Plan, again, at_once};
use std::time::Duration;

/// A quota may count the placeholder for a moment longer than it is there, and that of another run comes back to take the place.
const FIRST_RETRY: Duration = Duration::from_secs(2);

/// What to do about a refusal in the namespace; `None` if it was none of this run's, or is dealt with.
pub(super) fn make_room(seen: &Observation, set: &Placeholder) -> Option<Plan> {
    seen.refusal.as_ref()?;
    Some(match &seen.refused {
        None => at_once(Decision::Count(Question::Refused)),
        Some(tasks) if tasks.is_empty() => return None,
        Some(_) if set.replicas > 0 => {
            let set = set.uid.clone();
            at_once(Decision::Write(Write::MakeRoom { set }))
        }
        // Its end brings the run back.
        Some(_) if seen.pod.is_some() => at_once(Decision::Wait(Wait::Steady)),
        Some(tasks) => retry(seen, tasks),
    })
}

/// Another may have been faster to take the place, so that it is tried more than once; Tekton itself does so each minute.
fn retry(seen: &Observation, tasks: &[String]) -> Plan {
    match seen.pause_after(seen.retries, FIRST_RETRY) {
        Duration::ZERO => {
            let tasks = tasks.to_vec();
            at_once(Decision::Write(Write::RetryTasks { tasks }))
        }
        left => again(Decision::Wait(Wait::Steady), left),
    }
}

/// How long the placeholder that made room stays away. Whether there is room again, only the quota could tell; if there is not,
/// the next task that is refused has it go again, for longer.
pub(super) fn absence_left(seen: &Observation) -> Duration {
    seen.pause_after(seen.yields, Repeated::PAUSE)
}
