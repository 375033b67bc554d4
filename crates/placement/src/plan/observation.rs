//! What is observed of one run at one moment, from the caches and the controller's memory.
//!
//! Each object is reduced to these fields while it is decoded. What only the API server knows is an input of its own
//! (`inputs.rs`).

use crate::config::Config;
use crate::keys;
use crate::node::{NodeFacts, NodeState};
use crate::placeholder::spec::Spec;
use crate::placeholder::wake::Wake;
use crate::resources::Resources;
use crate::run::Run;
use crate::strategy::{Isolation, Strategy};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Toleration;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What is observed of one run.
#[derive(Clone, Debug)]
pub struct Observation {
    /// The time of the decision.
    pub now: Timestamp,
    /// The active configuration.
    pub config: Arc<Config>,
    /// The run.
    pub run: Run,
    /// The StatefulSet that has the name of the run's placeholder.
    pub set: Option<Placeholder>,
    /// The pod that has the name of the placeholder's pod.
    pub pod: Option<PlaceholderPod>,
    /// The node that this pod is bound to. [`super::Read::Tasks`] reads it again.
    pub node: NodeState,
    /// All nodes: while the placeholder is unschedulable with a reserve, and after [`super::Read::Tasks`]. Empty if not read.
    pub nodes: Vec<NodeFacts>,
    /// The group's task pods that are not bound yet.
    pub waiting: Vec<WaitingPod>,
    /// A pod of the group is or was [`WaitingPod::relaxed`].
    pub relaxed: bool,
    /// When, and how often, the run moved off its node.
    pub moves: Repeated,
    /// When, and how often, the placeholder made room in a quota of pods.
    pub yields: Repeated,
    /// When, and how often since the placeholder made room, Tekton was made to retry.
    pub retries: Repeated,
    /// The latest event that a quota rejected a task's pod in the namespace, unless its TaskRun is known to be another run's.
    pub refusal: Option<String>,
    /// How long the StatefulSet controller has before the StatefulSet is requeued.
    pub nudge_in: Duration,
}

/// A run's placeholder StatefulSet.
#[derive(Clone, Debug, PartialEq)]
pub struct Placeholder {
    /// UID, the precondition of a delete.
    pub uid: String,
    /// The run that it is named after owns it.
    pub owned: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// `metadata.generation`, which each change of the spec increases.
    pub generation: i64,
    /// The StatefulSet controller has observed it. With the default client limits, a controller that hundreds of runs keep busy
    /// takes a minute for this, and more work would only delay it.
    pub observed: bool,
    /// The strategy label: the strategy that was resolved when the placeholder was created.
    pub strategy: Option<Strategy>,
    /// The isolation label, likewise.
    pub isolation: Option<Isolation>,
    /// The part that the plan changes.
    pub spec: Spec,
}

/// The placeholder's pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaceholderPod {
    /// UID, the precondition of a write.
    pub uid: String,
    /// The node it is bound to.
    pub node: Option<String>,
    /// It is being deleted, or its phase is Succeeded or Failed.
    pub ending: bool,
    /// Set while the scheduler finds no node.
    pub unschedulable: Option<Unschedulable>,
    /// The taints that it tolerates: the run's template says some, admission may have added others.
    pub tolerations: Vec<Toleration>,
    /// The run itself owns the pod (isolateAlways, after completion).
    pub adopted: bool,
    /// How it was made, and what became of that.
    pub shape: Shape,
}

/// How a placeholder pod was made, and what became of its size; the default is a pod of the usual size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// `spec`: what our own container, `placeholder`, asks for.
    pub requests: Resources,
    /// It has the annotation `reserve`: it was made bigger than usual; unless it has `within-limits`.
    pub reserves: bool,
    /// It has the annotation `pinned`, not empty: it can be on that node only.
    pub pinned: bool,
    /// It has a PVC among its volumes.
    pub mounts: bool,
    /// Whether its size can be changed in place, as far as was tried.
    pub resize: Resize,
}

/// Condition `PodScheduled` is False, with reason Unschedulable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unschedulable {
    /// The scheduler's own words.
    pub message: String,
    /// When the condition became so.
    pub since: Timestamp,
}

/// Whether a pod can be resized in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Resize {
    /// Nothing speaks against it.
    #[default]
    Possible,
    /// The server refused it for this very pod, or its kubelet calls it infeasible.
    Refused,
}

/// A task pod of the group that is Pending and not bound.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitingPod {
    /// Name.
    pub name: String,
    /// What it asks for.
    pub requests: Resources,
    /// Set while the scheduler finds no node. A pod that is new, or waits for a PVC to be bound, is not that.
    pub unschedulable: Option<Unschedulable>,
    /// The taints that it tolerates.
    pub tolerations: Vec<Toleration>,
    /// Its label `woken`: what the scheduler was last told to look at it again for.
    pub woken: Option<Wake>,
    /// It came with a required podAffinity of others, which the webhook made preferred.
    pub relaxed: bool,
}

/// A pod that Tekton keeps on the node of a run that mounts a PVC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssistantPod {
    /// Name.
    pub name: String,
    /// UID, the precondition of a delete.
    pub uid: String,
    /// The node it is bound to.
    pub node: Option<String>,
}

/// How often, and when last, a step was taken that is not repeated at once, as far as this leader saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repeated {
    /// How often.
    pub count: u32,
    /// When last.
    pub last: Option<Timestamp>,
}

impl Observation {
    /// A run without any other object.
    pub fn of(run: Run, config: Arc<Config>, now: Timestamp) -> Self {
        Self {
            now,
            config,
            run,
            set: None,
            pod: None,
            node: NodeState::Unknown,
            nodes: Vec::new(),
            waiting: Vec::new(),
            relaxed: false,
            moves: Repeated::default(),
            yields: Repeated::default(),
            retries: Repeated::default(),
            refusal: None,
            nudge_in: Duration::ZERO,
        }
    }

    /// The node of the placeholder.
    pub fn node_name(&self) -> Option<&str> {
        self.pod.as_ref()?.node.as_deref()
    }
}

impl Placeholder {
    /// Its pod stays when the run is done.
    pub(crate) fn outlives_its_run(&self) -> bool {
        self.strategy == Some(Strategy::IsolateAlways)
    }
}

impl Shape {
    /// Reads the marks that a pod bears.
    pub fn read(annotations: &BTreeMap<String, String>, requests: Resources, resize: Resize) -> Self {
        Self {
            requests,
            reserves: annotations.contains_key(keys::RESERVE)
                && !annotations.contains_key(keys::WITHIN_LIMITS),
            pinned: annotations.get(keys::PINNED).is_some_and(|node| !node.is_empty()),
            mounts: false,
            resize,
        }
    }
}

impl Repeated {
    /// The usual first pause.
    pub(super) const PAUSE: Duration = Duration::from_secs(10);
    const LAST_PAUSE: Duration = Duration::from_mins(5);

    /// With one more.
    #[must_use]
    pub fn and_one(self, now: Timestamp) -> Self {
        Self {
            count: self.count.saturating_add(1),
            last: Some(now),
        }
    }

    /// How long to keep from the next one after the last: twice as long each time, up to five minutes.
    pub(super) fn pause(self, first: Duration) -> Duration {
        match self.count {
            0 => Duration::ZERO,
            count => first
                .saturating_mul(1 << (count - 1).min(8))
                .min(Self::LAST_PAUSE),
        }
    }
}
