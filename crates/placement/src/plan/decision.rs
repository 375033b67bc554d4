//! The decisions of a plan: ignore the run, wait, read more, or act.

use super::action::{Action, Event, MoveCause};
use super::inputs::Read;
use crate::attempts::Before;
use crate::node::NodeOffer;
use crate::resources::Resources;
use strum::IntoStaticStr;

/// What the controller does with a run now.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// The controller has nothing to do with the run, now or any more.
    Ignore(IgnoreReason),
    /// Another object has to change first.
    Wait(Wait),
    /// A group of inputs is missing: read it and plan again.
    Read(Read),
    /// The step to take.
    Act(Step),
}

/// The actions of one step in a fixed order, and the event that reports them. Each step changes an object, and this
/// change triggers the next decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The name of the step in logs, traces and the table of the plan.
    pub name: &'static str,
    /// What events, metrics and the controller's memory record once all actions are done.
    pub event: Option<Event>,
    /// The actions in their order: a pod template is changed before the pod, and a pod is adopted before its previous
    /// owner is deleted.
    pub actions: Vec<Action>,
}

/// What a run waits for.
#[derive(Clone, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Wait {
    /// Nothing: the run and its placeholder are as they should be.
    Settled,
    /// The run started before it was held or enrolled. One event reports that pod-affinity does nothing for the run.
    LabelledTooLate,
    /// A node for the placeholder.
    Node {
        /// The scheduler's message.
        unschedulable: Option<String>,
        /// The message of an autoscaler about the placeholder's pod.
        autoscaler: Option<String>,
        /// The node that comes nearest to a placeholder with a reserve.
        largest: Option<NodeOffer>,
    },
    /// The end of a StatefulSet with the placeholder's name that is being deleted or belongs to another owner.
    OldStatefulSet,
    /// The end of the placeholder's pod, of a StatefulSet at no replicas.
    PodEnd,
    /// The scheduler: pods of the run are new, or have had less than `move-after` to find a node.
    Scheduler,
    /// The end of a pause before an attempt is repeated.
    Pause,
    /// Nodes for the affinity assistants of a run that opted out.
    Assistants,
    /// Older runs, which come first.
    OlderRuns(Before),
    /// A `ResourceQuota` that admits the placeholder's StatefulSet, or the affinity assistants that Tekton creates for the run.
    Places {
        /// The quota and its figures.
        quota: String,
    },
    /// The end of the run's tasks on a node that the run would give up.
    Tasks {
        /// Why the run would give up the node.
        cause: MoveCause,
        /// The pod that waits longest, if a pod waits.
        pod: Option<String>,
        /// The number of task pods.
        live: usize,
    },
    /// The node of the run's volume: the run would give up its node, but a PVC of the run can be used only there. If
    /// the run gave up the node, another run could take the node for good.
    Volume {
        /// Why the run would give up the node.
        cause: MoveCause,
        /// The pod that waits longest, if a pod waits.
        pod: Option<String>,
        /// The name of the PVC.
        claim: String,
    },
    /// A node on which a task fits, after the run gave up its node.
    Fit {
        /// The pod that waits longest.
        pod: String,
        /// The requests of the pod.
        requests: Resources,
        /// The scheduler's message.
        message: String,
        /// The node that comes nearest.
        largest: Option<NodeOffer>,
    },
}

/// Why a run is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IgnoreReason {
    /// A nested run follows its root.
    Child,
    /// `spec.managedBy` names another controller.
    ManagedElsewhere,
    /// The opt-in label is absent, `false` or invalid, and the run carries nothing of pod-affinity.
    NotOptedIn,
    /// Another controller holds the run, which is enrolled.
    HeldElsewhere,
    /// The run is done, and nothing is left to clean up.
    Done,
}

impl Decision {
    pub(super) fn await_placeholder() -> Self {
        Self::Wait(Wait::Node {
            unschedulable: None,
            autoscaler: None,
            largest: None,
        })
    }

    pub(super) fn act(
        name: &'static str,
        event: impl Into<Option<Event>>,
        actions: impl Into<Vec<Action>>,
    ) -> Self {
        Self::Act(Step {
            name,
            event: event.into(),
            actions: actions.into(),
        })
    }

    /// The name in logs and traces.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ignore(_) => "ignore",
            Self::Wait(wait) => wait.into(),
            Self::Read(read) => read.into(),
            Self::Act(step) => step.name,
        }
    }
}
