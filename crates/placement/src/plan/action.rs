//! The steps that a plan can come to, and why.

use crate::node::{Cause, NodeOffer};
use crate::placeholder::wake::Wake;
use crate::resources::Resources;
use crate::strategy::{Isolation, Strategy};

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
    /// Take group, strategy and isolation back from a run that opted out before anything of it was started.
    Withdraw,
    /// Create the placeholder by server-side apply.
    CreatePlaceholder(Enrolment),
    /// The StatefulSet is there but its pod is not: wake its controller, say why if it is known.
    NudgePlaceholder,
    /// Wait for a node; the scheduler's message says why there is none yet.
    AwaitNode {
        /// The scheduler's message.
        unschedulable: Option<String>,
        /// For a placeholder that asks for a reserve: the node that comes nearest.
        largest: Option<NodeOffer>,
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
    /// Take the [`super::Census`] at the API server, read the placeholder's node there, and decide anew with both.
    CountPods,
    /// Scale the StatefulSet to none: the run gives up its node.
    LetGo {
        /// UID of the StatefulSet.
        set: String,
        /// Why.
        cause: LetGoCause,
        /// The pod that waits longest, if one does.
        pod: Option<String>,
    },
    /// The node would be let go, but tasks of the run live on it: their end is waited for.
    AwaitTasks {
        /// Why it would be let go.
        cause: LetGoCause,
        /// The pod that waits longest, if one does.
        pod: Option<String>,
        /// How many live.
        live: usize,
    },
    /// Let go, and the pod that waited found no other node yet.
    AwaitFit {
        /// Its name.
        pod: String,
        /// What it asks for.
        asks: Resources,
        /// The scheduler's message.
        message: String,
        /// The node that comes nearest.
        largest: Option<NodeOffer>,
    },
    /// Have the scheduler look again at pods that it found no node for while others of the run were there: label them.
    WakeTasks {
        /// Their names.
        pods: Vec<String>,
        /// What to label them with.
        wake: Wake,
    },
    /// Scale the StatefulSet to one again: the placeholder joins its run, or finds it a new node.
    Follow {
        /// UID of the StatefulSet.
        set: String,
    },
    /// The node is found: make the template small, then the pod in place.
    Shrink {
        /// UID of the StatefulSet.
        set: String,
        /// UID of the pod.
        pod: String,
    },
    /// The pod cannot be made small where it is: make the template small and pin it to the node, or unpin it if
    /// there is none, then delete the pod.
    RecreateSmall {
        /// UID of the StatefulSet.
        set: String,
        /// UID of the pod.
        pod: String,
        /// The node to come back to.
        node: Option<String>,
    },
    /// The small pod is on its node: let those after it go anywhere again.
    Unpin {
        /// UID of the StatefulSet.
        set: String,
    },
    /// Delete the StatefulSet of a held run, so that it is made anew with its reserve and finds another node.
    StartOver {
        /// UID of the StatefulSet.
        set: String,
        /// What is wrong with the node it had.
        cause: LetGoCause,
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
    LeavePod {
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

/// Why a run gives up its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LetGoCause {
    /// A task's pod does not fit there.
    TaskDoesNotFit,
    /// The placeholder itself finds no node, and a task waits.
    PlaceholderDoesNotFit,
    /// No pod can start there any more.
    Node(Cause),
}

impl Action {
    pub(super) fn await_placeholder() -> Self {
        Self::AwaitNode {
            unschedulable: None,
            largest: None,
        }
    }
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
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::NodeFound,
        Self::PlaceholderCreated,
        Self::Deadline,
        Self::OptedOut,
    ];

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

impl LetGoCause {
    /// All of them.
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
