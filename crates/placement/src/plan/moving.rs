//! The move of a run: a run whose node cannot take its next task gives up the node.
//!
//! The run gives up the node only if no task of the run is active there, and never if the run's volumes can be used
//! only there.

use super::action::{Event, MoveCause};
use super::decision::{Decision, Wait};
use super::inputs::{Inputs, Read, Tasks};
use super::observation::{Observation, Placeholder, WaitingPod};
use super::reshape::start_over;
use super::{Plan, change_placeholder, with_timer, without_timer};
use crate::messages;
use crate::node::NodeState;
use crate::placeholder::tolerations_with;
use jiff::Timestamp;
use std::time::Duration;

/// How soon active tasks are counted again. A pod that is being deleted outlives its TaskRun, so the end of the pod
/// changes no watched object of the run.
const RECOUNT: Duration = Duration::from_secs(30);

/// Why the run would give up the node, and since when. Without a time, the plan waits for no `move-after`.
struct Reason {
    cause: MoveCause,
    since: Option<Timestamp>,
}

/// Gives up the node if there is a reason and no task of the run is active there.
pub(super) fn move_off_if_stuck(
    observed: &Observation,
    inputs: &Inputs,
    placeholder: &Placeholder,
) -> Result<Plan, Read> {
    match reason(observed) {
        Some(reason) => move_off_when_due(observed, inputs, placeholder, &reason),
        None => Ok(without_timer(Decision::Wait(Wait::Settled))),
    }
}

/// An unusable node comes first, then the reason that has lasted longest.
fn reason(observed: &Observation) -> Option<Reason> {
    observed.config.move_after?;
    node_unusable(observed).or_else(|| {
        let reasons = [unschedulable_task(observed), unschedulable_placeholder(observed)];
        reasons.into_iter().flatten().min_by_key(|reason| reason.since)
    })
}

fn node_unusable(observed: &Observation) -> Option<Reason> {
    match observed.node {
        NodeState::Unusable(cause) if observed.live_node().is_some() => Some(Reason {
            cause: MoveCause::Node(cause),
            since: None,
        }),
        NodeState::Unusable(_) | NodeState::Usable | NodeState::Unknown => None,
    }
}

/// A node can get room after a while, whereas a volume stays on its node, and labels and taints stay as they are. So only a
/// pod that waits for room gets `move-after`.
fn unschedulable_task(observed: &Observation) -> Option<Reason> {
    let (_, unschedulable) = observed.unschedulable_for_its_node()?;
    let excludes_node = |pod: &WaitingPod| pod.unschedulable.is_some() && pod.excludes_node;
    let waits_for_room = !messages::is_about_volumes_alone(&unschedulable.message)
        && !observed.waiting.iter().any(excludes_node);
    Some(Reason {
        cause: MoveCause::TaskDoesNotFit,
        since: waits_for_room.then_some(unschedulable.since),
    })
}

/// An unschedulable placeholder is a reason only while a task waits.
fn unschedulable_placeholder(observed: &Observation) -> Option<Reason> {
    let unschedulable = observed.live_pod()?.unschedulable.as_ref()?;
    (!observed.waiting.is_empty()).then_some(Reason {
        cause: MoveCause::PlaceholderDoesNotFit,
        since: Some(unschedulable.since),
    })
}

fn move_off_when_due(
    observed: &Observation,
    inputs: &Inputs,
    placeholder: &Placeholder,
    reason: &Reason,
) -> Result<Plan, Read> {
    let patience = patience_remaining(observed, reason, reason.since);
    if !patience.is_zero() {
        return Ok(with_timer(Decision::Wait(Wait::Scheduler), patience));
    }
    let tasks = inputs.tasks.as_ref().ok_or(Read::Tasks)?;
    if tasks.task_count.live > 0 {
        return Ok(await_tasks(observed, reason.cause, tasks.task_count.live));
    }
    // The count ends the pause if a task ran since the last move.
    let pause = observed.pause();
    if !pause.is_zero() {
        return Ok(with_timer(Decision::Wait(Wait::Pause), pause));
    }
    let remaining = patience_remaining(observed, reason, tasks.task_count.quiet_since);
    Ok(if remaining.is_zero() {
        move_off_unless_pinned(observed, placeholder, reason.cause, tasks)
    } else {
        with_timer(Decision::Wait(Wait::Scheduler), remaining)
    })
}

fn move_off_unless_pinned(
    observed: &Observation,
    placeholder: &Placeholder,
    cause: MoveCause,
    tasks: &Tasks,
) -> Plan {
    let Some(claim) = tasks.pinned_by_volume.clone() else {
        return without_timer(move_off(observed, placeholder, cause));
    };
    let pod = observed.first_waiting_pod();
    Plan {
        again: pod.as_ref().map(|_| RECOUNT),
        ..without_timer(Decision::Wait(Wait::Volume { cause, pod, claim }))
    }
}

/// After the last task ended, the scheduler again has `move-after`: in this time it binds a pod that waited for room
/// beside that task to the same node.
fn patience_remaining(observed: &Observation, reason: &Reason, since: Option<Timestamp>) -> Duration {
    match (reason.since, since) {
        (Some(_), Some(since)) => observed.remaining(since, observed.patience()),
        (None, _) | (_, None) => Duration::ZERO,
    }
}

/// If no pod waits, the pod of the next task triggers the next decision.
pub(super) fn await_tasks(observed: &Observation, cause: MoveCause, live: usize) -> Plan {
    let pod = observed.first_waiting_pod();
    Plan {
        again: pod.as_ref().map(|_| RECOUNT),
        ..without_timer(Decision::Wait(Wait::Tasks { cause, pod, live }))
    }
}

/// The placeholder follows the pod that waits longest, so it gets the tolerations of that pod. The previous node of an
/// unschedulable placeholder is the node in the run's annotation.
fn move_off(observed: &Observation, placeholder: &Placeholder, cause: MoveCause) -> Decision {
    let pod = observed.first_waiting_pod();
    let node = observed.node_name().or(observed.run.node.as_deref());
    let followed = observed.waiting.iter().find(|it| Some(&it.name) == pod.as_ref());
    let away = change_placeholder(placeholder, |spec| {
        spec.replicas = 0;
        if let Some(node) = node {
            spec.previous_node = Some(node.to_owned());
        }
        if let Some(pod) = followed {
            spec.tolerations = tolerations_with(&observed.run, &pod.tolerations);
        }
    });
    let event = Event::MovedOff {
        cause,
        pod,
        starts_over: false,
    };
    Decision::act("move_off", event, [away])
}

/// Gives up an unusable node before the run is released to it. The tasks of a held run are counted, although it has
/// none, because the count also reads the node again: the watch of nodes may be behind the watch of pods.
pub(super) fn leave_unusable_node(
    observed: &Observation,
    inputs: &Inputs,
    placeholder: &Placeholder,
) -> Result<Option<Plan>, Read> {
    let Some(cause) = observed.config.move_after.and(node_unusable(observed)) else {
        return Ok(None);
    };
    let pause = observed.pause();
    match &inputs.tasks {
        Some(tasks) if tasks.task_count.live > 0 || tasks.pinned_by_volume.is_some() => Ok(None),
        _ if !pause.is_zero() => Ok(Some(with_timer(Decision::await_placeholder(), pause))),
        Some(_) => Ok(Some(without_timer(move_off_or_start_over(
            observed,
            placeholder,
            cause.cause,
        )))),
        None => Err(Read::Tasks),
    }
}

fn move_off_or_start_over(observed: &Observation, placeholder: &Placeholder, cause: MoveCause) -> Decision {
    if observed.has_reserve() {
        start_over(placeholder, cause)
    } else {
        move_off(observed, placeholder, cause)
    }
}
