//! A run that waits by our hold: released as soon as there is a reason to, else its placeholder is brought forward.

use super::action::{Action, Enrolment, ReleaseCause};
use super::observed::PlaceholderPod;
use super::view::{Look, Set};
use super::weight::{Weight, weigh};
use super::{Plan, SOON, again, at_once, stuck};
use crate::config::ReleaseWhen;
use crate::node::largest;
use std::time::Duration;

/// How long a run is held without being enrolled, unless it is known to wait.
const UNENROLLED: Duration = Duration::from_mins(1);

pub(super) fn hold(look: &Look<'_>, enrolment: Enrolment) -> Plan {
    let left = left_of_hold(look, look.config().hold_deadline);
    let obstacle = obstacle(look);
    match reason_to_release(look, obstacle.is_none(), left) {
        Some(cause) => at_once(release(look, cause, enrolment)),
        None => obstacle
            .unwrap_or_else(|| await_node(look, enrolment))
            .no_later_than(left),
    }
}

fn reason_to_release(look: &Look<'_>, clear: bool, left: Duration) -> Option<ReleaseCause> {
    match look.set {
        Set::Usable(_) if clear && look.node().is_some() => Some(ReleaseCause::NodeFound),
        Set::Usable(_) if clear && is_enough_to_exist(look) => Some(ReleaseCause::PlaceholderCreated),
        Set::Usable(_) | Set::Missing | Set::Unusable => left.is_zero().then_some(ReleaseCause::Deadline),
    }
}

/// A reserve means nothing unless it is waited for: the tasks would not fit beside a placeholder that has it still.
fn is_enough_to_exist(look: &Look<'_>) -> bool {
    look.config().release_when == ReleaseWhen::Created && !look.has_reserve()
}

fn release(look: &Look<'_>, cause: ReleaseCause, enrolment: Enrolment) -> Action {
    Action::Release {
        cause,
        enrolment: Some(enrolment),
        node: look.node().map(str::to_owned),
    }
}

/// What a placeholder that is there has to do before its node is one to release the run to.
fn obstacle(look: &Look<'_>) -> Option<Plan> {
    let set = look.set.usable()?;
    if look.has_let_go() {
        return Some(come_back(look));
    }
    let lighter = || match weigh(look, set) {
        Weight::TooHeavy(action) => Some(at_once(action)),
        Weight::Settling(left) => Some(again(waiting(look), left)),
        Weight::Right => None,
    };
    stuck::relocate(look, set).or_else(lighter)
}

/// A held run has no pods that could be in the way of coming back, only the old placeholder.
fn come_back(look: &Look<'_>) -> Plan {
    let back = look
        .set
        .uid()
        .filter(|_| look.pod.is_none() && look.waiting().is_empty());
    match back {
        Some(set) => at_once(Action::Follow { set }),
        None => again(waiting(look), SOON),
    }
}

fn await_node(look: &Look<'_>, enrolment: Enrolment) -> Plan {
    match (look.set, look.pod, until_enrolled(look)) {
        (Set::Missing, ..) => at_once(Action::CreatePlaceholder(enrolment)),
        (Set::Unusable | Set::Usable(_), _, Some(Duration::ZERO)) => at_once(Action::Enrol(enrolment)),
        (Set::Unusable, ..) => again(Action::await_placeholder(), SOON),
        (Set::Usable(_), None, _) => again(Action::NudgePlaceholder, SOON),
        (Set::Usable(_), Some(_), again) => Plan {
            again,
            ..at_once(waiting(look))
        },
    }
}

/// A run that is cancelled while we hold it starts its finally tasks at that moment, so its labels have to be there
/// before. Most holds are over too soon to be worth that write of their own.
fn until_enrolled(look: &Look<'_>) -> Option<Duration> {
    match look.pod {
        _ if look.run().is_enrolled() => None,
        Some(pod) if pod.unschedulable.is_some() => Some(Duration::ZERO),
        Some(_) | None => Some(left_of_hold(look, UNENROLLED)),
    }
}

fn waiting(look: &Look<'_>) -> Action {
    let unschedulable = look.pod.and_then(|pod| pod.unschedulable.as_ref());
    let asks = |pod: &&PlaceholderPod| pod.make.reserves && pod.unschedulable.is_some();
    let tolerations = &look.run().template.tolerations;
    Action::AwaitNode {
        unschedulable: unschedulable.map(|it| it.message.clone()),
        largest: look
            .pod
            .filter(asks)
            .and_then(|pod| largest(look.observed.around.nodes, tolerations, &pod.make.requests)),
    }
}

/// A run without a creation time counts as new: it has not been stored, or its clock cannot be trusted.
fn left_of_hold(look: &Look<'_>, span: Duration) -> Duration {
    look.left(look.run().held_since().unwrap_or(look.now), span)
}
