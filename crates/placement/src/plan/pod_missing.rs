//! A placeholder whose pod is missing: why the API server rejects the pod, and what the plan changes so that it is accepted.

use super::action::{Action, Event, Requeue};
use super::decision::{Decision, Wait};
use super::observation::{Observation, Placeholder};
use super::state::crosses_namespaces;
use super::{Plan, SOON, change_placeholder, creation, with_timer};
use crate::attempts::{Rejection, Turn};
use crate::cross_namespace_quota::TermsRejected;
use crate::image_pull::Images;
use crate::messages;
use crate::placeholder::size::is_automatic;
use crate::placeholder::spec::LimitsMet;
use crate::pod_rejection::{self, PermanentRejection};
use crate::quota_room::rejection;
use crate::resources::Resources;

/// Whether no retry and no change makes the API server accept the pod.
pub(super) fn is_rejected_permanently(observed: &Observation, placeholder: &Placeholder) -> bool {
    match permanent_rejection(observed) {
        Some(PermanentRejection::MissingObject | PermanentRejection::NamespaceConflict) => true,
        Some(PermanentRejection::OutOfLimitRange(bounds)) => {
            placeholder.spec.meet_limits(&bounds, &observed.config) == LimitsMet::Never
        }
        None => false,
    }
}

/// Why the StatefulSet controller cannot create the pod. An earlier event is outdated while the StatefulSet controller
/// tries again.
pub(super) fn failed_create(observed: &Observation) -> Option<&str> {
    let is_current = observed.live_pod().is_none() && observed.requeue_in.is_zero();
    observed.messages.failed_create.as_deref().filter(|_| is_current)
}

/// Why the API server permanently rejects the placeholder's pod.
fn permanent_rejection(observed: &Observation) -> Option<PermanentRejection> {
    pod_rejection::parse(failed_create(observed)?)
}

/// Requeues the StatefulSet: its controller backs off for minutes after the pod was rejected, and a change of the
/// StatefulSet ends the back-off.
pub(super) fn requeue_statefulset(observed: &Observation, placeholder: &Placeholder) -> Plan {
    if !placeholder.observed {
        with_timer(Decision::await_placeholder(), SOON)
    } else if !observed.requeue_in.is_zero() {
        with_timer(Decision::await_placeholder(), observed.requeue_in.min(SOON))
    } else if let Turn::Later(before) = observed.turn {
        with_timer(Decision::Wait(Wait::OlderRuns(before)), creation::RETRY_ROOM)
    } else {
        with_timer(requeue_or_resize(observed, placeholder), SOON)
    }
}

fn requeue_or_resize(observed: &Observation, placeholder: &Placeholder) -> Decision {
    if is_rejected_for_its_terms(observed, placeholder) {
        return narrow_isolation(placeholder);
    }
    if let Some(message) = rejected_for_its_reserve(observed, placeholder) {
        let small = change_placeholder(placeholder, |spec| spec.shrink(&observed.config));
        let message = message.to_owned();
        return Decision::act("give_up_reserve", Event::ReserveOverQuota { message }, [small]);
    }
    adapted(observed, placeholder).unwrap_or_else(|| {
        let message = failed_create(observed).map(str::to_owned);
        let requeued = Action::Requeue(Requeue::Placeholder);
        Decision::act("requeue_statefulset", Event::PodMissing { message }, [requeued])
    })
}

/// A change of the pod after which the API server may accept the pod.
pub(super) fn adapted(observed: &Observation, placeholder: &Placeholder) -> Option<Decision> {
    if may_be_rejected_for_its_images(observed, placeholder) {
        return Some(leave_out_images(observed, placeholder));
    }
    match permanent_rejection(observed)? {
        PermanentRejection::OutOfLimitRange(bounds) => {
            match placeholder.spec.meet_limits(&bounds, &observed.config) {
                LimitsMet::With(size) => Some(size_within_limits(observed, placeholder, size)),
                LimitsMet::Now | LimitsMet::Never => None,
            }
        }
        PermanentRejection::MissingObject | PermanentRejection::NamespaceConflict => None,
    }
}

/// The run was released without a node, and the API server rejects its placeholder. The reserve is only for the search of a node.
pub(super) fn without_reserve(observed: &Observation, placeholder: &Placeholder) -> Option<Decision> {
    failed_create(observed)?;
    let has_reserve = placeholder.spec.reserve.is_some() && !placeholder.spec.within_limits;
    let small = || change_placeholder(placeholder, |spec| spec.shrink(&observed.config));
    has_reserve.then(|| Decision::act("shrink", None, [small()]))
}

/// Looks again at the end of the pause, until which a rejection does not count.
pub(super) fn after_pause(observed: &Observation, plan: Plan) -> Plan {
    let pauses = observed.live_pod().is_none() && !observed.requeue_in.is_zero();
    match observed.messages.failed_create {
        Some(_) if pauses => plan.no_later_than(observed.requeue_in),
        Some(_) | None => plan,
    }
}

fn size_within_limits(observed: &Observation, placeholder: &Placeholder, size: Resources) -> Decision {
    let sized = change_placeholder(placeholder, |spec| {
        (spec.size, spec.within_limits) = (size, true);
    });
    let message = failed_create(observed).unwrap_or_default().to_owned();
    Decision::act(
        "size_within_limits",
        Event::SizedWithinLimits { message },
        [sized],
    )
}

/// The pod may be rejected because of its affinity terms across namespaces.
fn is_rejected_for_its_terms(observed: &Observation, placeholder: &Placeholder) -> bool {
    let terms = placeholder.strategy.zip(placeholder.isolation);
    let is_rejected = |message| match observed.cluster.terms_rejected {
        Some(TermsRejected::BecauseOf(_)) => messages::is_over_quota(message),
        Some(TermsRejected::WithoutQuota) => messages::lacks_quota_of_terms(message),
        None => false,
    };
    failed_create(observed).is_some_and(is_rejected)
        && terms.is_some_and(|(strategy, isolation)| crosses_namespaces(strategy, isolation))
}

/// The message of a quota that allows less than the automatic reserve.
fn rejected_for_its_reserve<'a>(observed: &'a Observation, placeholder: &Placeholder) -> Option<&'a str> {
    let is_own = placeholder.spec.reserve.is_some() && is_automatic(&observed.run, &observed.config);
    let message = failed_create(observed).filter(|_| is_own)?;
    (rejection(message) == Rejection::TooLarge).then_some(message)
}

/// Deletes the StatefulSet of a held run. The controller then creates it again with an isolation that the quota allows.
fn narrow_isolation(placeholder: &Placeholder) -> Decision {
    Decision::act("narrow_isolation", None, [placeholder.delete()])
}

/// The pod has image volumes, and neither a quota nor an object that the pod refers to explains its rejection. A policy may forbid
/// image volumes.
fn may_be_rejected_for_its_images(observed: &Observation, placeholder: &Placeholder) -> bool {
    let is_unexplained =
        |message: &str| !messages::is_over_quota(message) && pod_rejection::parse(message).is_none();
    !placeholder.spec.images.is_empty() && failed_create(observed).is_some_and(is_unexplained)
}

/// The change also requeues the StatefulSet.
fn leave_out_images(observed: &Observation, placeholder: &Placeholder) -> Decision {
    let without_images = change_placeholder(placeholder, |spec| spec.images = Images::default());
    let message = failed_create(observed).map(str::to_owned);
    Decision::act(
        "leave_out_images",
        Event::PodMissing { message },
        [without_images],
    )
}
