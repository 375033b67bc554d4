//! Move off, and follow: a run whose node cannot take its next task gives the node up, and its placeholder joins it
//! again wherever the task finds room.
//!
//! Only where nothing of the run lives, and never the one node that its volumes allow. A placeholder at no replicas comes
//! back when no pod waits any more: as long as one waits unbound it must be free to be the first of its group, on whatever
//! node fits. It comes back before only where the scheduler does not look at that pod again.

use super::decision::{Decision, MoveCause, Question, Wait, Write};
use super::observation::{Census, Observation, Placeholder, Unschedulable, WaitingPod};
use super::{Plan, again, at_once, questions, room};
use crate::node::{NodeState, largest};
use crate::placeholder::wake::Wake;
use jiff::{SignedDuration, Timestamp};
use std::time::Duration;

/// How soon tasks are counted again whose end is waited for: a pod that is being deleted outlives its task, so that
/// nothing of the run changes when it goes.
const RECOUNT: Duration = Duration::from_secs(30);

/// How long a woken pod may keep its old verdict: a scheduler's longest back-off is ten seconds.
const ASLEEP: Duration = Duration::from_secs(15);
/// How often a pod is woken that other pods keep away. Kubernetes before 1.37 tries one with two required terms of anti-affinity,
/// ours and its user's, again only when a pod goes that matches both, or after five minutes.
const KEPT_AWAY_AGAIN: Duration = Duration::from_mins(1);
/// In the scheduler's words about a pod: it looked for others of the pod's group, and they were elsewhere.
const LACKS_ITS_GROUP: &str = "didn't match pod affinity rules";
/// Likewise: a volume that the pod mounts cannot be used on the node.
const VOLUME_ELSEWHERE: &str = "didn't match PersistentVolume's node affinity";
/// Likewise: pods are on the node that this one has to keep away from, or the other way round.
const KEPT_AWAY: &str = "didn't match pod anti-affinity rules";
/// Likewise: the pod might fit on the node later.
const SHORT_OF_ROOM: [&str; 4] = [
    "Insufficient",
    "Too many pods",
    "didn't have free ports",
    KEPT_AWAY,
];

/// Why the node would be given up, and since when that is so; `None` needs no patience.
struct Reason {
    cause: MoveCause,
    since: Option<Timestamp>,
}

/// Gives the node up if there is a reason to and nothing of the run lives there.
pub(super) fn move_off_if_stuck(seen: &Observation, set: &Placeholder) -> Plan {
    match reason(seen) {
        Some(reason) => consider(seen, set, &reason),
        None => at_once(Decision::Wait(Wait::Steady)),
    }
}

/// An unfit node first. Otherwise whatever has been so for longest.
fn reason(seen: &Observation) -> Option<Reason> {
    seen.config.move_after?;
    unfit(seen).or_else(|| {
        let reasons = [misfit(seen), stranded(seen)];
        reasons.into_iter().flatten().min_by_key(|reason| reason.since)
    })
}

fn unfit(seen: &Observation) -> Option<Reason> {
    match seen.node {
        NodeState::Unfit(cause) if seen.live_node().is_some() => Some(Reason {
            cause: MoveCause::Node(cause),
            since: None,
        }),
        NodeState::Unfit(_) | NodeState::Fit | NodeState::Unknown => None,
    }
}

/// Room may come if it is waited for; a volume that is elsewhere stays there.
fn misfit(seen: &Observation) -> Option<Reason> {
    let (_, unschedulable) = seen.misfit()?;
    let waits_for_room = !is_about_volumes_alone(&unschedulable.message);
    Some(Reason {
        cause: MoveCause::TaskDoesNotFit,
        since: waits_for_room.then_some(unschedulable.since),
    })
}

/// The message counts nodes by reason and names none: where nothing is said of room, the run's own node is not short of it.
fn is_about_volumes_alone(message: &str) -> bool {
    message.contains(VOLUME_ELSEWHERE) && !SHORT_OF_ROOM.iter().any(|words| message.contains(words))
}

/// A placeholder without a node holds up nobody unless somebody waits.
fn stranded(seen: &Observation) -> Option<Reason> {
    let unschedulable = seen.live_pod()?.unschedulable.as_ref()?;
    (!seen.waiting.is_empty()).then_some(Reason {
        cause: MoveCause::PlaceholderDoesNotFit,
        since: Some(unschedulable.since),
    })
}

fn consider(seen: &Observation, set: &Placeholder, reason: &Reason) -> Plan {
    let wait = patience_left(seen, reason, reason.since).max(seen.pause());
    match seen.census {
        _ if !wait.is_zero() => again(Decision::Wait(Wait::Steady), wait),
        None => at_once(Decision::Count(Question::Tasks)),
        Some(Census { live: 0, quiet_since }) => match patience_left(seen, reason, quiet_since) {
            Duration::ZERO => leave_unless_tied(seen, set, reason.cause),
            left => again(Decision::Wait(Wait::Steady), left),
        },
        Some(Census { live, .. }) => await_tasks(seen, reason.cause, live),
    }
}

fn leave_unless_tied(seen: &Observation, set: &Placeholder, cause: MoveCause) -> Plan {
    let Some(claim) = seen.tied.clone() else {
        return at_once(move_off(seen, set.uid.clone(), cause));
    };
    let pod = seen.waits();
    Plan {
        again: pod.as_ref().map(|_| RECOUNT),
        ..at_once(Decision::Wait(Wait::Volume { cause, pod, claim }))
    }
}

/// The scheduler is given as much time after the last task ended as after the pod came: in that time a pod that
/// waited for a place beside that task is bound where it is.
fn patience_left(seen: &Observation, reason: &Reason, since: Option<Timestamp>) -> Duration {
    match (reason.since, since) {
        (Some(_), Some(since)) => seen.left(since, seen.patience()),
        (None, _) | (_, None) => Duration::ZERO,
    }
}

/// With nobody waiting, the next task's pod brings the run back in time.
fn await_tasks(seen: &Observation, cause: MoveCause, live: usize) -> Plan {
    let pod = seen.waits();
    let soon = pod.as_ref().map(|_| RECOUNT);
    Plan {
        again: soon,
        ..at_once(Decision::Wait(Wait::Tasks { cause, pod, live }))
    }
}

/// A held run is not released to a node where no pod of it could start. Nothing of it lives anywhere, but its node
/// is looked at closely all the same: the watch that tells of nodes may be behind the one that told of the pod.
pub(super) fn relocate(seen: &Observation, set: &Placeholder) -> Option<Plan> {
    seen.config.move_after?;
    let cause = unfit(seen)?.cause;
    match (seen.pause(), seen.census) {
        (_, Some(Census { live: 1.., .. })) => None,
        (_, Some(_)) if seen.tied.is_some() => None,
        (Duration::ZERO, None) => Some(at_once(Decision::Count(Question::Tasks))),
        (Duration::ZERO, Some(_)) => Some(at_once(leave(seen, set, cause))),
        (pause, _) => Some(again(Decision::await_placeholder(), pause)),
    }
}

fn move_off(seen: &Observation, set: String, cause: MoveCause) -> Decision {
    Decision::Write(Write::MoveOff {
        set,
        cause,
        pod: seen.waits(),
    })
}

/// A template that was made small already would find a node without the reserve.
fn leave(seen: &Observation, set: &Placeholder, cause: MoveCause) -> Decision {
    let set = set.uid.clone();
    if seen.has_reserve() {
        Decision::Write(Write::StartOver { set, cause })
    } else {
        move_off(seen, set, cause)
    }
}

/// At no replicas: the placeholder comes back once its old pod is gone, or going, and no task waits.
///
/// A scheduler that finds no node for a pod sets it aside until something happens that could help, and the end of
/// the last pod that it had to be near is none of that to it (Kubernetes 1.34 and newer: it would wait for minutes).
/// A changed label of the pod itself is since Kubernetes 1.36, and each pod is given one each time that the run moves
/// off, each time that the last of the tasks that went ahead of it ends, and now and then while others keep it away. To older schedulers only a member of the
/// group that finds a node is: a pod that they leave asleep is woken by the placeholder.
pub(super) fn follow(seen: &Observation, set: &Placeholder) -> Plan {
    match seen.live_pod() {
        // Its end brings the run back. Sooner, the StatefulSet's controller might never see that it was to go.
        Some(_) => at_once(Decision::Wait(Wait::Steady)),
        None if seen.waiting.is_empty() => match room::absence_left(seen) {
            Duration::ZERO => come_back(seen, set),
            left => again(Decision::Wait(Wait::Steady), left),
        },
        None => {
            let wake = wake(seen, set);
            match asleep(seen, wake) {
                pods if pods.is_empty() => await_fit(seen, set),
                pods => at_once(questions::without_assistants(
                    seen,
                    Write::WakeTasks { pods, wake },
                )),
            }
        }
    }
}

fn wake(seen: &Observation, set: &Placeholder) -> Wake {
    let quiet_since = seen.census.and_then(|census| census.quiet_since);
    let ended = quiet_since.filter(|ended| seen.moves.last.is_none_or(|last| *ended > last));
    Wake {
        generation: set.generation,
        since: ended.max(kept_away_again(seen)).map(Timestamp::as_second),
    }
}

/// The last full minute of a pod's waiting.
fn kept_away_again(seen: &Observation) -> Option<Timestamp> {
    let (_, it) = seen.misfit().filter(|(_, it)| is_kept_away(it))?;
    let minutes = seen.now.duration_since(it.since).as_mins();
    let waited = (minutes > 0).then(|| SignedDuration::from_mins(minutes))?;
    it.since.checked_add(waited).ok()
}

fn is_kept_away(it: &Unschedulable) -> bool {
    it.message.contains(KEPT_AWAY)
}

fn asleep(seen: &Observation, wake: Wake) -> Vec<String> {
    let is_woken = |pod: &WaitingPod| pod.woken.is_some_and(|woken| woken.covers(wake));
    let asleep = |pod: &&WaitingPod| pod.unschedulable.is_some() && !is_woken(pod);
    let pods = seen.waiting.iter().filter(asleep);
    pods.map(|pod| pod.name.clone()).collect()
}

/// The scheduler is given its time before anybody is told that no node fits: a pod that came after the run had left may wait for
/// others to go that it preempts.
fn await_fit(seen: &Observation, set: &Placeholder) -> Plan {
    let Some((pod, it)) = seen.misfit() else {
        return at_once(Decision::Wait(Wait::Steady));
    };
    let last = seen.moves.last;
    let since = last.map_or(it.since, |last| last.max(it.since));
    match (seen.left(since, seen.patience()), seen.census) {
        (Duration::ZERO, None) => at_once(Decision::Count(Question::Tasks)),
        (Duration::ZERO, Some(Census { live: 0, quiet_since })) if it.message.contains(LACKS_ITS_GROUP) => {
            rouse(seen, set, quiet_since.max(last))
        }
        (Duration::ZERO, Some(Census { live: 0, .. })) => Plan {
            again: is_kept_away(it).then_some(KEPT_AWAY_AGAIN),
            ..at_once(no_fit(seen, pod, &it.message))
        },
        (Duration::ZERO, Some(Census { live, .. })) => await_tasks(seen, MoveCause::TaskDoesNotFit, live),
        (left, _) => again(Decision::Wait(Wait::Steady), left),
    }
}

/// Nothing of the group is anywhere, so that a scheduler which looked again would not miss it.
fn rouse(seen: &Observation, set: &Placeholder, woken: Option<Timestamp>) -> Plan {
    match woken.map_or(Duration::ZERO, |woken| seen.left(woken, ASLEEP)) {
        Duration::ZERO => come_back(seen, set),
        left => again(Decision::Wait(Wait::Steady), left),
    }
}

fn come_back(seen: &Observation, set: &Placeholder) -> Plan {
    let set = set.uid.clone();
    at_once(questions::without_assistants(seen, Write::Follow { set }))
}

fn no_fit(seen: &Observation, pod: &WaitingPod, message: &str) -> Decision {
    Decision::Wait(Wait::Fit {
        pod: pod.name.clone(),
        asks: pod.requests.clone(),
        message: message.to_owned(),
        largest: largest(&seen.nodes, &pod.tolerations, &pod.requests),
    })
}
