//! The placeholder is scaled down to zero replicas, because the run gave up its node or the placeholder made room in a
//! quota.
//!
//! The placeholder is scaled up once its previous pod has ended and a task of the run is bound, or no task waits. While no
//! task is bound, a waiting task must be free to be the first pod of its group, on any node that fits. The placeholder is
//! scaled up earlier only if the scheduler does not retry that task.
//!
//! A scheduler that finds no node for a pod retries the pod only after an event that could help. Deleting the last pod
//! of the group is no such event (Kubernetes 1.34 and newer), so the pod would wait for minutes. A change of the pod's
//! own labels is one (Kubernetes 1.36 and newer). So the controller labels each waiting pod when the run moves off,
//! when the last active task ends, and each minute while other pods keep the pod away. Older schedulers retry the pod
//! when a pod of its group is bound: there the controller scales the placeholder up, and this retries the pod.

use super::action::{Action, Requeue, Target};
use super::decision::{Decision, Wait};
use super::inputs::{AssistantPod, Inputs, Read};
use super::observation::{Observation, Placeholder, Repeated, Unschedulable, WaitingPod};
use super::requeue_mark::RequeueMark;
use super::{Plan, change_placeholder, with_timer, without_timer};
use crate::messages;
use crate::node::largest;
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// How long a requeued pod may keep its previous condition: the longest back-off of a scheduler is ten seconds.
const RETRIED_WITHIN: Duration = Duration::from_secs(15);
/// How often a pod is requeued that other pods keep away. Kubernetes before 1.37 retries a pod with two required
/// anti-affinity terms, the group's and the user's, only when a pod ends that matches both, or after five minutes.
const KEPT_AWAY_REQUEUE: Duration = Duration::from_mins(1);

pub(super) fn on_scaled_down(
    observed: &Observation,
    inputs: &Inputs,
    placeholder: &Placeholder,
) -> Result<Plan, Read> {
    if observed.live_pod().is_some() {
        // If the placeholder were scaled up earlier, the StatefulSet controller might not delete the pod.
        return Ok(without_timer(Decision::Wait(Wait::PodEnd)));
    }
    if observed.waiting.is_empty() {
        return join_task(observed, inputs, placeholder);
    }
    let mark = requeue_mark(observed, inputs, placeholder);
    match pods_to_requeue(observed, mark) {
        names if names.is_empty() => await_fit(observed, inputs, placeholder),
        names => {
            let requeue = Action::Requeue(Requeue::Pods { names, mark });
            let actions = after_deleting_assistants(observed, inputs, placeholder, requeue)?;
            Ok(without_timer(Decision::act("requeue_tasks", None, actions)))
        }
    }
}

/// Scales the placeholder up: no task waits, or a task of the run is bound, whose node the other tasks have to use as well.
fn join_task(observed: &Observation, inputs: &Inputs, placeholder: &Placeholder) -> Result<Plan, Read> {
    match absence_remaining(observed) {
        Duration::ZERO => return_placeholder(observed, inputs, placeholder),
        remaining => Ok(with_timer(Decision::Wait(Wait::Pause), remaining)),
    }
}

/// How long a placeholder that made room stays scaled down. Only the quota knows whether it has room again. If it has
/// none, the next rejected task scales the placeholder down again, for longer.
fn absence_remaining(observed: &Observation) -> Duration {
    observed.pause_after(observed.repeated.yields, Repeated::PAUSE)
}

/// Scales the placeholder up: it joins the pods of its run, or finds a node for them.
pub(super) fn return_placeholder(
    observed: &Observation,
    inputs: &Inputs,
    placeholder: &Placeholder,
) -> Result<Plan, Read> {
    let back = change_placeholder(placeholder, |spec| spec.replicas = 1);
    let actions = after_deleting_assistants(observed, inputs, placeholder, back)?;
    Ok(without_timer(Decision::act("return_placeholder", None, actions)))
}

/// Deletes the assistants that keep the group on a node before other objects change: as long as such an assistant is
/// there, the scheduler sends the other pods of the group to it. If the run has no node, an assistant has none.
fn after_deleting_assistants(
    observed: &Observation,
    inputs: &Inputs,
    placeholder: &Placeholder,
    then: Action,
) -> Result<Vec<Action>, Read> {
    let bound = inputs
        .assistants
        .as_ref()
        .ok_or(Read::Assistants)?
        .iter()
        .filter(|pod| pod.node.is_some());
    let (mut obsolete, elsewhere): (Vec<_>, Vec<_>) =
        bound.partition(|pod| pod.node.as_deref() == placeholder.spec.node_given_up());
    if !elsewhere.is_empty() && only_assistants_are_bound(observed, inputs, placeholder)? {
        obsolete.extend(elsewhere);
    }
    let delete = |pod: &AssistantPod| {
        Action::Delete(Target::Assistant {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
        })
    };
    Ok(obsolete.into_iter().map(delete).chain([then]).collect())
}

/// Whether only assistants keep the waiting tasks from other nodes: an assistant followed a task that has ended since
/// the run moved off. After the placeholder made room in a quota, the assistants keep the node for the run.
fn only_assistants_are_bound(
    observed: &Observation,
    inputs: &Inputs,
    placeholder: &Placeholder,
) -> Result<bool, Read> {
    let made_room = placeholder.spec.previous_node.as_deref() == Some("");
    let is_first = !made_room && !observed.waiting.is_empty();
    Ok(is_first && inputs.tasks.as_ref().ok_or(Read::Tasks)?.task_count.live == 0)
}

fn requeue_mark(observed: &Observation, inputs: &Inputs, placeholder: &Placeholder) -> RequeueMark {
    let quiet_since = inputs
        .tasks
        .as_ref()
        .and_then(|tasks| tasks.task_count.quiet_since);
    let ended = quiet_since.filter(|ended| observed.repeated.moves.last.is_none_or(|last| *ended > last));
    RequeueMark {
        generation: placeholder.generation,
        since: ended
            .max(kept_away_for_minutes(observed))
            .map(Timestamp::as_second),
    }
}

/// The last full minute for which a pod that other pods keep away has waited.
fn kept_away_for_minutes(observed: &Observation) -> Option<Timestamp> {
    let (_, it) = observed.unschedulable_task().filter(|(_, it)| is_kept_away(it))?;
    let minutes = observed.now.duration_since(it.since).as_mins();
    let waited = (minutes > 0).then(|| SignedDuration::from_mins(minutes))?;
    it.since.checked_add(waited).ok()
}

fn is_kept_away(it: &Unschedulable) -> bool {
    messages::is_kept_away(&it.message)
}

fn pods_to_requeue(observed: &Observation, mark: RequeueMark) -> Vec<String> {
    let is_requeued = |pod: &WaitingPod| pod.woken.is_some_and(|woken| woken.covers(mark));
    let to_requeue = |pod: &&WaitingPod| pod.unschedulable.is_some() && !is_requeued(pod);
    let pods = observed.waiting.iter().filter(to_requeue);
    pods.map(|pod| pod.name.clone()).collect()
}

/// The scheduler gets `move-after` before an event reports that no node fits: a pod that was created after the move may
/// wait for the end of pods that it preempts.
fn await_fit(observed: &Observation, inputs: &Inputs, placeholder: &Placeholder) -> Result<Plan, Read> {
    let Some((pod, it)) = observed.unschedulable_task() else {
        return Ok(without_timer(Decision::Wait(Wait::Scheduler)));
    };
    let task_count = inputs.tasks.as_ref().ok_or(Read::Tasks)?.task_count;
    if task_count.live > 0 {
        return join_task(observed, inputs, placeholder);
    }
    let last = observed.repeated.moves.last;
    let remaining = observed.remaining(
        last.map_or(it.since, |last| last.max(it.since)),
        observed.patience(),
    );
    if !remaining.is_zero() {
        return Ok(with_timer(Decision::Wait(Wait::Scheduler), remaining));
    }
    if messages::lacks_its_group(&it.message) {
        return requeue_by_placeholder(observed, inputs, placeholder, task_count.quiet_since.max(last));
    }
    Ok(Plan {
        again: is_kept_away(it).then_some(KEPT_AWAY_REQUEUE),
        ..without_timer(no_fit(observed, pod, &it.message))
    })
}

/// The message says that the pod lacks its group, but no pod of the group is bound: the scheduler has not retried the
/// pod. Scaling the placeholder up makes the scheduler retry.
fn requeue_by_placeholder(
    observed: &Observation,
    inputs: &Inputs,
    placeholder: &Placeholder,
    woken: Option<Timestamp>,
) -> Result<Plan, Read> {
    match woken.map_or(Duration::ZERO, |woken| observed.remaining(woken, RETRIED_WITHIN)) {
        Duration::ZERO => return_placeholder(observed, inputs, placeholder),
        remaining => Ok(with_timer(Decision::Wait(Wait::Scheduler), remaining)),
    }
}

fn no_fit(observed: &Observation, pod: &WaitingPod, message: &str) -> Decision {
    let nodes = observed.cluster.nodes.iter();
    let nodes = nodes.map(Arc::as_ref).filter(|node| pod.may_start_on(node));
    Decision::Wait(Wait::Fit {
        pod: pod.name.clone(),
        requests: pod.requests.clone(),
        message: message.to_owned(),
        largest: largest(nodes, &pod.requests),
    })
}
