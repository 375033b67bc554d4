//! A run that waits by our hold: released as soon as there is a reason to, else its placeholder is brought forward.

use super::decision::{Decision, Question, ReleaseCause, Wait, Write};
use super::observation::{Message, Observation, Placeholder, PlaceholderPod};
use super::shape::{Reshape, is_big, reshape};
use super::view::Set;
use super::{Plan, SOON, again, at_once, questions, stuck};
use crate::autoscaler;
use crate::config::ReleaseWhen;
use crate::impossible::{self, Impossible};
use crate::node::{NodeOffer, largest};
use crate::placeholder::size::is_automatic;
use crate::run::HeldFrom;
use crate::strategy::Enrolment;
use std::time::Duration;

/// How long an automatic reserve that is larger than all nodes waits for an autoscaler's promise: longer than one takes to answer
/// and to be asked.
const PROMISED_BY: Duration = Duration::from_secs(30);
/// How long a run is held without being enrolled, unless it is known to wait.
const UNENROLLED: Duration = Duration::from_mins(1);
/// How long after the deadline of its hold there has to be room for a run's affinity assistants.
const ROOM_BY: Duration = Duration::from_secs(15);

pub(super) fn hold(seen: &Observation, enrolment: Enrolment) -> Plan {
    if seen.run.held_from == HeldFrom::UndatedRelease {
        return at_once(Decision::Write(Write::DateHold));
    }
    let left = left_of_hold(seen, seen.config.hold_deadline);
    let obstacle = obstacle(seen);
    match reason_to_release(seen, obstacle.is_none(), left) {
        Some(ReleaseCause::Deadline) => {
            free_place(seen).unwrap_or_else(|| at_once(release(seen, ReleaseCause::Deadline, enrolment)))
        }
        Some(cause) => at_once(release(seen, cause, enrolment)),
        None => obstacle
            .unwrap_or_else(|| await_node(seen, enrolment))
            .no_later_than(left),
    }
}

fn reason_to_release(seen: &Observation, clear: bool, left: Duration) -> Option<ReleaseCause> {
    match seen.placeholder() {
        Set::Usable(_) if clear && seen.live_node().is_some() => Some(ReleaseCause::NodeFound),
        Set::Usable(_) if clear && is_enough_to_exist(seen) => Some(ReleaseCause::PlaceholderCreated),
        Set::Usable(set) if is_impossible(seen, set) => Some(ReleaseCause::PlaceholderImpossible),
        Set::Usable(_) | Set::Missing | Set::Unusable => left.is_zero().then_some(ReleaseCause::Deadline),
    }
}

/// Without the label another's placeholder would not be where Tekton needs a place for this run now.
fn free_place(seen: &Observation) -> Option<Plan> {
    let is_late = left_of_hold(seen, seen.config.hold_deadline.saturating_add(ROOM_BY)).is_zero();
    if is_late || seen.set.is_some() || seen.run.assistants() == 0 {
        None
    } else {
        questions::free_place(seen)
    }
}

fn is_impossible(seen: &Observation, set: &Placeholder) -> bool {
    match refusal(seen) {
        Some(Impossible::RefersToNothing) => true,
        Some(Impossible::OutOfLimits(_)) => set.within_limits,
        None => false,
    }
}

/// Why there is no pod and will be none as it is.
fn refusal(seen: &Observation) -> Option<Impossible> {
    let complaint = seen.complaint.as_ref().filter(|_| seen.live_pod().is_none())?;
    impossible::told_by(complaint.text()?)
}

/// A reserve means nothing unless it is waited for: the tasks would not fit beside a placeholder that has it still.
fn is_enough_to_exist(seen: &Observation) -> bool {
    seen.config.release_when == ReleaseWhen::Created && !seen.has_reserve()
}

fn release(seen: &Observation, cause: ReleaseCause, enrolment: Enrolment) -> Decision {
    Decision::Write(Write::Release {
        cause,
        enrolment: Some(enrolment),
        node: seen.live_node().map(str::to_owned),
    })
}

/// What a placeholder that is there has to do before its node is one to release the run to.
fn obstacle(seen: &Observation) -> Option<Plan> {
    let set = seen.placeholder().usable()?;
    if seen.has_moved_off() {
        return Some(come_back(seen));
    }
    let reshaped = || match reshape(seen, set) {
        Reshape::Now(write) => Some(at_once(write)),
        Reshape::Wait(left) => Some(again(waiting(seen), left)),
        Reshape::No => None,
    };
    stuck::relocate(seen, set)
        .or_else(reshaped)
        .or_else(|| give_reserve_up(seen, set))
}

/// Nobody wrote an automatic reserve for the nodes of this cluster. One that no node can have, and for which no autoscaler adds one,
/// would hold the run in vain.
fn give_reserve_up(seen: &Observation, set: &Placeholder) -> Option<Plan> {
    let pod = seen.live_pod().filter(|pod| is_big(seen, pod))?;
    let since = pod.unschedulable.as_ref()?.since;
    let nearest = nearest(seen, pod);
    let is_too_large = nearest.as_ref().is_none_or(|offer| !offer.fits());
    if !(is_too_large && is_automatic(&seen.run, &seen.config)) {
        return None;
    }
    match (seen.left(since, PROMISED_BY), &seen.autoscaler) {
        (Duration::ZERO, None) => None,
        (Duration::ZERO, Some(Message(answer))) if answer.as_deref().is_some_and(autoscaler::promises) => {
            None
        }
        (Duration::ZERO, Some(_)) => Some(at_once(Decision::Write(Write::GiveUpReserve {
            set: set.uid.clone(),
            pod: pod.uid.clone(),
            nearest,
        }))),
        (left, _) => Some(again(waiting(seen), left)),
    }
}

fn nearest(seen: &Observation, pod: &PlaceholderPod) -> Option<NodeOffer> {
    largest(&seen.nodes, &pod.tolerations, &pod.shape.requests)
}

/// A held run has no pods that could be in the way of coming back, only the old placeholder.
fn come_back(seen: &Observation) -> Plan {
    let free = seen.live_pod().is_none() && seen.waiting.is_empty();
    let back = seen.placeholder().uid().filter(|_| free);
    match back {
        Some(set) => at_once(questions::without_assistants(seen, Write::Follow { set })),
        None => again(waiting(seen), SOON),
    }
}

fn await_node(seen: &Observation, enrolment: Enrolment) -> Plan {
    match (seen.placeholder(), seen.live_pod(), until_enrolled(seen)) {
        (_, _, Some(Duration::ZERO)) => at_once(Decision::Write(Write::Enrol(enrolment))),
        (Set::Missing, ..) => questions::create(seen, enrolment),
        (Set::Unusable, ..) => again(Decision::await_placeholder(), SOON),
        (Set::Usable(set), None, _) => nudge(seen, set),
        (Set::Usable(_), Some(_), again) => Plan {
            again,
            ..at_once(waiting(seen))
        },
    }
}

/// A run that is cancelled while we hold it starts its finally tasks at that moment, so its labels have to be there
/// before. Most holds are over too soon to be worth that write of their own.
fn until_enrolled(seen: &Observation) -> Option<Duration> {
    match seen.live_pod() {
        _ if seen.run.is_enrolled() => None,
        Some(pod) if pod.unschedulable.is_some() => Some(Duration::ZERO),
        Some(_) | None => Some(left_of_hold(seen, UNENROLLED)),
    }
}

fn waiting(seen: &Observation) -> Decision {
    let Some(unschedulable) = seen.live_pod().and_then(|pod| pod.unschedulable.as_ref()) else {
        return Decision::await_placeholder();
    };
    if seen.autoscaler.is_none() {
        return Decision::Count(Question::Autoscaler);
    }
    let big = seen.live_pod().filter(|pod| pod.shape.reserves);
    Decision::Wait(Wait::Node {
        unschedulable: Some(unschedulable.message.clone()),
        largest: big.and_then(|pod| nearest(seen, pod)),
    })
}

/// Its controller backs off for minutes after a refusal, and a change of the StatefulSet makes it try again at once.
fn nudge(seen: &Observation, set: &Placeholder) -> Plan {
    match seen.nudge_in {
        _ if !set.taken_up => again(Decision::await_placeholder(), SOON),
        Duration::ZERO if seen.complaint.is_none() => again(Decision::Count(Question::Complaint), SOON),
        Duration::ZERO => again(Decision::Write(wake_or_resize(seen, set)), SOON),
        left => again(Decision::await_placeholder(), left.min(SOON)),
    }
}

fn wake_or_resize(seen: &Observation, set: &Placeholder) -> Write {
    match refusal(seen) {
        Some(Impossible::OutOfLimits(bounds)) => Write::AskWithinLimits {
            set: set.uid.clone(),
            bounds,
        },
        Some(Impossible::RefersToNothing) | None => Write::Nudge,
    }
}

fn left_of_hold(seen: &Observation, span: Duration) -> Duration {
    seen.run.left_of_hold(seen.now, span)
}
