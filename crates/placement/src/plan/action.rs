//! The actions of a plan, of six kinds, the events that report them to a user, and the causes in these events.
//!
//! An action states what an object should be. `requests` computes the requests from the action and the observation.

use super::inputs::Creation;
use super::requeue_mark::RequeueMark;
use crate::automatic_reserve::ExpectedRequests;
use crate::kept_node::NewKeptNode;
use crate::node::{Cause, NodeOffer};
use crate::placeholder::spec::Spec;
use crate::quota_room::RejectedTask;
use crate::requests::RunState;
use crate::strategy::Enrolment;
use strum::{IntoStaticStr, VariantArray};

/// A change of one object, or of several objects of a kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// The run should carry this.
    Run(RunState),
    /// The object should exist.
    Create(New),
    /// The placeholder's StatefulSet should be this.
    Placeholder(Spec),
    /// The placeholder's pod is changed in place.
    Pod(PodChange),
    /// The object should be deleted.
    Delete(Target),
    /// Another controller should reconcile these objects now.
    Requeue(Requeue),
}

/// An object to create.
#[derive(Clone, Debug, PartialEq)]
pub enum New {
    /// The placeholder of the run.
    Placeholder(Enrolment, Creation),
    /// The pod that keeps the node after the run. The other actions of the step are carried out even if this one fails.
    KeptNode(NewKeptNode),
}

/// A change of the placeholder's pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodChange {
    /// The pod of this UID should have the usual size.
    Resize(String),
    /// The run should own the pod of this UID, and autoscalers may remove its node.
    Adopt(String),
}

/// An object to delete; the UID is the precondition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The placeholder's StatefulSet of this UID.
    Placeholder(String),
    /// The placeholder's pod of this UID.
    Pod(String),
    /// The StatefulSet of another run's placeholder.
    OtherPlaceholder {
        /// Name of the StatefulSet.
        name: String,
        /// UID of the StatefulSet.
        uid: String,
    },
    /// An affinity assistant on a node that the run gave up. Its StatefulSet recreates it on the run's next node.
    Assistant {
        /// Name of the pod.
        name: String,
        /// UID of the pod.
        uid: String,
    },
}

/// Objects that another controller should reconcile now, instead of at the end of its own back-off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// The placeholder's StatefulSet, by its controller: its pod is missing.
    Placeholder,
    /// Task pods, by the scheduler.
    Pods {
        /// Names of the pods.
        names: Vec<String>,
        /// The value of their label `woken`.
        mark: RequeueMark,
    },
    /// TaskRuns whose pods a quota rejected, by Tekton, which would retry in a minute.
    TaskRuns {
        /// Names of the TaskRuns.
        names: Vec<String>,
        /// The rejection for which the TaskRuns are requeued.
        rejection: String,
    },
}

/// The meaning of a step for the user, the metrics and the controller's memory.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The controller labelled a run that pod-affinity does not hold.
    Enrolled,
    /// The placeholder was created, for an automatic reserve with room for this.
    Created(Option<ExpectedRequests>),
    /// An automatic reserve that no node holds was given up.
    ReserveGivenUp {
        /// The node that comes nearest.
        nearest: Option<NodeOffer>,
    },
    /// An automatic reserve that a quota never allows was given up.
    ReserveOverQuota {
        /// The message of the event `FailedCreate`.
        message: String,
    },
    /// The placeholder has no pod; the message says why, if it is known.
    PodMissing {
        /// The message of the event `FailedCreate`.
        message: Option<String>,
    },
    /// A `LimitRange` rejected the placeholder's pod, which now requests what the `LimitRange` allows.
    SizedWithinLimits {
        /// The message of the event `FailedCreate`.
        message: String,
    },
    /// The hold ended.
    Released {
        /// The cause.
        cause: ReleaseCause,
        /// The labels that the run got.
        enrolment: Option<Enrolment>,
        /// The node, if it is known.
        node: Option<String>,
        /// The message of the event `FailedCreate`, if it was read.
        message: Option<String>,
    },
    /// The placeholder is on another node than the run's annotation named.
    NodeRecorded {
        /// The node of the placeholder.
        node: String,
    },
    /// The run gave up its node.
    MovedOff {
        /// The cause.
        cause: MoveCause,
        /// The pod that waits longest, if a pod waits.
        pod: Option<String>,
        /// The placeholder is recreated with its reserve, because the run is still held.
        starts_over: bool,
    },
    /// The placeholder made room in a quota of pods.
    MadeRoom {
        /// The TaskRuns whose pods the quota rejected.
        tasks: Vec<RejectedTask>,
    },
    /// Placeholders were deleted, to make room for StatefulSets of Tekton.
    PlacesFreed {
        /// The names of the placeholders.
        names: Vec<String>,
        /// The quota and its figures.
        quota: String,
    },
    /// The placeholder of a run that continues was deleted.
    CleanedUp,
    /// The node stays reserved for the run, which is done.
    NodeKept,
}

/// Why a hold ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ReleaseCause {
    /// The placeholder has its node.
    NodeFound,
    /// `release-when` is `created`, and the placeholder exists.
    PlaceholderCreated,
    /// The placeholder's pod is rejected permanently: it refers to an object that does not exist, or no size of it is
    /// admitted.
    PlaceholderImpossible,
    /// The hold is older than `hold-deadline`.
    Deadline,
    /// The user opted the run out.
    OptedOut,
}

/// Why a run gives up its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MoveCause {
    /// A task's pod does not fit on the node.
    TaskDoesNotFit,
    /// The scheduler finds no node for the placeholder, and a task waits.
    PlaceholderDoesNotFit,
    /// The node is unusable: no pod can start there.
    Node(Cause),
}

impl ReleaseCause {
    /// All causes.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The cause as metric label.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl MoveCause {
    /// All causes.
    pub const ALL: [Self; 6] = [
        Self::TaskDoesNotFit,
        Self::PlaceholderDoesNotFit,
        Self::Node(Cause::Cordoned),
        Self::Node(Cause::Tainted),
        Self::Node(Cause::NotReady),
        Self::Node(Cause::Gone),
    ];

    /// The cause as metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TaskDoesNotFit => "task_does_not_fit",
            Self::PlaceholderDoesNotFit => "placeholder_does_not_fit",
            Self::Node(cause) => cause.as_str(),
        }
    }
}
