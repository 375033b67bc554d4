//! Let go, and follow: a run whose node cannot take its next task gives the node up, and its placeholder joins it
//! again wherever the task finds room.
//!
//! Only where nothing of the run lives. A placeholder at no replicas comes back when no pod waits any more, and never
//! before: as long as one waits unbound it must be free to be the first of its group, on whatever node fits.

use super::action::{Action, LetGoCause};
use super::observed::{Census, Placeholder, WaitingPod};
use super::view::Look;
use super::{Plan, again, at_once};
use crate::node::{NodeState, largest};
use crate::placeholder::wake::Wake;
use jiff::Timestamp;
use std::time::Duration;

/// How soon tasks are counted again whose end is waited for: a pod that is being deleted outlives its task, so that
/// nothing of the run changes when it goes.
const RECOUNT: Duration = Duration::from_secs(30);

/// Why the node would be given up, and since when that is so; `None` needs no patience.
struct Reason {
    cause: LetGoCause,
    since: Option<Timestamp>,
}

/// Gives the node up if there is a reason to and nothing of the run lives there.
pub(super) fn let_go_if_stuck(look: &Look<'_>, set: &Placeholder) -> Plan {
    match reason(look) {
        Some(reason) => consider(look, set, &reason),
        None => at_once(Action::Steady),
    }
}

/// An unfit node first. Otherwise whatever has been so for longest.
fn reason(look: &Look<'_>) -> Option<Reason> {
    look.config().let_go_after?;
    unfit(look).or_else(|| {
        let reasons = [misfit(look), stranded(look)];
        reasons.into_iter().flatten().min_by_key(|reason| reason.since)
    })
}

fn unfit(look: &Look<'_>) -> Option<Reason> {
    match look.observed.around.node {
        NodeState::Unfit(cause) if look.node().is_some() => Some(Reason {
            cause: LetGoCause::Node(cause),
            since: None,
        }),
        NodeState::Unfit(_) | NodeState::Fit | NodeState::Unknown => None,
    }
}

fn misfit(look: &Look<'_>) -> Option<Reason> {
    let (_, unschedulable) = look.misfit()?;
    Some(Reason {
        cause: LetGoCause::TaskDoesNotFit,
        since: Some(unschedulable.since),
    })
}

/// A placeholder without a node holds up nobody unless somebody waits.
fn stranded(look: &Look<'_>) -> Option<Reason> {
    let unschedulable = look.pod?.unschedulable.as_ref()?;
    (!look.waiting().is_empty()).then_some(Reason {
        cause: LetGoCause::PlaceholderDoesNotFit,
        since: Some(unschedulable.since),
    })
}

fn consider(look: &Look<'_>, set: &Placeholder, reason: &Reason) -> Plan {
    let wait = patience_left(look, reason, reason.since).max(look.pause());
    match look.observed.around.census {
        _ if !wait.is_zero() => again(Action::Steady, wait),
        None => at_once(Action::CountPods),
        Some(Census { live: 0, quiet_since }) => match patience_left(look, reason, quiet_since) {
            Duration::ZERO => at_once(let_go(look, set, reason.cause)),
            left => again(Action::Steady, left),
        },
        Some(Census { live, .. }) => await_tasks(look, reason.cause, live),
    }
}

/// The scheduler is given as much time after the last task ended as after the pod came: in that time a pod that
/// waited for a place beside that task is bound where it is.
fn patience_left(look: &Look<'_>, reason: &Reason, since: Option<Timestamp>) -> Duration {
    match (reason.since, since) {
        (Some(_), Some(since)) => look.left(since, look.patience()),
        (None, _) | (_, None) => Duration::ZERO,
    }
}

fn let_go(look: &Look<'_>, set: &Placeholder, cause: LetGoCause) -> Action {
    Action::LetGo {
        set: set.uid.clone(),
        cause,
        pod: look.waits(),
    }
}

/// With nobody waiting, the next task's pod brings the run back in time.
fn await_tasks(look: &Look<'_>, cause: LetGoCause, live: usize) -> Plan {
    let pod = look.waits();
    let soon = pod.as_ref().map(|_| RECOUNT);
    Plan {
        again: soon,
        ..at_once(Action::AwaitTasks { cause, pod, live })
    }
}

/// A held run is not released to a node where no pod of it could start. Nothing of it lives anywhere, but its node
/// is looked at closely all the same: the watch that tells of nodes may be behind the one that told of the pod.
pub(super) fn relocate(look: &Look<'_>, set: &Placeholder) -> Option<Plan> {
    look.config().let_go_after?;
    let cause = unfit(look)?.cause;
    match (look.pause(), look.observed.around.census) {
        (_, Some(Census { live: 1.., .. })) => None,
        (Duration::ZERO, None) => Some(at_once(Action::CountPods)),
        (Duration::ZERO, Some(_)) => Some(at_once(leave(look, set, cause))),
        (pause, _) => Some(again(Action::await_placeholder(), pause)),
    }
}

/// A template that was made small already would find a node without the reserve.
fn leave(look: &Look<'_>, set: &Placeholder, cause: LetGoCause) -> Action {
    if look.has_reserve() {
        let set = set.uid.clone();
        return Action::StartOver { set, cause };
    }
    let_go(look, set, cause)
}

/// At no replicas: the placeholder comes back once its old pod is gone, or going, and no task waits.
///
/// A scheduler that finds no node for a pod sets it aside until something happens that could help, and the end of
/// the last pod that it had to be near is none of that to it (Kubernetes 1.34 and newer: it would wait for minutes).
/// A changed label of the pod itself is, and each pod is given one each time that the run lets go, and each time that
/// the last of the tasks that went ahead of it ends.
pub(super) fn follow(look: &Look<'_>, set: &Placeholder) -> Plan {
    match look.pod {
        // Its end brings the run back. Sooner, the StatefulSet's controller might never see that it was to go.
        Some(_) => at_once(Action::Steady),
        None if look.waiting().is_empty() => at_once(Action::Follow { set: set.uid.clone() }),
        None => {
            let wake = wake(look, set);
            match asleep(look, wake) {
                pods if pods.is_empty() => await_fit(look),
                pods => at_once(Action::WakeTasks { pods, wake }),
            }
        }
    }
}

fn wake(look: &Look<'_>, set: &Placeholder) -> Wake {
    let around = &look.observed.around;
    let quiet_since = around.census.and_then(|census| census.quiet_since);
    let ended = quiet_since.filter(|ended| around.let_gos.last.is_none_or(|last| *ended > last));
    Wake {
        generation: set.generation,
        quiet: ended.map(Timestamp::as_second),
    }
}

fn asleep(look: &Look<'_>, wake: Wake) -> Vec<String> {
    let is_woken = |pod: &WaitingPod| pod.woken.is_some_and(|woken| woken.covers(wake));
    let asleep = |pod: &&WaitingPod| pod.unschedulable.is_some() && !is_woken(pod);
    let pods = look.waiting().iter().filter(asleep);
    pods.map(|pod| pod.name.clone()).collect()
}

/// The scheduler is given its time before anybody is told that no node fits.
fn await_fit(look: &Look<'_>) -> Plan {
    let last = look.observed.around.let_gos.last;
    let left = last.map_or(Duration::ZERO, |last| look.left(last, look.patience()));
    match (look.misfit(), look.observed.around.census) {
        (None, _) => at_once(Action::Steady),
        (Some(_), _) if !left.is_zero() => again(Action::Steady, left),
        (Some(_), None) => at_once(Action::CountPods),
        (Some((pod, it)), Some(Census { live: 0, .. })) => at_once(no_fit(look, pod, &it.message)),
        (Some(_), Some(Census { live, .. })) => await_tasks(look, LetGoCause::TaskDoesNotFit, live),
    }
}

fn no_fit(look: &Look<'_>, pod: &WaitingPod, message: &str) -> Action {
    let tolerations = &look.run().template.tolerations;
    Action::AwaitFit {
        pod: pod.name.clone(),
        asks: pod.requests.clone(),
        message: message.to_owned(),
        largest: largest(look.observed.around.nodes, tolerations, &pod.requests),
    }
}
