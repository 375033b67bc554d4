//! What a plan can decide: to ignore the run, to wait, to read more, or to act.

use super::action::{Action, Event};
use super::cause::MoveCause;
use super::inputs::Read;
use crate::node::NodeOffer;
use crate::resources::Resources;
use strum::IntoStaticStr;

/// What to do with a run now.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// The run is not, or no longer, the controller's to change.
    Ignore(Why),
    /// Another object has to change first.
    Wait(Wait),
    /// A group of inputs is missing: read it and plan again.
    Read(Read),
    /// Change something.
    Act(Step),
}

/// A change of a run: requests in a fixed order, and what they mean to the user. Each step leads to a change of an object that
/// triggers the next decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Its name in logs, traces and the table of the plan.
    pub name: &'static str,
    /// What events, metrics and the controller's memory record once all actions are done.
    pub event: Option<Event>,
    /// What to do, in this order: a pod template before the pod, an adoption before the deletion of the previous owner.
    pub actions: Vec<Action>,
}

/// What a run waits for.
#[derive(Clone, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Wait {
    /// Nothing: the run and its placeholder are as they should be.
    Settled,
    /// The run started before it was held or enrolled: nothing is done, and one event says so.
    LabelledTooLate,
    /// A node; the scheduler's message says why there is none yet.
    Node {
        /// The scheduler's message.
        unschedulable: Option<String>,
        /// The message of an autoscaler about the placeholder's pod.
        autoscaler: Option<String>,
        /// For a placeholder with a reserve: the node that comes nearest.
        largest: Option<NodeOffer>,
    },
    /// The end of a StatefulSet that has the placeholder's name and is being deleted or belongs to another owner.
    OldStatefulSet,
    /// The end of the placeholder's pod, of a StatefulSet at no replicas.
    PodEnd,
    /// The scheduler: pods of the run are new, or are given the time `move-after` to fit.
    Scheduler,
    /// The end of a pause before an attempt is repeated.
    Pause,
    /// Nodes for the affinity assistants of a run that opted out.
    Assistants,
    /// Room for the placeholder's StatefulSet in a quota, beside the StatefulSets of Tekton.
    Places {
        /// The quota and its figures.
        quota: String,
    },
    /// The end of tasks that live on a node that the run would give up.
    Tasks {
        /// Why it would be given up.
        cause: MoveCause,
        /// The pod that waits longest, if a pod waits.
        pod: Option<String>,
        /// How many live.
        live: usize,
    },
    /// The node: it would be given up, but a PVC of the run can be used nowhere else. Another run that took the node meanwhile would
    /// keep this run from ever coming back.
    Volume {
        /// Why it would be given up.
        cause: MoveCause,
        /// The pod that waits longest, if a pod waits.
        pod: Option<String>,
        /// Name of the PVC.
        claim: String,
    },
    /// A node that fits, after the run gave up its node.
    Fit {
        /// The pod that waits longest.
        pod: String,
        /// What it requests.
        asks: Resources,
        /// The scheduler's message.
        message: String,
        /// The node that comes nearest.
        largest: Option<NodeOffer>,
    },
}

/// Why a run is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
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

    /// Its name in logs and traces.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ignore(_) => "ignore",
            Self::Wait(wait) => wait.into(),
            Self::Read(read) => read.into(),
            Self::Act(step) => step.name,
        }
    }
}
