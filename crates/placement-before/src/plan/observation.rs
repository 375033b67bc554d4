//! What is observed of one run at one moment: all that a decision about it takes.
//!
//! Each object is reduced to this while it is decoded; there is no second view of it. What only the API server can
//! tell for sure is `None` until the plan asks for it.

use crate::config::Config;
use crate::keys;
use crate::need::{Need, Stint};
use crate::node::{NodeFacts, NodeState};
use crate::placeholder::wake::Wake;
use crate::resources::Resources;
use crate::run::Run;
use crate::sets::InTheWay;
use crate::strategy::{Isolation, Strategy};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{NodeSelector, Toleration};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// All that a decision about one run takes.
#[derive(Clone, Debug)]
pub struct Observation {
    /// The time of the decision.
    pub now: Timestamp,
    /// Configuration that applies.
    pub config: Arc<Config>,
    /// The run.
    pub run: Run,
    /// The StatefulSet under the name of its placeholder.
    pub set: Option<Placeholder>,
    /// The pod under the name of its placeholder's pod.
    pub pod: Option<PlaceholderPod>,
    /// The node that this pod is bound to. After a count it was read as late as that.
    pub node: NodeState,
    /// All nodes: after a count, and while the placeholder is unschedulable. None means that nobody looked.
    pub nodes: Vec<NodeFacts>,
    /// The group's task pods that are not bound yet.
    pub waiting: Vec<WaitingPod>,
    /// A pod of the group, bound meanwhile or not, is [`WaitingPod::relaxed`].
    pub relaxed: bool,
    /// When, and how often, the run moved off its node.
    pub moves: Repeated,
    /// When, and how often, the placeholder made room in a quota.
    pub yields: Repeated,
    /// When, and how often since the placeholder made room, Tekton was told to try again.
    pub retries: Repeated,
    /// The last refusal of a task's pod by a quota of the namespace, of which is not known yet whether it was one of this run.
    pub refusal: Option<String>,
    /// How long the StatefulSet's controller is given before it is nudged, for the first time or again.
    pub nudge_in: Duration,
    /// The answer to [`super::Question::Tasks`].
    pub census: Option<Census>,
    /// The PVC, if there is one, that no other node than the placeholder's can have. Asked for with the tasks, where none lives.
    pub tied: Option<String>,
    /// The answer to [`super::Question::Refused`]: the run's TaskRuns whose pods a quota does not let in.
    pub refused: Option<Vec<String>>,
    /// The answer to [`super::Question::Claims`].
    pub claims: Option<Claims>,
    /// The answer to [`super::Question::Labels`]: those of the run's labels that the placeholder copies.
    pub copied_labels: Option<BTreeMap<String, String>>,
    /// The answer to [`super::Question::Need`].
    pub need: Option<Need>,
    /// Other runs of the namespace for which Tekton makes StatefulSets, if that is asked: [`super::Question::Places`].
    pub others: Vec<Run>,
    /// The answer to it: the quota that has no room, in words.
    pub short_of: Option<Message>,
    /// And what is in the way of those that Tekton makes for this run.
    pub in_the_way: Option<InTheWay>,
    /// The answer to [`super::Question::Stints`]: the run's tasks as they ran, none if that cannot be known.
    pub stints: Option<Vec<Stint>>,
    /// The answer to [`super::Question::Assistants`].
    pub assistants: Option<Vec<AssistantPod>>,
    /// The answer to [`super::Question::Complaint`].
    pub complaint: Option<Message>,
    /// The answer to [`super::Question::Autoscaler`], or the last one while it is too early to ask again.
    pub autoscaler: Option<Message>,
}

/// The latest message of another controller about an object, if it sent one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message(pub Option<String>);

impl Message {
    /// Its words.
    pub fn text(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

/// What the placeholder has to do with the run's PVCs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claims {
    /// Those that it may mount.
    pub mountable: Vec<String>,
    /// What the volumes of the others require of a node, as far as they are bound.
    pub required: Vec<NodeSelector>,
}

/// A run's placeholder StatefulSet.
#[expect(clippy::struct_excessive_bools, reason = "facts that vary one by one")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placeholder {
    /// UID, the precondition of a delete.
    pub uid: String,
    /// The run that it is named after owns it.
    pub owned: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// `spec.replicas`.
    pub replicas: i32,
    /// `metadata.generation`, another one after each change of its spec.
    pub generation: i64,
    /// Its controller has tried to make the pod at least once. A controller that is busy, as one with the usual
    /// client limits is for a minute when hundreds of runs come at once, has not, and is not helped by more work.
    pub taken_up: bool,
    /// Strategy label, as it was resolved when the placeholder was made.
    pub strategy: Option<Strategy>,
    /// Isolation label, likewise.
    pub isolation: Option<Isolation>,
    /// The annotation `pinned` of its template is there and not empty.
    pub pinned: bool,
    /// The annotation `within-limits` of its template is there.
    pub within_limits: bool,
    /// The annotation `left` of its template: the node that the run gave up last.
    pub left: Option<String>,
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

/// A group's live task pods, counted at the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Census {
    /// Pods of the group but the placeholder that are bound to its node, or if it has none to any, and neither
    /// Succeeded nor Failed. One that is being deleted counts, as it does for the scheduler.
    pub live: usize,
    /// Since when there is none, if it is known.
    pub quiet_since: Option<Timestamp>,
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
    /// Of a run with nothing around it, of which nothing was asked.
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
            census: None,
            tied: None,
            refused: None,
            claims: None,
            copied_labels: None,
            need: None,
            others: Vec::new(),
            short_of: None,
            in_the_way: None,
            stints: None,
            assistants: None,
            complaint: None,
            autoscaler: None,
        }
    }

    /// Tekton makes StatefulSets for this run, or for another of its namespace.
    pub fn is_beside_assistants(&self) -> bool {
        self.run.assistants() > 0 || !self.others.is_empty()
    }

    /// The node of the placeholder.
    pub fn node_name(&self) -> Option<&str> {
        self.pod.as_ref()?.node.as_deref()
    }
}

impl Placeholder {
    /// Its pod stays when the run is done.
    pub fn outlives_its_run(&self) -> bool {
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
            pinned: is_pinned(annotations),
            mounts: false,
            resize,
        }
    }
}

/// Whether these annotations, of a placeholder's pod or of its StatefulSet's template, pin it to a node.
pub fn is_pinned(annotations: &BTreeMap<String, String>) -> bool {
    annotations.get(keys::PINNED).is_some_and(|node| !node.is_empty())
}

impl Census {
    /// The outcome of a count, after the one before it if there was one. `ended` is when the last pod of the group
    /// ended, if one that did is still there to tell.
    pub fn after(before: Option<Self>, live: usize, ended: Option<Timestamp>, now: Timestamp) -> Self {
        let quiet_since = match before {
            _ if live > 0 => None,
            Some(before) if before.live > 0 => Some(now),
            Some(before) => before.quiet_since.max(ended),
            None => ended,
        };
        Self { live, quiet_since }
    }
}

impl Repeated {
    /// The usual first pause.
    pub const PAUSE: Duration = Duration::from_secs(10);
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
    pub fn pause(self, first: Duration) -> Duration {
        match self.count {
            0 => Duration::ZERO,
            count => first
                .saturating_mul(1 << (count - 1).min(8))
                .min(Self::LAST_PAUSE),
        }
    }
}
