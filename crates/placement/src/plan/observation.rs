//! The observation of one run at one moment, from the caches and the controller's memory.
//!
//! Each object is reduced to these fields when it is decoded. Inputs that only the API server has are in `inputs.rs`.

use super::requeue_mark::RequeueMark;
use crate::attempts::Turn;
use crate::config::Config;
use crate::coschedule::Coschedule;
use crate::cross_namespace_quota::TermsRejected;
use crate::keys;
use crate::node::selector::NodeRequirements;
use crate::node::{NodeFacts, NodeState};
use crate::placeholder::spec::Spec;
use crate::resources::Resources;
use crate::run::Run;
use crate::strategy::{Isolation, Strategy};
use crate::warm::WarmNodes;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Toleration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The observation of one run.
#[derive(Clone, Debug)]
pub struct Observation {
    /// The time of the decision.
    pub now: Timestamp,
    /// The active configuration.
    pub config: Arc<Config>,
    /// The run.
    pub run: Run,
    /// The StatefulSet that has the name of the run's placeholder.
    pub statefulset: Option<Placeholder>,
    /// The pod that has the name of the placeholder's pod.
    pub pod: Option<PlaceholderPod>,
    /// The state of the node that this pod is bound to. [`super::Read::Tasks`] reads the node again.
    pub node: NodeState,
    /// The pending task pods of the group.
    pub waiting: Vec<WaitingPod>,
    /// A pod of the group is or was [`WaitingPod::relaxed`].
    pub relaxed: bool,
    /// What other components reported about the run's objects.
    pub messages: Messages,
    /// Facts about the cluster and the run's namespace.
    pub cluster: ClusterFacts,
    /// Since when the controller makes room in a quota for the run, whose hold is over.
    pub makes_room_since: Option<Timestamp>,
    /// The steps of this run that are repeated only after a pause.
    pub repeated: RepeatedSteps,
    /// How long the plan waits for the StatefulSet controller before it requeues the StatefulSet.
    pub requeue_in: Duration,
    /// Whether the run may try to get its placeholder's pod. Only a run without a placeholder, or a held run without a node, waits
    /// for its turn.
    pub turn: Turn,
}

/// What other components reported about a run's objects. The rules match the messages in `messages.rs`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Messages {
    /// The message of the latest event `FailedCreate` of the placeholder's StatefulSet.
    pub failed_create: Option<String>,
    /// The message of an autoscaler's latest event about the placeholder's pod.
    pub autoscaler: Option<String>,
    /// The message of the API server that rejected the placeholder because of the run's podTemplate.
    pub invalid_template: Option<String>,
    /// The version of the latest event that a quota rejected a task's pod in the namespace, unless its TaskRun is known to be another
    /// run's.
    pub rejection: Option<String>,
}

/// Facts that do not depend on the run: about the cluster and the namespace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterFacts {
    /// All nodes: if [`PlaceholderPod::lacks_node_for_reserve`], and after [`super::Read::Tasks`]. Empty if not read.
    pub nodes: Vec<Arc<NodeFacts>>,
    /// The names of the pods that keep nodes. Empty if the run is not done.
    pub kept_nodes: BTreeSet<String>,
    /// One of these pods keeps a node after this run.
    pub keeps_node: bool,
    /// Why the API server rejects pods of the namespace that have affinity terms across namespaces, if it does.
    pub terms_rejected: Option<TermsRejected>,
    /// Tekton's flag `coschedule`; the default if it is unknown.
    pub coschedule: Coschedule,
}

/// How often this leader took the steps that it repeats only after a pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepeatedSteps {
    /// Moves of the run off its node.
    pub moves: Repeated,
    /// The times that the placeholder made room in a quota of pods.
    pub yields: Repeated,
    /// Requeues of TaskRuns at Tekton, since the placeholder made room last.
    pub retries: Repeated,
}

/// How often, and when last, this leader took a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repeated {
    /// The number of times.
    pub count: u32,
    /// The last time.
    pub last: Option<Timestamp>,
}

/// A run's placeholder StatefulSet.
#[derive(Clone, Debug, PartialEq)]
pub struct Placeholder {
    /// UID of the StatefulSet, the precondition of a delete.
    pub uid: String,
    /// The StatefulSet belongs to the run, and not to another owner.
    pub owned: bool,
    /// The StatefulSet is being deleted.
    pub deleting: bool,
    /// `metadata.generation`, which each change of the spec increases.
    pub generation: i64,
    /// The StatefulSet controller has observed the latest change. With the default client limits, a controller that
    /// hundreds of runs keep busy takes a minute for this, and more writes would only delay it.
    pub observed: bool,
    /// The strategy label: the strategy that was resolved when the placeholder was created.
    pub strategy: Option<Strategy>,
    /// The isolation label: the isolation that was resolved when the placeholder was created.
    pub isolation: Option<Isolation>,
    /// The nodes of earlier runs, if the placeholder was created to prefer them.
    pub warm_nodes: Option<WarmNodes>,
    /// The part that the plan changes.
    pub spec: Spec,
}

/// The placeholder's pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaceholderPod {
    /// UID of the pod, the precondition of a write.
    pub uid: String,
    /// The node that the pod is bound to.
    pub node: Option<String>,
    /// The pod is being deleted, or its phase is Succeeded or Failed.
    pub ending: bool,
    /// Set while the scheduler finds no node for the pod.
    pub unschedulable: Option<Unschedulable>,
    /// The tolerations of the run's pod template, and those that admission added.
    pub tolerations: Vec<Toleration>,
    /// The run itself owns the pod (isolateAlways, after completion).
    pub adopted: bool,
    /// The size of the pod, and whether the pod can be resized.
    pub shape: Shape,
}

/// The size of a placeholder's pod and related marks. The default is a pod of the usual size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// The requests of the container `placeholder` in `spec`.
    pub requests: Resources,
    /// The pod has the annotation `reserve` and was created with a reserve. A pod with the annotation `within-limits`
    /// was not.
    pub reserves: bool,
    /// The pod has the annotation `pinned` with the name of the only node where it may be.
    pub pinned: bool,
    /// The pod has a PVC among its volumes.
    pub mounts: bool,
    /// Whether the pod can be resized in place, as far as that was tried.
    pub resize: Resize,
}

/// Condition `PodScheduled` is False: the scheduler finds no node, or the condition has the reason of another component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unschedulable {
    /// The scheduler's message.
    pub message: String,
    /// Since when the condition is False.
    pub since: Timestamp,
}

/// Whether a pod can be resized in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resize {
    /// No resize was tried.
    #[default]
    Possible,
    /// The API server accepted a resize of this pod.
    Accepted,
    /// The API server rejected the resize of this pod, or the kubelet reports the resize as infeasible.
    Refused,
}

/// A task pod of the group that is Pending and not bound.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WaitingPod {
    /// Name of the pod.
    pub name: String,
    /// Name of the pod's TaskRun.
    pub task_run: Option<String>,
    /// The requests of the pod.
    pub requests: Resources,
    /// Set while the scheduler finds no node; not set for a new pod, or for a pod that waits for a PVC to be bound.
    pub unschedulable: Option<Unschedulable>,
    /// The tolerations of the pod.
    pub tolerations: Vec<Toleration>,
    /// The labels and the node affinity that the pod requires of its node.
    pub requires: NodeRequirements,
    /// The node of the placeholder can never take the pod. Only a move or another node helps, and not the end of other pods.
    pub excludes_node: bool,
    /// The label `woken`: for which change the scheduler last requeued the pod.
    pub woken: Option<RequeueMark>,
    /// The pod was created with a required podAffinity to other pods, and the webhook made the podAffinity preferred.
    pub relaxed: bool,
}

impl Observation {
    /// The observation of a run without any other object.
    pub fn new(run: Run, config: Arc<Config>, now: Timestamp) -> Self {
        Self {
            now,
            config,
            run,
            statefulset: None,
            pod: None,
            node: NodeState::Unknown,
            waiting: Vec::new(),
            relaxed: false,
            messages: Messages::default(),
            cluster: ClusterFacts::default(),
            makes_room_since: None,
            repeated: RepeatedSteps::default(),
            requeue_in: Duration::ZERO,
            turn: Turn::Now,
        }
    }

    /// The node of the placeholder.
    pub fn node_name(&self) -> Option<&str> {
        self.pod.as_ref()?.node.as_deref()
    }
}

impl WaitingPod {
    /// Records whether the labels or the taints of the placeholder's node keep the pod away.
    #[must_use]
    pub fn beside(self, node: Option<&NodeFacts>) -> Self {
        Self {
            excludes_node: node.is_some_and(|node| !self.may_start_on(node)),
            ..self
        }
    }

    /// Whether neither the labels nor the taints of the node keep the pod away.
    pub(crate) fn may_start_on(&self, node: &NodeFacts) -> bool {
        self.requires.allow(node, &self.tolerations)
    }
}

impl Unschedulable {
    /// The reason of kube-scheduler. Other schedulers and the controllers of virtual nodes use other reasons.
    const REASON: &str = "Unschedulable";
    /// The reason of a pod that no scheduler sees yet.
    pub const GATED: &str = "SchedulingGated";

    /// Whether no scheduler sees the pod yet.
    pub fn is_gated(&self) -> bool {
        self.message.starts_with(Self::GATED)
    }

    /// Reads a condition that is False. Another reason than that of kube-scheduler is added to the message.
    pub fn from_condition(reason: Option<&str>, message: Option<&str>, since: Option<Timestamp>) -> Self {
        let message = message.unwrap_or_default();
        let message = match reason {
            None | Some(Self::REASON) => message.to_owned(),
            Some(reason) => format!("{reason}: {message}"),
        };
        Self {
            message,
            since: since.unwrap_or(Timestamp::UNIX_EPOCH),
        }
    }
}

impl PlaceholderPod {
    /// The scheduler finds no node for the pod, which has a reserve. The plan then compares all nodes with the pod.
    pub fn lacks_node_for_reserve(&self) -> bool {
        self.shape.reserves && self.unschedulable.is_some()
    }
}

impl Placeholder {
    /// The placeholder's pod reserves the node after the run is done.
    pub(crate) fn outlives_its_run(&self) -> bool {
        self.strategy == Some(Strategy::IsolateAlways)
    }
}

impl Shape {
    /// Reads the annotations of a pod.
    pub fn from_annotations(
        annotations: &BTreeMap<String, String>,
        requests: Resources,
        resize: Resize,
    ) -> Self {
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

    /// The same with one more, at this time.
    #[must_use]
    pub fn incremented(self, now: Timestamp) -> Self {
        Self {
            count: self.count.saturating_add(1),
            last: Some(now),
        }
    }

    /// The pause before the step is repeated: twice as long each time, up to five minutes.
    pub(super) fn pause(self, first: Duration) -> Duration {
        match self.count {
            0 => Duration::ZERO,
            count => first
                .saturating_mul(1 << (count - 1).min(8))
                .min(Self::LAST_PAUSE),
        }
    }
}
