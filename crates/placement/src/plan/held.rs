//! A run that pod-affinity holds. The plan releases the run as soon as there is a reason, and until then brings the
//! placeholder to its node.

use super::action::{Event, ReleaseCause};
use super::decision::{Decision, Wait};
use super::inputs::{Inputs, Read};
use super::observation::{Observation, Placeholder, PlaceholderPod};
use super::reshape::{Reshape, is_larger_than_usual, reshape};
use super::state::PlaceholderState::{Missing, Unusable, Usable};
use super::{
    Plan, SOON, change_placeholder, change_run, creation, enrol, moving, pod_missing, scaled_down,
    with_timer, without_timer,
};
use crate::attempts::{Before, Turn};
use crate::config::ReleaseWhen;
use crate::messages;
use crate::node::{NodeOffer, largest};
use crate::placeholder::size::is_automatic;
use crate::queue::{ANSWER_WITHIN, required_of_node};
use crate::run::HeldFrom;
use crate::statefulset_quota::Shortage;
use crate::strategy::Enrolment;
use std::sync::Arc;
use std::time::Duration;

/// After this time a held run is enrolled, or at once if its placeholder is unschedulable.
const ENROLLED_AFTER: Duration = Duration::from_mins(1);
/// How long a hold may last longer while the plan makes room in a quota for the run's affinity assistants.
const ROOM_WITHIN: Duration = Duration::from_secs(15);

/// Only the quotas of a run with affinity assistants are read before its release.
pub(super) fn on_held(observed: &Observation, inputs: &Inputs, enrolment: Enrolment) -> Result<Plan, Read> {
    if let Some(step) = date_or_suspend(observed, enrolment) {
        return Ok(without_timer(step));
    }
    let remaining = hold_remaining(observed, observed.config.hold_deadline);
    let obstacle = obstacle(observed, inputs);
    if let Some(cause) = reason_to_release(observed, obstacle == Ok(None), remaining) {
        let release = without_timer(release(observed, cause, Some(enrolment)));
        let is_over = remaining.is_zero() || cause == ReleaseCause::PlaceholderImpossible;
        return Ok(match shortage(observed, inputs, remaining)? {
            Some(shortage) if is_over => creation::free_places(observed, shortage).unwrap_or(release),
            Some(shortage) => await_places(observed, shortage, enrolment).no_later_than(remaining),
            None => release,
        });
    }
    let plan = match obstacle? {
        Some(plan) => plan,
        None => await_node(observed, inputs, enrolment)?,
    };
    Ok(plan.no_later_than(remaining))
}

/// While a cap has no room for the run, the hold has no date, so that its deadline does not count. The run gets the labels of its
/// group with the same write, because it may be cancelled meanwhile.
fn date_or_suspend(observed: &Observation, enrolment: Enrolment) -> Option<Decision> {
    let is_over_cap =
        matches!(observed.turn, Turn::Later(Before::OverCap(_))) && observed.placeholder().usable().is_none();
    match observed.run.held_from {
        HeldFrom::OverCap if is_over_cap && observed.run.is_enrolled() => None,
        HeldFrom::UndatedRelease | HeldFrom::OverCap if !is_over_cap => Some(date_hold(observed)),
        HeldFrom::Creation | HeldFrom::Release(_) | HeldFrom::UndatedRelease | HeldFrom::OverCap => {
            let suspended = change_run(observed, |run| {
                run.hold = Some(HeldFrom::OverCap);
                run.group = Some(enrolment.into());
            });
            is_over_cap.then(|| Decision::act("suspend_hold", None, [suspended]))
        }
    }
}

fn date_hold(observed: &Observation) -> Decision {
    let dated = change_run(observed, |run| run.hold = Some(HeldFrom::Release(observed.now)));
    Decision::act("date_hold", None, [dated])
}

fn reason_to_release(observed: &Observation, clear: bool, remaining: Duration) -> Option<ReleaseCause> {
    match observed.placeholder() {
        Usable(_) if clear && observed.live_node().is_some() => Some(ReleaseCause::NodeFound),
        Usable(_) if clear && may_release_when_created(observed) => Some(ReleaseCause::PlaceholderCreated),
        Usable(placeholder) if pod_missing::is_rejected_permanently(observed, placeholder) => {
            Some(ReleaseCause::PlaceholderImpossible)
        }
        Missing if observed.messages.invalid_template.is_some() => Some(ReleaseCause::PlaceholderImpossible),
        Usable(_) | Missing | Unusable => remaining.is_zero().then_some(ReleaseCause::Deadline),
    }
}

/// The quota that has no room for Tekton's assistants, unless the plan has tried to make room for too long.
pub(super) fn shortage<'a>(
    observed: &Observation,
    inputs: &'a Inputs,
    remaining: Duration,
) -> Result<Option<&'a Shortage>, Read> {
    let is_late = |since| remaining.is_zero() && observed.remaining(since, ROOM_WITHIN).is_zero();
    if observed.makes_room_since.is_some_and(is_late)
        || observed.run.assistants(observed.cluster.coschedule) == 0
    {
        Ok(None)
    } else {
        Ok(inputs.quota.as_ref().ok_or(Read::Quota)?.shortage.as_ref())
    }
}

fn await_places(observed: &Observation, shortage: &Shortage, enrolment: Enrolment) -> Plan {
    if enrols_in(observed) == Some(Duration::ZERO) {
        return without_timer(enrol(observed, enrolment, None));
    }
    let quota = shortage.quota.clone();
    with_timer(Decision::Wait(Wait::Places { quota }), SOON)
}

/// With `release-when: created`, a placeholder that exists is enough, unless it has a reserve: the tasks would not fit
/// beside a placeholder that still requests the reserve.
fn may_release_when_created(observed: &Observation) -> bool {
    observed.config.release_when == ReleaseWhen::Created && !observed.has_reserve()
}

/// Clears `spec.status` and the hold annotation. Without an enrolment, the run leaves its group.
pub(super) fn release(observed: &Observation, cause: ReleaseCause, enrolment: Option<Enrolment>) -> Decision {
    let node = enrolment.and(observed.live_node()).map(str::to_owned);
    let run = change_run(observed, |run| {
        run.hold = None;
        run.group = enrolment.map(Into::into);
        run.node = node.clone().or(run.node.take());
    });
    let message = observed
        .messages
        .invalid_template
        .as_deref()
        .or(pod_missing::failed_create(observed));
    let message = message.map(str::to_owned);
    let event = Event::Released {
        cause,
        enrolment,
        node,
        message,
    };
    Decision::act("release", event, [run])
}

/// The step or wait that an existing placeholder needs before the run can be released to its node.
fn obstacle(observed: &Observation, inputs: &Inputs) -> Result<Option<Plan>, Read> {
    let Some(placeholder) = observed.placeholder().usable() else {
        return Ok(None);
    };
    if observed.is_scaled_down() {
        return return_placeholder(observed, inputs, placeholder).map(Some);
    }
    if let Some(plan) = moving::leave_unusable_node(observed, inputs, placeholder)? {
        return Ok(Some(plan));
    }
    match reshape(observed, placeholder) {
        Reshape::Now(decision) => Ok(Some(without_timer(decision))),
        Reshape::Wait(remaining) => Ok(Some(with_timer(await_scheduler(observed), remaining))),
        Reshape::No => Ok(give_up_reserve(observed, placeholder)),
    }
}

/// Gives up an automatic reserve that fits on no node, and for which no autoscaler adds a node: the run would wait until
/// its deadline, and no user chose these amounts.
fn give_up_reserve(observed: &Observation, placeholder: &Placeholder) -> Option<Plan> {
    let (pod, since) = unschedulable_with_reserve(observed)?;
    let nearest = nearest(observed, pod);
    let is_too_large = nearest.as_ref().is_none_or(|offer| !offer.fits());
    if !(is_too_large && is_automatic(&observed.run, &observed.config)) {
        return None;
    }
    let remaining = observed.remaining(since, ANSWER_WITHIN);
    if !remaining.is_zero() {
        return Some(with_timer(await_scheduler(observed), remaining));
    }
    let answer = observed.messages.autoscaler.as_deref();
    if answer.is_some_and(messages::promises_node) {
        return None;
    }
    let small = change_placeholder(placeholder, |spec| {
        spec.shrink(&observed.config);
        spec.node = None;
    });
    let actions = [small, pod.delete()];
    let event = Event::ReserveGivenUp { nearest };
    Some(without_timer(Decision::act("give_up_reserve", event, actions)))
}

fn unschedulable_with_reserve(observed: &Observation) -> Option<(&PlaceholderPod, jiff::Timestamp)> {
    let pod = observed
        .live_pod()
        .filter(|pod| is_larger_than_usual(observed, pod))?;
    Some((pod, pod.unschedulable.as_ref()?.since))
}

fn nearest(observed: &Observation, pod: &PlaceholderPod) -> Option<NodeOffer> {
    let required = required_of_node(&observed.run, &observed.config);
    let nodes = observed.cluster.nodes.iter();
    let nodes = nodes
        .map(Arc::as_ref)
        .filter(|node| required.allow(node, &pod.tolerations));
    largest(nodes, &pod.shape.requests)
}

/// Scales the placeholder up once its previous pod has ended. A held run has no other pods to wait for.
fn return_placeholder(
    observed: &Observation,
    inputs: &Inputs,
    placeholder: &Placeholder,
) -> Result<Plan, Read> {
    if observed.live_pod().is_none() && observed.waiting.is_empty() {
        scaled_down::return_placeholder(observed, inputs, placeholder)
    } else {
        Ok(with_timer(await_scheduler(observed), SOON))
    }
}

fn await_node(observed: &Observation, inputs: &Inputs, enrolment: Enrolment) -> Result<Plan, Read> {
    let enrols_in = enrols_in(observed);
    if enrols_in == Some(Duration::ZERO) {
        return Ok(without_timer(enrol(observed, enrolment, None)));
    }
    match (observed.placeholder(), observed.live_pod()) {
        (Missing, _) => creation::create(observed, inputs, enrolment),
        (Unusable, _) => Ok(with_timer(Decision::await_placeholder(), SOON)),
        (Usable(placeholder), None) => Ok(pod_missing::requeue_statefulset(observed, placeholder)),
        (Usable(placeholder), Some(_)) => Ok(match observed.turn {
            Turn::Later(Before::Waiting { .. }) => without_timer(step_back(placeholder)),
            Turn::Later(Before::Starting | Before::Rejected | Before::OverCap(_)) | Turn::Now => Plan {
                again: enrols_in.into_iter().chain(is_silent_in(observed)).min(),
                ..without_timer(await_scheduler(observed))
            },
        }),
    }
}

/// Deletes the placeholder of a run that found no node, while older runs of its kind wait for a node. The scheduler would try the
/// placeholder of the younger run first, because the placeholder was tried less often.
fn step_back(placeholder: &Placeholder) -> Decision {
    Decision::act("step_back", None, [placeholder.delete()])
}

/// When the plan stops to wait for the answer of an autoscaler.
fn is_silent_in(observed: &Observation) -> Option<Duration> {
    let unschedulable = observed.live_pod()?.unschedulable.as_ref()?;
    let remaining = observed.remaining(unschedulable.since, ANSWER_WITHIN);
    let is_unanswered = observed.messages.autoscaler.is_none() && !remaining.is_zero();
    is_unanswered.then_some(remaining)
}

/// How long a held run stays without its labels. Tekton starts the finally tasks of a run at the moment in which the
/// run is cancelled, so a held run needs its labels before. Most holds are too short for a separate write.
fn enrols_in(observed: &Observation) -> Option<Duration> {
    match observed.live_pod() {
        _ if observed.run.is_enrolled() => None,
        Some(pod) if pod.unschedulable.is_some() => Some(Duration::ZERO),
        Some(_) | None => Some(hold_remaining(observed, ENROLLED_AFTER)),
    }
}

fn await_scheduler(observed: &Observation) -> Decision {
    let Some(unschedulable) = observed.live_pod().and_then(|pod| pod.unschedulable.as_ref()) else {
        return Decision::await_placeholder();
    };
    let big = observed.live_pod().filter(|pod| pod.shape.reserves);
    Decision::Wait(Wait::Node {
        unschedulable: Some(unschedulable.message.clone()),
        autoscaler: observed.messages.autoscaler.clone(),
        largest: big.and_then(|pod| nearest(observed, pod)),
    })
}

fn hold_remaining(observed: &Observation, span: Duration) -> Duration {
    observed.run.hold_remaining(observed.now, span)
}
