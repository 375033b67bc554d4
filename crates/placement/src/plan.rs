//! The controller's one decision: what is observed of a run, and the time, in; the next step out.
//!
//! Level-triggered: nothing is remembered between two passes, and each step leads to a change that brings the run
//! back for the next one. The stage of the run is settled first; each stage has a sub-decision of its own.

mod view;

use self::view::{Ours, Set, Stage, asked, enrolment, is_enrolled, is_held_by_us};
use crate::config::{Config, ReleaseWhen};
use crate::run::Run;
use crate::strategy::{Isolation, Strategy};
use jiff::Timestamp;
use std::time::Duration;

/// A run's placeholder StatefulSet, as observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placeholder {
    /// UID, the precondition of a delete.
    pub uid: String,
    /// The run of this very UID owns it.
    pub owned: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// `spec.replicas`.
    pub replicas: i32,
    /// Strategy label, as it was resolved when the placeholder was made.
    pub strategy: Option<Strategy>,
    /// Isolation label, likewise.
    pub isolation: Option<Isolation>,
}

/// The placeholder's pod, as observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceholderPod {
    /// UID, the precondition of a write.
    pub uid: String,
    /// The node it is bound to.
    pub node: Option<String>,
    /// It is being deleted, or its phase is Succeeded or Failed.
    pub ending: bool,
    /// The scheduler's own message while it finds no node.
    pub unschedulable: Option<String>,
    /// The run itself owns the pod (isolateAlways, after completion).
    pub adopted: bool,
}

/// All that a decision about one run takes.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The run.
    pub run: &'a Run,
    /// Its placeholder StatefulSet.
    pub placeholder: Option<&'a Placeholder>,
    /// Its placeholder pod.
    pub pod: Option<&'a PlaceholderPod>,
    /// Configuration in force.
    pub config: &'a Config,
}

/// The next step for a run, and when to look again if nothing else happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What to do now.
    pub action: Action,
    /// When to look again; `None` waits for the next change.
    pub again: Option<Duration>,
}

/// One step. Each leads to a change that brings the run back for the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Not ours to touch.
    Leave(Why),
    /// All is as it should be.
    Steady,
    /// Say once that the label came after the first task.
    LabelledTooLate,
    /// Add group, strategy and isolation; the run's `spec.status` stays as it is.
    Enrol(Enrolment),
    /// Create the placeholder by server-side apply.
    CreatePlaceholder(Enrolment),
    /// The StatefulSet is there but its pod is not: wake its controller, say why if it is known.
    NudgePlaceholder,
    /// Wait for a node; the scheduler's message says why there is none yet.
    AwaitNode {
        /// The scheduler's message.
        unschedulable: Option<String>,
    },
    /// Clear Pending and our hold in one guarded patch; enrol unless the user opted out meanwhile.
    Release {
        /// Why now.
        cause: ReleaseCause,
        /// The labels to add.
        enrolment: Option<Enrolment>,
        /// The node, if it is known.
        node: Option<String>,
    },
    /// The placeholder is on another node than the annotation says: write the node down.
    RecordNode {
        /// Where it is now.
        node: String,
    },
    /// Delete the StatefulSet (and with it its pod), or the adopted pod of a run that is being deleted.
    DeletePlaceholder {
        /// Delete the StatefulSet of this UID.
        set: Option<String>,
        /// Delete the pod of this UID.
        pod: Option<String>,
    },
    /// isolateAlways, done: make the run the pod's owner and mark it safe to evict.
    AdoptPod {
        /// UID of the pod.
        pod: String,
    },
    /// isolateAlways, done and adopted: delete the StatefulSet of this UID and leave its pod.
    OrphanPlaceholder {
        /// UID of the StatefulSet.
        set: String,
    },
}

/// The labels that make a run a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enrolment {
    /// Resolved strategy.
    pub strategy: Strategy,
    /// Resolved isolation.
    pub isolation: Isolation,
}

/// Why a run is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// A nested run follows its root.
    Child,
    /// `spec.managedBy` is somebody else.
    ManagedElsewhere,
    /// Opt-in label absent, `false` or invalid, and nothing of ours to undo.
    NotOptedIn,
    /// Somebody else holds the run; it is enrolled and waits for them.
    HeldElsewhere,
    /// Done, and nothing left to clean up.
    Done,
}

/// Why a hold ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseCause {
    /// The placeholder has its node.
    NodeFound,
    /// `release-when: created`, and the placeholder exists.
    PlaceholderCreated,
    /// The hold is older than `hold-deadline`.
    Deadline,
    /// The user took the opt-in back.
    OptedOut,
}

impl Why {
    /// The reason as metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Child => "child",
            Self::ManagedElsewhere => "managed_elsewhere",
            Self::NotOptedIn => "not_opted_in",
            Self::HeldElsewhere => "held_elsewhere",
            Self::Done => "done",
        }
    }
}

impl ReleaseCause {
    /// The cause as metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NodeFound => "node_found",
            Self::PlaceholderCreated => "placeholder_created",
            Self::Deadline => "deadline",
            Self::OptedOut => "opted_out",
        }
    }
}

/// How soon a placeholder that lacks its pod, or is on its way out, is looked at again.
const SOON: Duration = Duration::from_secs(5);

/// Decides the next step.
pub fn plan(observed: &Observed<'_>, now: Timestamp) -> Plan {
    let ours = Ours::of(observed);
    match Stage::of(observed) {
        Stage::Deleting => at_once(clean_up(&ours)),
        Stage::Done => at_once(wind_up(observed, &ours)),
        Stage::Foreign(why) => at_once(Action::Leave(why)),
        Stage::OptedOut => at_once(withdraw(observed, &ours)),
        Stage::HeldByUs(asked) => hold(observed, &ours, enrolment(observed, asked), now),
        Stage::HeldElsewhere(asked) => at_once(queue(observed.run, enrolment(observed, asked))),
        Stage::Running(asked) => at_once(accompany(observed, &ours, enrolment(observed, asked))),
    }
}

/// Being deleted: nothing is kept, a node that was reserved included. Finalizers of others may keep the run for
/// long, so garbage collection is not waited for.
fn clean_up(ours: &Ours<'_>) -> Action {
    let set = ours.set.uid();
    let pod = ours.pod.filter(|pod| pod.adopted).map(|pod| pod.uid.clone());
    delete_or_leave(set, pod, Why::Done)
}

/// Done: the node is free again, unless the strategy keeps it.
fn wind_up(observed: &Observed<'_>, ours: &Ours<'_>) -> Action {
    match ours.pod {
        Some(pod) if pod.node.is_some() && keeps_its_node(observed) => keep_node(pod, ours.set),
        Some(_) | None => delete_or_leave(ours.set.uid(), None, Why::Done),
    }
}

/// The default never applies: an enrolled run has its strategy on it.
fn keeps_its_node(observed: &Observed<'_>) -> bool {
    let asked = asked(observed).unwrap_or(observed.config.default_strategy);
    is_enrolled(observed.run) && enrolment(observed, asked).strategy == Strategy::IsolateAlways
}

/// The pod gets its new owner before it loses the old one, or it would be garbage in between.
fn keep_node(pod: &PlaceholderPod, set: Set<'_>) -> Action {
    match set.uid() {
        _ if !pod.adopted => Action::AdoptPod { pod: pod.uid.clone() },
        Some(set) => Action::OrphanPlaceholder { set },
        None => Action::Leave(Why::Done),
    }
}

/// A run that is not opted in any more must not wait for us, nor be followed.
fn withdraw(observed: &Observed<'_>, ours: &Ours<'_>) -> Action {
    if is_held_by_us(observed.run) {
        return Action::Release {
            cause: ReleaseCause::OptedOut,
            enrolment: None,
            node: None,
        };
    }
    delete_or_leave(ours.set.uid(), None, Why::NotOptedIn)
}

fn delete_or_leave(set: Option<String>, pod: Option<String>, why: Why) -> Action {
    match (set, pod) {
        (None, None) => Action::Leave(why),
        (set, pod) => Action::DeletePlaceholder { set, pod },
    }
}

/// Held by somebody else: the labels have to be there when they let go, a placeholder would only block a node.
fn queue(run: &Run, enrolment: Enrolment) -> Action {
    if is_enrolled(run) {
        Action::Leave(Why::HeldElsewhere)
    } else {
        Action::Enrol(enrolment)
    }
}

/// Held by us: release as soon as there is a reason to, else bring the placeholder forward.
fn hold(observed: &Observed<'_>, ours: &Ours<'_>, enrolment: Enrolment, now: Timestamp) -> Plan {
    let left = time_left(observed, now);
    match reason_to_release(observed.config, ours, left) {
        Some(cause) => at_once(release(cause, enrolment, ours)),
        None => await_node(ours, enrolment, left),
    }
}

fn reason_to_release(config: &Config, ours: &Ours<'_>, left: Duration) -> Option<ReleaseCause> {
    match (ours.set, config.release_when) {
        (Set::Usable(_), _) if ours.node().is_some() => Some(ReleaseCause::NodeFound),
        (Set::Usable(_), ReleaseWhen::Created) => Some(ReleaseCause::PlaceholderCreated),
        (Set::Usable(_), ReleaseWhen::Scheduled) | (Set::Missing | Set::Unusable, _) => {
            left.is_zero().then_some(ReleaseCause::Deadline)
        }
    }
}

fn release(cause: ReleaseCause, enrolment: Enrolment, ours: &Ours<'_>) -> Action {
    Action::Release {
        cause,
        enrolment: Some(enrolment),
        node: ours.node().map(str::to_owned),
    }
}

fn await_node(ours: &Ours<'_>, enrolment: Enrolment, left: Duration) -> Plan {
    let unschedulable = ours.unschedulable();
    match (ours.set, ours.pod) {
        (Set::Missing, _) => at_once(Action::CreatePlaceholder(enrolment)),
        (Set::Unusable, _) => again(Action::AwaitNode { unschedulable: None }, SOON.min(left)),
        (Set::Usable(_), None) => again(Action::NudgePlaceholder, SOON.min(left)),
        (Set::Usable(_), Some(_)) => again(Action::AwaitNode { unschedulable }, left),
    }
}

/// A run without a creation time counts as new: it has not been stored, or its clock cannot be trusted.
fn time_left(observed: &Observed<'_>, now: Timestamp) -> Duration {
    let age = observed
        .run
        .created
        .map(|created| now.duration_since(created))
        .unwrap_or_default();
    let age = Duration::try_from(age).unwrap_or_default();
    observed.config.hold_deadline.saturating_sub(age)
}

/// Running, whoever released it: labels first, so that no more pods come without them, then the placeholder.
fn accompany(observed: &Observed<'_>, ours: &Ours<'_>, enrolment: Enrolment) -> Action {
    match ours.set {
        _ if !is_enrolled(observed.run) => join(observed, enrolment),
        Set::Missing => Action::CreatePlaceholder(enrolment),
        Set::Unusable => Action::Steady,
        Set::Usable(_) => follow(observed.run, ours),
    }
}

/// Pods that run already may be on several nodes, and group affinity would then pin the rest to one of them at
/// random. A placeholder tells that the run was enrolled before and lost its label.
fn join(observed: &Observed<'_>, enrolment: Enrolment) -> Action {
    let had_placeholder = observed.placeholder.is_some_and(|placeholder| placeholder.owned);
    if observed.run.has_children && !had_placeholder {
        return Action::LabelledTooLate;
    }
    Action::Enrol(enrolment)
}

fn follow(run: &Run, ours: &Ours<'_>) -> Action {
    match ours.node() {
        Some(node) if run.node.as_deref() != Some(node) => Action::RecordNode {
            node: node.to_owned(),
        },
        Some(_) | None => Action::Steady,
    }
}

/// Nothing but a change brings the run back.
fn at_once(action: Action) -> Plan {
    Plan { action, again: None }
}

fn again(action: Action, after: Duration) -> Plan {
    Plan {
        action,
        again: Some(after),
    }
}

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod tests;
