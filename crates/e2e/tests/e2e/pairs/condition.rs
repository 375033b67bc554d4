//! The special condition of a pair, in addition to its place and its storage, and the consequences for its runs.

use super::place::Place;
use std::time::Duration;
use strum::EnumCount;

/// The special condition of a pair.
#[derive(Clone, Copy, Debug, EnumCount, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Condition {
    None,
    QuotaOfPods(usize),
    QuotaOfCpu,
    /// Two runs, and a quota of one StatefulSet, or of as many as Tekton creates for them.
    QuotaOfSets,
    /// A quota that rejects pods with affinity terms across namespaces.
    QuotaOfTerms,
    /// Three runs, and a quota of three pods.
    Crowd,
    Limits,
    /// A `LimitRange` whose minimum is higher than the requests of a placeholder.
    LimitsAbove,
    OwnAntiAffinity,
    OwnPreferredAffinity,
    OwnNodeAffinity,
    NoSuchAccount,
    LabelledByPipeline,
    LabelledByNamespace,
    LabelledTask,
    /// A ServiceAccount without further rights creates the run, with a name that the API server generates.
    MadeByATrigger,
    LargeTasks,
    /// The tasks require nodes of two zones in turn.
    AlternatingZones,
    /// The API server rejects the pods of the run.
    InvalidTemplate,
    /// Another controller creates a run for a custom task.
    CustomTask,
    /// The timeout of a task is shorter than the task.
    TimesOut,
    /// A RuntimeClass places one of the tasks on other nodes.
    TaskElsewhere,
    /// Unlabelled pods of another run are on all of the pair's nodes for some seconds.
    NodeTaken,
    Preempted,
    Cordoned,
    CordonedForASecond,
    CordonedBetween,
    NodeDies,
    NodeDiesBetween,
    NodeReturns,
    PlaceholderDeleted,
    FailsOnce,
    Fails,
}

impl Condition {
    pub(super) const ALL: [Self; 35] = [
        Self::None,
        Self::QuotaOfPods(1),
        Self::QuotaOfPods(2),
        Self::QuotaOfPods(4),
        Self::QuotaOfCpu,
        Self::QuotaOfSets,
        Self::QuotaOfTerms,
        Self::Crowd,
        Self::Limits,
        Self::LimitsAbove,
        Self::OwnAntiAffinity,
        Self::OwnPreferredAffinity,
        Self::OwnNodeAffinity,
        Self::NoSuchAccount,
        Self::LabelledByPipeline,
        Self::LabelledByNamespace,
        Self::LabelledTask,
        Self::MadeByATrigger,
        Self::LargeTasks,
        Self::AlternatingZones,
        Self::InvalidTemplate,
        Self::CustomTask,
        Self::TimesOut,
        Self::TaskElsewhere,
        Self::NodeTaken,
        Self::Preempted,
        Self::Cordoned,
        Self::CordonedForASecond,
        Self::CordonedBetween,
        Self::NodeDies,
        Self::NodeDiesBetween,
        Self::NodeReturns,
        Self::PlaceholderDeleted,
        Self::FailsOnce,
        Self::Fails,
    ];

    /// The condition concerns a whole namespace.
    pub(super) fn has_namespace(self) -> bool {
        let limits = matches!(self, Self::Limits | Self::LimitsAbove | Self::QuotaOfSets);
        let has_quota = self.has_quota_of_pods() || self == Self::QuotaOfTerms;
        limits || has_quota || self == Self::LabelledByNamespace
    }

    /// A quota may have no room for a task's pod in addition to the placeholder.
    pub(super) fn has_quota_of_pods(self) -> bool {
        matches!(self, Self::QuotaOfPods(_) | Self::QuotaOfCpu | Self::Crowd)
    }

    /// The namespace may reject placeholders, so that the hold lasts until the deadline.
    pub(super) fn may_lack_placeholder(self) -> bool {
        matches!(self, Self::Crowd | Self::QuotaOfSets)
    }

    /// The API server rejects the first pod of the placeholder, and the controller finds the reason.
    pub(super) fn has_pod_refused(self) -> bool {
        matches!(self, Self::NoSuchAccount | Self::LimitsAbove)
    }

    /// The tasks cannot be on one node at the same time.
    pub(super) fn is_apart(self) -> bool {
        matches!(
            self,
            Self::LargeTasks | Self::TaskElsewhere | Self::AlternatingZones
        )
    }

    /// The run loses its first node.
    pub(super) fn loses_its_node(self) -> bool {
        let cordoned = matches!(self, Self::Cordoned | Self::CordonedForASecond);
        cordoned || self.has_gap() || matches!(self, Self::NodeDies | Self::NodeReturns | Self::Preempted)
    }

    /// The tasks cannot all be on the first node.
    pub(super) fn moves(self) -> bool {
        matches!(self, Self::TaskElsewhere | Self::AlternatingZones) || self.loses_its_node()
    }

    /// Most moves of the run: a task that needs other nodes may be followed by a task that cannot be there.
    pub(super) fn most_moves(self) -> i64 {
        match self {
            Self::TaskElsewhere => 2,
            _ => i64::from(self.is_apart() || self.loses_its_node()),
        }
    }

    /// For a while between the first task and the second, no pod of the run is on a node.
    pub(super) fn has_gap(self) -> bool {
        matches!(self, Self::CordonedBetween | Self::NodeDiesBetween)
    }

    /// Tekton creates a CustomRun for the task between the first and the second one, and the test ends the CustomRun.
    pub(super) fn has_custom_task(self) -> bool {
        self == Self::CustomTask || self.has_gap()
    }

    /// The pair has nodes of its own, so that no other pair is disrupted.
    pub(super) fn has_nodes(self) -> bool {
        self == Self::NodeTaken || self.loses_its_node()
    }

    /// Existing PVCs are in the default namespace. A node that dies keeps its volume for minutes, with and without the
    /// label.
    pub(super) fn goes_with_volumes(self) -> bool {
        let dies = matches!(self, Self::NodeDies | Self::NodeReturns) || self.has_gap();
        let other = matches!(
            self,
            Self::NoSuchAccount | Self::InvalidTemplate | Self::AlternatingZones
        );
        !(dies || self.has_namespace() || other)
    }

    /// The drawn place, or another place that can be combined with this condition.
    pub(super) fn place(self, drawn: Place) -> Place {
        match (self, drawn) {
            // The nodes of the RuntimeClass are in this zone as well.
            (Self::TaskElsewhere, _) => Place::Zone,
            // No other place has so many nodes as a crowd needs; the others have templates of their own.
            (Self::Crowd | Self::AlternatingZones | Self::CustomTask, _) => Place::Anywhere,
            // Tasks of this place request more than the quota allows, and a pair's own nodes are not busy.
            (_, Place::Busy) if self == Self::QuotaOfCpu || self.has_nodes() => Place::Anywhere,
            (_, drawn) => drawn,
        }
    }

    /// Most parallel tasks: without the label, the quota has room for them.
    pub(super) fn widest(self) -> usize {
        match self {
            Self::QuotaOfPods(1) | Self::Crowd | Self::AlternatingZones => 0,
            Self::QuotaOfPods(2) | Self::QuotaOfCpu => 1,
            _ if self.has_gap() => 0,
            _ => usize::MAX,
        }
    }

    pub(super) fn shortest(self) -> usize {
        match self {
            Self::AlternatingZones => 2,
            _ => usize::from(self == Self::TaskElsewhere || self.has_custom_task()),
        }
    }

    /// The duration of a task. The task must be running when its node is disrupted or its timeout ends.
    pub(super) fn lasting(self, drawn: Duration) -> Duration {
        match self {
            Self::NodeDies | Self::NodeReturns | Self::Preempted | Self::TimesOut => Duration::from_secs(3),
            _ => drawn,
        }
    }

    /// Number of runs at the same time.
    pub(super) fn crowd(self) -> usize {
        match self {
            Self::Crowd => 3,
            Self::QuotaOfSets => 2,
            _ => 1,
        }
    }

    /// The CPU request of each task.
    pub(super) fn cpu(self, place: Place) -> Option<&'static str> {
        match (self, place) {
            (Self::LargeTasks | Self::Preempted, _) => Some("5"),
            (_, Place::Busy) => Some("2"),
            _ => None,
        }
    }
}
