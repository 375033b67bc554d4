//! A run that pod-affinity holds. The plan releases the run as soon as there is a reason, and until then brings the
//! placeholder to its node.

use super::action::{Action, Event, ReleaseCause, Requeue, Target};
use super::decision::{Decision, Wait};
use super::inputs::{Inputs, Read};
use super::observation::{Observation, Placeholder, PlaceholderPod};
use super::reshape::{Reshape, is_big, reshape};
use super::state::Set;
use super::{Plan, SOON, again, at_once, creation, moving, run_should, scaled_down, spec_should};
use crate::config::ReleaseWhen;
use crate::messages;
use crate::node::{NodeOffer, largest};
use crate::placeholder::size::{is_automatic, usual, within};
use crate::pod_rejection::{self, Impossible};
use crate::run::HeldFrom;
use crate::strategy::Enrolment;
use std::time::Duration;

/// How long an automatic reserve that is larger than all nodes waits until an autoscaler promises a node: longer than
/// an autoscaler takes to answer and the controller to read the answer.
const PROMISED_BY: Duration = Duration::from_secs(30);
/// After this time a held run is enrolled, or at once if its placeholder is unschedulable.
const UNENROLLED: Duration = Duration::from_mins(1);
/// How long after its deadline a hold may last while the plan makes room in a quota for the run's affinity assistants.
const ROOM_BY: Duration = Duration::from_secs(15);

/// A release at the deadline never waits for an input.
pub(super) fn hold(seen: &Observation, inputs: &Inputs, enrolment: Enrolment) -> Result<Plan, Read> {
    if seen.run.held_from == HeldFrom::UndatedRelease {
        return Ok(at_once(date_hold(seen)));
    }
    let left = left_of_hold(seen, seen.config.hold_deadline);
    let obstacle = obstacle(seen, inputs);
    match reason_to_release(seen, inputs, obstacle == Ok(None), left) {
        Some(ReleaseCause::Deadline) => {
            let release = at_once(release(seen, inputs, ReleaseCause::Deadline, Some(enrolment)));
            Ok(free_place(seen, inputs)?.unwrap_or(release))
        }
        Some(cause) => Ok(at_once(release(seen, inputs, cause, Some(enrolment)))),
        None => {
            let plan = match obstacle? {
                Some(plan) => plan,
                None => await_node(seen, inputs, enrolment)?,
            };
            Ok(plan.no_later_than(left))
        }
    }
}

fn date_hold(seen: &Observation) -> Decision {
    let dated = run_should(seen, |run| run.hold = Some(HeldFrom::Release(seen.now)));
    Decision::act("date_hold", None, [dated])
}

fn reason_to_release(
    seen: &Observation,
    inputs: &Inputs,
    clear: bool,
    left: Duration,
) -> Option<ReleaseCause> {
    match seen.placeholder() {
        Set::Usable(_) if clear && seen.live_node().is_some() => Some(ReleaseCause::NodeFound),
        Set::Usable(_) if clear && is_enough_to_exist(seen) => Some(ReleaseCause::PlaceholderCreated),
        Set::Usable(set) if is_impossible(seen, inputs, set) => Some(ReleaseCause::PlaceholderImpossible),
        Set::Usable(_) | Set::Missing | Set::Unusable => left.is_zero().then_some(ReleaseCause::Deadline),
    }
}

/// Makes room in a quota for Tekton's assistants before the release at the deadline, because the placeholder of another
/// run takes their place.
fn free_place(seen: &Observation, inputs: &Inputs) -> Result<Option<Plan>, Read> {
    let is_late = left_of_hold(seen, seen.config.hold_deadline.saturating_add(ROOM_BY)).is_zero();
    if is_late || seen.set.is_some() || seen.run.assistants() == 0 {
        Ok(None)
    } else {
        creation::free_place(inputs)
    }
}

fn is_impossible(seen: &Observation, inputs: &Inputs, set: &Placeholder) -> bool {
    match refusal(seen, inputs) {
        Some(Impossible::RefersToNothing) => true,
        Some(Impossible::OutOfLimits(_)) => set.spec.within_limits,
        None => false,
    }
}

/// Why the API server permanently rejects the placeholder's pod, if the message was read.
fn refusal(seen: &Observation, inputs: &Inputs) -> Option<Impossible> {
    let message = inputs.failed_create.get().ok()?.as_deref();
    pod_rejection::told_by(message.filter(|_| seen.live_pod().is_none())?)
}

/// With `release-when: created`, a placeholder that exists is enough, unless it has a reserve: the tasks would not fit
/// beside a placeholder that still requests the reserve.
fn is_enough_to_exist(seen: &Observation) -> bool {
    seen.config.release_when == ReleaseWhen::Created && !seen.has_reserve()
}

/// Clears `spec.status` and the hold annotation. Without an enrolment, the run leaves its group.
pub(super) fn release(
    seen: &Observation,
    inputs: &Inputs,
    cause: ReleaseCause,
    enrolment: Option<Enrolment>,
) -> Decision {
    let node = enrolment.and(seen.live_node()).map(str::to_owned);
    let run = run_should(seen, |run| {
        run.hold = None;
        run.group = enrolment.map(Into::into);
        run.node = node.clone().or(run.node.take());
    });
    let message = inputs.failed_create.get().ok().cloned().flatten();
    let event = Event::Released {
        cause,
        enrolment,
        node,
        message,
    };
    Decision::act("release", event, [run])
}

/// The step or wait that an existing placeholder needs before the run can be released to its node.
fn obstacle(seen: &Observation, inputs: &Inputs) -> Result<Option<Plan>, Read> {
    let Some(set) = seen.placeholder().usable() else {
        return Ok(None);
    };
    if seen.is_scaled_down() {
        return come_back(seen, inputs, set).map(Some);
    }
    if let Some(plan) = moving::relocate(seen, inputs, set)? {
        return Ok(Some(plan));
    }
    match reshape(seen, set) {
        Reshape::Now(decision) => Ok(Some(at_once(decision))),
        Reshape::Wait(left) => Ok(Some(again(waiting(seen, inputs)?, left))),
        Reshape::No => give_reserve_up(seen, inputs, set),
    }
}

/// Gives up an automatic reserve that fits on no node, and for which no autoscaler adds a node: it would hold the run
/// in vain, and no user chose its amounts for the nodes of this cluster.
fn give_reserve_up(seen: &Observation, inputs: &Inputs, set: &Placeholder) -> Result<Option<Plan>, Read> {
    let Some((pod, since)) = unschedulable_and_big(seen) else {
        return Ok(None);
    };
    let nearest = nearest(seen, pod);
    let is_too_large = nearest.as_ref().is_none_or(|offer| !offer.fits());
    if !(is_too_large && is_automatic(&seen.run, &seen.config)) {
        return Ok(None);
    }
    let left = seen.left(since, PROMISED_BY);
    if !left.is_zero() {
        return Ok(Some(again(waiting(seen, inputs)?, left)));
    }
    let is_promised = |answer: &Option<String>| answer.as_deref().is_some_and(messages::promises_node);
    if inputs.autoscaler.get().map_or(true, is_promised) {
        return Ok(None);
    }
    let small = spec_should(set, |spec| {
        spec.size = usual(&seen.config).requests();
        spec.node = None;
    });
    let actions = [small, Action::Delete(Target::Pod(pod.uid.clone()))];
    let event = Event::ReserveGivenUp { nearest };
    Ok(Some(at_once(Decision::act("give_up_reserve", event, actions))))
}

fn unschedulable_and_big(seen: &Observation) -> Option<(&PlaceholderPod, jiff::Timestamp)> {
    let pod = seen.live_pod().filter(|pod| is_big(seen, pod))?;
    Some((pod, pod.unschedulable.as_ref()?.since))
}

fn nearest(seen: &Observation, pod: &PlaceholderPod) -> Option<NodeOffer> {
    largest(&seen.nodes, &pod.tolerations, &pod.shape.requests)
}

/// Scales the placeholder up once its previous pod has ended. A held run has no other pods to wait for.
fn come_back(seen: &Observation, inputs: &Inputs, set: &Placeholder) -> Result<Plan, Read> {
    if seen.live_pod().is_none() && seen.waiting.is_empty() {
        scaled_down::come_back(inputs, set)
    } else {
        Ok(again(waiting(seen, inputs)?, SOON))
    }
}

fn await_node(seen: &Observation, inputs: &Inputs, enrolment: Enrolment) -> Result<Plan, Read> {
    let until_enrolled = until_enrolled(seen);
    if until_enrolled == Some(Duration::ZERO) {
        return Ok(at_once(enrol(seen, enrolment)));
    }
    match (seen.placeholder(), seen.live_pod()) {
        (Set::Missing, _) => creation::create(seen, inputs, enrolment),
        (Set::Unusable, _) => Ok(again(Decision::await_placeholder(), SOON)),
        (Set::Usable(set), None) => requeue(seen, inputs, set),
        (Set::Usable(_), Some(_)) => Ok(Plan {
            again: until_enrolled,
            ..at_once(waiting(seen, inputs)?)
        }),
    }
}

fn enrol(seen: &Observation, enrolment: Enrolment) -> Decision {
    let enrolled = run_should(seen, |run| run.group = Some(enrolment.into()));
    Decision::act("enrol", None, [enrolled])
}

/// How long a held run stays without its labels. Tekton starts the finally tasks of a run at the moment in which the
/// run is cancelled, so a held run needs its labels before. Most holds are too short for a separate write.
fn until_enrolled(seen: &Observation) -> Option<Duration> {
    match seen.live_pod() {
        _ if seen.run.is_enrolled() => None,
        Some(pod) if pod.unschedulable.is_some() => Some(Duration::ZERO),
        Some(_) | None => Some(left_of_hold(seen, UNENROLLED)),
    }
}

fn waiting(seen: &Observation, inputs: &Inputs) -> Result<Decision, Read> {
    let Some(unschedulable) = seen.live_pod().and_then(|pod| pod.unschedulable.as_ref()) else {
        return Ok(Decision::await_placeholder());
    };
    let autoscaler = inputs.autoscaler.get()?.clone();
    let big = seen.live_pod().filter(|pod| pod.shape.reserves);
    Ok(Decision::Wait(Wait::Node {
        unschedulable: Some(unschedulable.message.clone()),
        autoscaler,
        largest: big.and_then(|pod| nearest(seen, pod)),
    }))
}

/// Requeues the StatefulSet: its controller backs off for minutes after the pod was rejected, and a change of the
/// StatefulSet ends the back-off.
fn requeue(seen: &Observation, inputs: &Inputs, set: &Placeholder) -> Result<Plan, Read> {
    let plan = if !set.observed {
        again(Decision::await_placeholder(), SOON)
    } else if !seen.nudge_in.is_zero() {
        again(Decision::await_placeholder(), seen.nudge_in.min(SOON))
    } else {
        let message = inputs.failed_create.get()?;
        again(requeue_or_resize(seen, inputs, set, message.as_deref()), SOON)
    };
    Ok(plan)
}

fn requeue_or_resize(
    seen: &Observation,
    inputs: &Inputs,
    set: &Placeholder,
    message: Option<&str>,
) -> Decision {
    match (refusal(seen, inputs), message) {
        (Some(Impossible::OutOfLimits(bounds)), Some(message)) => {
            let sized = spec_should(set, |spec| {
                spec.size = within(&bounds, &seen.config).requests();
                spec.within_limits = true;
            });
            let message = message.to_owned();
            Decision::act("ask_within_limits", Event::SizedWithinLimits { message }, [sized])
        }
        (Some(Impossible::OutOfLimits(_) | Impossible::RefersToNothing) | None, message) => {
            let message = message.map(str::to_owned);
            let requeued = Action::Requeue(Requeue::Placeholder);
            Decision::act("nudge", Event::PodMissing { message }, [requeued])
        }
    }
}

fn left_of_hold(seen: &Observation, span: Duration) -> Duration {
    seen.run.left_of_hold(seen.now, span)
}
