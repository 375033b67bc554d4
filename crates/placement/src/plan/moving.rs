//! The run moves off: a run whose node cannot take its next task gives the node up.
//!
//! Only if no task of the run lives there, and never the only node that can use the run's volumes.

use super::action::Event;
use super::cause::MoveCause;
use super::decision::{Decision, Wait};
use super::inputs::{Inputs, Read};
use super::observation::{Observation, Placeholder};
use super::reshape::start_over;
use super::{Plan, again, at_once, spec_should};
use crate::messages;
use crate::node::NodeState;
use crate::placeholder::tolerating;
use jiff::Timestamp;
use std::time::Duration;

/// How soon tasks whose end is waited for are counted again: a pod that is being deleted outlives its TaskRun, so nothing of the
/// run changes when the pod ends.
const RECOUNT: Duration = Duration::from_secs(30);

/// Why the node would be given up, and since when that is so; `None` needs no patience.
struct Reason {
    cause: MoveCause,
    since: Option<Timestamp>,
}

/// Gives the node up if there is a reason and no task of the run lives there.
pub(super) fn move_off_if_stuck(
    seen: &Observation,
    inputs: &Inputs,
    set: &Placeholder,
) -> Result<Plan, Read> {
    match reason(seen) {
        Some(reason) => consider(seen, inputs, set, &reason),
        None => Ok(at_once(Decision::Wait(Wait::Settled))),
    }
}

/// An unusable node first. Otherwise the reason that has lasted longest.
fn reason(seen: &Observation) -> Option<Reason> {
    seen.config.move_after?;
    node_unusable(seen).or_else(|| {
        let reasons = [unschedulable_task(seen), unschedulable_placeholder(seen)];
        reasons.into_iter().flatten().min_by_key(|reason| reason.since)
    })
}

fn node_unusable(seen: &Observation) -> Option<Reason> {
    match seen.node {
        NodeState::Unfit(cause) if seen.live_node().is_some() => Some(Reason {
            cause: MoveCause::Node(cause),
            since: None,
        }),
        NodeState::Unfit(_) | NodeState::Fit | NodeState::Unknown => None,
    }
}

/// Room may come after a while; a volume stays where it is.
fn unschedulable_task(seen: &Observation) -> Option<Reason> {
    let (_, unschedulable) = seen.unschedulable_task()?;
    let waits_for_room = !is_about_volumes_alone(&unschedulable.message);
    Some(Reason {
        cause: MoveCause::TaskDoesNotFit,
        since: waits_for_room.then_some(unschedulable.since),
    })
}

/// The message counts nodes by reason and names none: if it does not mention room, the run's own node is not short of room.
fn is_about_volumes_alone(message: &str) -> bool {
    messages::lacks_its_volume(message) && !messages::is_short_of_room(message)
}

/// A placeholder without a node matters only if a task waits.
fn unschedulable_placeholder(seen: &Observation) -> Option<Reason> {
    let unschedulable = seen.live_pod()?.unschedulable.as_ref()?;
    (!seen.waiting.is_empty()).then_some(Reason {
        cause: MoveCause::PlaceholderDoesNotFit,
        since: Some(unschedulable.since),
    })
}

fn consider(seen: &Observation, inputs: &Inputs, set: &Placeholder, reason: &Reason) -> Result<Plan, Read> {
    let (patience, pause) = (patience_left(seen, reason, reason.since), seen.pause());
    if !patience.max(pause).is_zero() {
        let wait = if patience < pause {
            Wait::Pause
        } else {
            Wait::Scheduler
        };
        return Ok(again(Decision::Wait(wait), patience.max(pause)));
    }
    let tasks = inputs.tasks.get()?;
    if tasks.census.live > 0 {
        return Ok(await_tasks(seen, reason.cause, tasks.census.live));
    }
    Ok(match patience_left(seen, reason, tasks.census.quiet_since) {
        Duration::ZERO => leave_unless_tied(seen, set, reason.cause, tasks.tied.as_ref()),
        left => again(Decision::Wait(Wait::Scheduler), left),
    })
}

fn leave_unless_tied(seen: &Observation, set: &Placeholder, cause: MoveCause, tied: Option<&String>) -> Plan {
    let Some(claim) = tied.cloned() else {
        return at_once(move_off(seen, set, cause));
    };
    let pod = seen.waits();
    Plan {
        again: pod.as_ref().map(|_| RECOUNT),
        ..at_once(Decision::Wait(Wait::Volume { cause, pod, claim }))
    }
}

/// The scheduler has as much time after the last task ended as after the pod came: in that time a pod that waited for room beside
/// that task is bound to the same node.
fn patience_left(seen: &Observation, reason: &Reason, since: Option<Timestamp>) -> Duration {
    match (reason.since, since) {
        (Some(_), Some(since)) => seen.left(since, seen.patience()),
        (None, _) | (_, None) => Duration::ZERO,
    }
}

/// If no pod waits, the next task's pod triggers the next decision in time.
pub(super) fn await_tasks(seen: &Observation, cause: MoveCause, live: usize) -> Plan {
    let pod = seen.waits();
    Plan {
        again: pod.as_ref().map(|_| RECOUNT),
        ..at_once(Decision::Wait(Wait::Tasks { cause, pod, live }))
    }
}

/// The placeholder is to follow the pod that waits longest, so it tolerates what that pod tolerates. A placeholder that finds no
/// node left the node that the run's annotation names.
fn move_off(seen: &Observation, set: &Placeholder, cause: MoveCause) -> Decision {
    let (pod, node) = (seen.waits(), seen.node_name().or(seen.run.node.as_deref()));
    let leads = seen.waiting.iter().find(|it| Some(&it.name) == pod.as_ref());
    let away = spec_should(set, |spec| {
        spec.replicas = 0;
        if let Some(node) = node {
            spec.left = Some(node.to_owned());
        }
        if let Some(pod) = leads {
            spec.tolerations = tolerating(&seen.run, &pod.tolerations);
        }
    });
    let event = Event::MovedOff {
        cause,
        pod,
        starts_over: false,
    };
    Decision::act("move_off", event, [away])
}

/// A held run is not released to a node where no pod of it can start. Its tasks are counted although it has none: the count reads
/// the node again, and the watch of nodes may be behind the watch of pods.
pub(super) fn relocate(seen: &Observation, inputs: &Inputs, set: &Placeholder) -> Result<Option<Plan>, Read> {
    let Some(cause) = seen.config.move_after.and(node_unusable(seen)) else {
        return Ok(None);
    };
    let pause = seen.pause();
    match inputs.tasks.get() {
        Ok(tasks) if tasks.census.live > 0 || tasks.tied.is_some() => Ok(None),
        _ if !pause.is_zero() => Ok(Some(again(Decision::await_placeholder(), pause))),
        Ok(_) => Ok(Some(at_once(leave(seen, set, cause.cause)))),
        Err(read) => Err(read),
    }
}

fn leave(seen: &Observation, set: &Placeholder, cause: MoveCause) -> Decision {
    if seen.has_reserve() {
        start_over(set, cause)
    } else {
        move_off(seen, set, cause)
    }
}
