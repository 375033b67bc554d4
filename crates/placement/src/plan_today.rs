//! The plan as the controller calls it until it carries out the steps of 'Never stuck'; then this file goes and
//! `next::plan` is `plan`.
//!
//! It sees nothing around a run, so that the steps the controller does not know never come up, but for a placeholder
//! that somebody scaled to none.

use crate::config::Config;
use crate::next::plan as next;
use crate::run::Run;
use crate::strategy::{Isolation, Strategy};
use jiff::Timestamp;
use std::time::Duration;

pub use next::{Enrolment, ReleaseCause, Why};

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

/// Decides the next step.
pub fn plan(observed: &Observed<'_>, now: Timestamp) -> Plan {
    let placeholder = observed.placeholder.map(Placeholder::for_next);
    let pod = observed.pod.map(|pod| pod.for_next(now));
    let observed = next::Observed {
        run: observed.run,
        placeholder: placeholder.as_ref(),
        pod: pod.as_ref(),
        config: observed.config,
        around: next::Surroundings::default(),
    };
    let next::Plan {
        action,
        again,
        note: _,
    } = next::plan(&observed, now);
    Plan {
        action: action.into(),
        again,
    }
}

impl Placeholder {
    fn for_next(&self) -> next::Placeholder {
        let Self {
            uid,
            owned,
            deleting,
            replicas,
            strategy,
            isolation,
        } = self.clone();
        next::Placeholder {
            uid,
            owned,
            deleting,
            replicas,
            strategy,
            isolation,
            pinned: false,
        }
    }
}

impl PlaceholderPod {
    fn for_next(&self, since: Timestamp) -> next::PlaceholderPod {
        let unschedulable = |message: &String| next::Unschedulable {
            message: message.clone(),
            since,
        };
        next::PlaceholderPod {
            uid: self.uid.clone(),
            node: self.node.clone(),
            ending: self.ending,
            unschedulable: self.unschedulable.as_ref().map(unschedulable),
            adopted: self.adopted,
            make: next::Make::default(),
        }
    }
}

impl From<next::Action> for Action {
    fn from(action: next::Action) -> Self {
        match action {
            next::Action::Leave(why) => Self::Leave(why),
            next::Action::LabelledTooLate => Self::LabelledTooLate,
            next::Action::Enrol(enrolment) => Self::Enrol(enrolment),
            next::Action::CreatePlaceholder(enrolment) => Self::CreatePlaceholder(enrolment),
            next::Action::NudgePlaceholder => Self::NudgePlaceholder,
            next::Action::AwaitNode { unschedulable, .. } => Self::AwaitNode { unschedulable },
            next::Action::Release {
                cause,
                enrolment,
                node,
            } => Self::Release {
                cause,
                enrolment,
                node,
            },
            next::Action::RecordNode { node } => Self::RecordNode { node },
            next::Action::DeletePlaceholder { set, pod } => Self::DeletePlaceholder { set, pod },
            next::Action::AdoptPod { pod } => Self::AdoptPod { pod },
            next::Action::OrphanPlaceholder { set } => Self::OrphanPlaceholder { set },
            next::Action::Steady
            | next::Action::CountPods
            | next::Action::LetGo { .. }
            | next::Action::AwaitTasks { .. }
            | next::Action::AwaitFit { .. }
            | next::Action::Follow { .. }
            | next::Action::Shrink { .. }
            | next::Action::RecreateSmall { .. }
            | next::Action::Unpin { .. }
            | next::Action::StartOver { .. } => Self::Steady,
        }
    }
}
