//! The inputs of a decision that the caches do not hold, because a cache may be behind the API server and keeps few
//! fields of each object.
//!
//! The plan names the missing group of inputs ([`Read`]). The controller reads the group and plans again.

use super::observation::Repeated;
use crate::automatic_reserve::{ExpectedRequests, PodUsage};
use crate::image_pull::Images;
use crate::quota_room::RejectedTask;
use crate::statefulset_quota::Quota;
use crate::warm::WarmNodes;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::NodeSelector;
use std::collections::BTreeMap;
use strum::IntoStaticStr;

/// A group of inputs that a decision needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Read {
    /// [`Creation`].
    Creation,
    /// [`Quota`].
    Quota,
    /// [`Tasks`], and the nodes as they are now.
    Tasks,
    /// The affinity assistants of a run that gave up a node.
    Assistants,
    /// The run's TaskRuns whose pods a `ResourceQuota` rejected that has room for them without the placeholder.
    RejectedTasks,
    /// What the run's tasks requested, and when they ran.
    Usage,
}

/// The inputs for a new placeholder, with the room in the quotas for its StatefulSet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Creation {
    /// What the run's PVCs mean to the placeholder.
    pub volumes: VolumeConstraints,
    /// The labels of the run that the placeholder copies.
    pub labels: BTreeMap<String, String>,
    /// The expected requests of the run; only for an automatic reserve.
    pub need: Option<ExpectedRequests>,
    /// The nodes of earlier runs; only for a run that prefers warm nodes.
    pub warm_nodes: Option<WarmNodes>,
    /// The images that the node pulls ahead.
    pub images: Images,
    /// The quotas of the namespace.
    pub quota: Quota,
}

/// What the run's PVCs mean to the placeholder.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VolumeConstraints {
    /// The PVCs that the placeholder mounts.
    pub mountable: Vec<String>,
    /// The required node affinity of the run and of the volumes that the placeholder must not mount; `None` if these volumes require
    /// nothing.
    pub required: Option<NodeSelector>,
}

/// The run's task pods, counted at the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tasks {
    /// The number of task pods, and since when it is zero.
    pub task_count: TaskCount,
    /// The PVC, if any, that can be used only on the placeholder's node. Read only if the run has no task pod.
    pub pinned_by_volume: Option<String>,
}

/// The number of active task pods of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskCount {
    /// The number of task pods that are bound to the placeholder's node, or to any node if the placeholder has none,
    /// and are neither Succeeded nor Failed. A pod that is being deleted counts, as it does for the scheduler.
    pub live: usize,
    /// Since when the number is zero, if that is known.
    pub quiet_since: Option<Timestamp>,
}

/// An affinity assistant: a pod of Tekton that keeps the tasks that share a PVC on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssistantPod {
    /// Name of the pod.
    pub name: String,
    /// UID of the pod, the precondition of a delete.
    pub uid: String,
    /// The node that the pod is bound to.
    pub node: Option<String>,
}

/// The groups that were read for this decision. A rule that lacks a group returns the [`Read`] of the group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inputs {
    /// See [`Read::Creation`].
    pub creation: Option<Creation>,
    /// See [`Read::Quota`].
    pub quota: Option<Quota>,
    /// See [`Read::Tasks`].
    pub tasks: Option<Tasks>,
    /// See [`Read::Assistants`].
    pub assistants: Option<Vec<AssistantPod>>,
    /// See [`Read::RejectedTasks`].
    pub rejected_tasks: Option<Vec<RejectedTask>>,
    /// See [`Read::Usage`]; empty if the usage is unknown.
    pub usage: Option<Vec<PodUsage>>,
}

impl Inputs {
    /// Whether the group was read.
    pub fn has(&self, group: Read) -> bool {
        match group {
            Read::Creation => self.creation.is_some(),
            Read::Quota => self.quota.is_some(),
            Read::Tasks => self.tasks.is_some(),
            Read::Assistants => self.assistants.is_some(),
            Read::RejectedTasks => self.rejected_tasks.is_some(),
            Read::Usage => self.usage.is_some(),
        }
    }
}

impl TaskCount {
    /// A new count, after the previous count if there was one. `ended` is the end of the last pod of the group, if an
    /// ended pod still exists; an end in the future, by the clock of a node, is not known.
    pub fn after(before: Option<Self>, live: usize, ended: Option<Timestamp>, now: Timestamp) -> Self {
        let ended = ended.filter(|ended| *ended <= now);
        let quiet_since = match before {
            _ if live > 0 => None,
            Some(before) if before.live > 0 => Some(now),
            Some(before) => before.quiet_since.max(ended),
            None => ended,
        };
        Self { live, quiet_since }
    }
}

/// Shows whether a task of the run ran between two moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    task_count: Option<TaskCount>,
    /// When the last task before the last move ended.
    quiet_at_move: Option<Timestamp>,
}

impl Progress {
    /// Records a count of tasks. If a task ran since the last move, the move was of use, and the pause before the next move starts
    /// again at its shortest. `ended` is as for [`TaskCount::after`].
    pub fn counted(
        &mut self,
        moves: &mut Repeated,
        live: usize,
        ended: Option<Timestamp>,
        now: Timestamp,
    ) -> TaskCount {
        let task_count = TaskCount::after(self.task_count, live, ended, now);
        self.task_count = Some(task_count);
        if task_count.quiet_since > self.quiet_at_move {
            moves.count = 0;
        }
        task_count
    }

    /// Records a move.
    pub fn moved_off(&mut self, moves: &mut Repeated, now: Timestamp) {
        *moves = moves.incremented(now);
        self.quiet_at_move = self.task_count.and_then(|count| count.quiet_since);
    }
}
