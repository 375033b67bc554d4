//! What a plan can come to: one of four, of which only a write changes anything.
//!
//! A new step is a variant of [`Write`]; the compiler then asks for its requests (`requests`) and for what the user
//! hears of it (the controller's `notes`).

use crate::limits::Bounds;
use crate::node::{Cause, NodeOffer};
use crate::placeholder::wake::Wake;
use crate::resources::Resources;
use crate::strategy::Enrolment;
use strum::{IntoStaticStr, VariantArray};

/// What to do with a run now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Not ours to touch.
    Leave(Why),
    /// Nothing: something has to change first.
    Wait(Wait),
    /// Ask the API server this, and decide again with the answer.
    Count(Question),
    /// Change something. Each write leads to a change that brings the run back for the next decision.
    Write(Write),
}

/// What a run waits for.
#[derive(Clone, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Wait {
    /// All is as it should be.
    Steady,
    /// The run started before it was held or enrolled: nothing is done, and the user hears it once.
    LabelledTooLate,
    /// A node; the scheduler's message says why there is none yet.
    Node {
        /// The scheduler's message.
        unschedulable: Option<String>,
        /// For a placeholder that asks for a reserve: the node that comes nearest.
        largest: Option<NodeOffer>,
    },
    /// Room for the placeholder in a quota of StatefulSets, beside those that Tekton makes.
    Places {
        /// Which quota, and what it has, in words.
        quota: String,
    },
    /// The node would be given up, but tasks of the run live on it: their end.
    Tasks {
        /// Why it would be given up.
        cause: MoveCause,
        /// The pod that waits longest, if one does.
        pod: Option<String>,
        /// How many live.
        live: usize,
    },
    /// The node would be given up, but a PVC of the run can be used nowhere else: a run that took the node meanwhile would keep
    /// this one from ever coming back.
    Volume {
        /// Why it would be given up.
        cause: MoveCause,
        /// The pod that waits longest, if one does.
        pod: Option<String>,
        /// Name of the PVC.
        claim: String,
    },
    /// The node is given up, and the pod that waited found no other yet.
    Fit {
        /// Its name.
        pod: String,
        /// What it asks for.
        asks: Resources,
        /// The scheduler's message.
        message: String,
        /// The node that comes nearest.
        largest: Option<NodeOffer>,
    },
}

/// What only the API server can answer: the caches may be behind, and they keep little.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Question {
    /// How many tasks live, and what state the placeholder's node is in.
    Tasks,
    /// Which TaskRuns of the run a quota lets have no pod.
    Refused,
    /// Which PVCs of the run its placeholder may mount.
    Claims,
    /// What the run has of the labels that its placeholder copies.
    Labels,
    /// What the run is expected to need at once.
    Need,
    /// Which quota of StatefulSets has no room for the placeholder, if one has none.
    Places,
    /// What the tasks of the run asked for, and when they ran.
    Stints,
    /// Tekton's assistants of a run that gave up a node, and where they are.
    Assistants,
    /// Why the placeholder's StatefulSet has no pod.
    Complaint,
    /// What an autoscaler answered the placeholder's pod.
    Autoscaler,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Write {
    /// Add group, strategy and isolation; the run's `spec.status` stays as it is.
    Enrol(Enrolment),
    /// Write down when the hold began, which an admission policy could not.
    DateHold,
    /// Take group, strategy and isolation back from a run that opted out before anything of it was started.
    Withdraw,
    /// Create the placeholder by server-side apply.
    CreatePlaceholder(Enrolment),
    /// The StatefulSet is there but its pod is not: wake its controller, say why if it is known.
    Nudge,
    /// A `LimitRange` does not let its pod in: have it ask for what that allows.
    AskWithinLimits {
        /// UID of the StatefulSet.
        set: String,
        /// What it allows.
        bounds: Bounds,
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
    /// Scale the StatefulSet to none: the run gives up its node.
    MoveOff {
        /// UID of the StatefulSet.
        set: String,
        /// Why.
        cause: MoveCause,
        /// The pod that waits longest, if one does.
        pod: Option<String>,
    },
    /// Scale the StatefulSet to none: a quota has no room for a pod of a task while the placeholder counts.
    MakeRoom {
        /// UID of the StatefulSet.
        set: String,
    },
    /// Delete the placeholder of another run: its place in a quota is the one that Tekton needs for this run, whose hold is over.
    FreePlace {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// Have Tekton try again to make the pods of these TaskRuns, now that there is room: it would in a minute.
    RetryTasks {
        /// Their names.
        tasks: Vec<String>,
    },
    /// Have the scheduler look again at pods that it found no node for while others of the run were there: label them.
    /// Tekton's assistants leave the old node first.
    WakeTasks {
        /// Their names.
        pods: Vec<String>,
        /// What to label them with.
        wake: Wake,
    },
    /// Scale the StatefulSet to one again: the placeholder joins its run, or finds it a new node. Tekton's assistants
    /// leave the old node first.
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
    /// No node is as large as an automatic reserve, and none is coming: make the template small, then delete the pod.
    GiveUpReserve {
        /// UID of the StatefulSet.
        set: String,
        /// UID of the pod.
        pod: String,
        /// The node that comes nearest.
        nearest: Option<NodeOffer>,
    },
    /// The small pod is on its node: let those after it go anywhere again.
    Unpin {
        /// UID of the StatefulSet.
        set: String,
    },
    /// Delete the StatefulSet of a held run, so that it is recreated with its reserve and finds another node.
    StartOver {
        /// UID of the StatefulSet.
        set: String,
        /// What is wrong with the node it had.
        cause: MoveCause,
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

/// Why a run is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// A nested run follows its root.
    Child,
    /// `spec.managedBy` is another.
    ManagedElsewhere,
    /// Opt-in label absent, `false` or invalid, and nothing of ours to undo.
    NotOptedIn,
    /// Another holds the run; it is enrolled and waits for them.
    HeldElsewhere,
    /// Done, and nothing left to clean up.
    Done,
}

/// Why a hold ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ReleaseCause {
    /// The placeholder has its node.
    NodeFound,
    /// `release-when: created`, and the placeholder exists.
    PlaceholderCreated,
    /// There will never be a placeholder: it refers to an object that does not exist, or no size of it is let in.
    PlaceholderImpossible,
    /// The hold is older than `hold-deadline`.
    Deadline,
    /// The user took the opt-in back.
    OptedOut,
}

/// Why a run gives up its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MoveCause {
    /// A task's pod does not fit there.
    TaskDoesNotFit,
    /// The placeholder itself finds no node, and a task waits.
    PlaceholderDoesNotFit,
    /// No pod can start there any more.
    Node(Cause),
}

impl Decision {
    pub(super) fn await_placeholder() -> Self {
        Self::Wait(Wait::Node {
            unschedulable: None,
            largest: None,
        })
    }

    /// What it is, for logs and traces.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Leave(_) => "leave",
            Self::Wait(wait) => wait.into(),
            Self::Count(question) => question.into(),
            Self::Write(write) => write.into(),
        }
    }
}

impl ReleaseCause {
    /// All of them.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The cause as metric label.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl MoveCause {
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
