//! What is special about a pair, besides where it is and what it mounts; and what follows from that for its runs.

use super::place::Place;
use std::time::Duration;
use strum::EnumCount;

/// What is special about a pair.
#[derive(Clone, Copy, Debug, EnumCount, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Twist {
    None,
    QuotaOfPods(usize),
    QuotaOfCpu,
    /// Two runs, and one StatefulSet; or as many as Tekton makes for them.
    QuotaOfSets,
    /// Three runs, and a quota of three pods.
    Crowd,
    Limits,
    /// No container may ask for as little as a placeholder does.
    LimitsAbove,
    OwnAntiAffinity,
    OwnPreferredAffinity,
    OwnNodeAffinity,
    NoSuchAccount,
    LabelledByPipeline,
    LabelledByNamespace,
    LabelledTask,
    /// By a ServiceAccount that may do nothing else, with a name that the API server makes up.
    MadeByATrigger,
    LargeTasks,
    /// A RuntimeClass leads one of the tasks to other nodes.
    TaskElsewhere,
    /// Unlabelled pods of another run are on all of its nodes for some seconds.
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

impl Twist {
    pub(super) const ALL: [Self; 30] = [
        Self::None,
        Self::QuotaOfPods(1),
        Self::QuotaOfPods(2),
        Self::QuotaOfPods(4),
        Self::QuotaOfCpu,
        Self::QuotaOfSets,
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

    /// It concerns a whole namespace.
    pub(super) fn has_namespace(self) -> bool {
        let limits = matches!(self, Self::Limits | Self::LimitsAbove | Self::QuotaOfSets);
        limits || self.has_quota_of_pods() || self == Self::LabelledByNamespace
    }

    /// A quota may have no room for a task's pod beside the placeholder.
    pub(super) fn has_quota_of_pods(self) -> bool {
        matches!(self, Self::QuotaOfPods(_) | Self::QuotaOfCpu | Self::Crowd)
    }

    /// Its namespace may let no placeholder in, so that the hold lasts until the deadline.
    pub(super) fn may_lack_placeholder(self) -> bool {
        matches!(self, Self::Crowd | Self::QuotaOfSets)
    }

    /// The API server lets the first pod of its placeholder not in, and the controller finds out why.
    pub(super) fn has_pod_refused(self) -> bool {
        matches!(self, Self::NoSuchAccount | Self::LimitsAbove)
    }

    /// Its tasks cannot be on one node at the same time.
    pub(super) fn is_apart(self) -> bool {
        matches!(self, Self::LargeTasks | Self::TaskElsewhere)
    }

    /// The first node of the run is taken away from it.
    pub(super) fn loses_its_node(self) -> bool {
        let cordoned = matches!(self, Self::Cordoned | Self::CordonedForASecond);
        cordoned || self.has_gap() || matches!(self, Self::NodeDies | Self::NodeReturns | Self::Preempted)
    }

    /// Its tasks cannot all be on the first node.
    pub(super) fn moves(self) -> bool {
        self == Self::TaskElsewhere || self.loses_its_node()
    }

    /// How often it may give up a node: a task that belongs elsewhere is followed by one that does not.
    pub(super) fn most_moves(self) -> i64 {
        match self {
            Self::TaskElsewhere => 2,
            _ => i64::from(self.is_apart() || self.loses_its_node()),
        }
    }

    /// Between the first task and the second, nothing of the run is on a node for a while.
    pub(super) fn has_gap(self) -> bool {
        matches!(self, Self::CordonedBetween | Self::NodeDiesBetween)
    }

    /// The pair has nodes of its own, so that what happens there happens to nobody else.
    pub(super) fn has_nodes(self) -> bool {
        self == Self::NodeTaken || self.loses_its_node()
    }

    /// Claims are in the default namespace. A node that dies keeps its volume for minutes, with or without the label.
    pub(super) fn goes_with_volumes(self) -> bool {
        let dies = matches!(self, Self::NodeDies | Self::NodeReturns) || self.has_gap();
        !(dies || self.has_namespace() || self == Self::NoSuchAccount)
    }

    /// The place that is drawn, or another that goes with this.
    pub(super) fn place(self, drawn: Place) -> Place {
        match (self, drawn) {
            // The nodes that the RuntimeClass leads to are in this zone as well.
            (Self::TaskElsewhere, _) => Place::Zone,
            // No other place has so many nodes.
            (Self::Crowd, _) => Place::Anywhere,
            // Tasks there request more than the quota allows, and nodes of its own are not busy.
            (_, Place::Busy) if self == Self::QuotaOfCpu || self.has_nodes() => Place::Anywhere,
            (_, drawn) => drawn,
        }
    }

    /// Without the label, a quota has room for the tasks that run at the same time.
    pub(super) fn widest(self) -> usize {
        match self {
            Self::QuotaOfPods(1) | Self::Crowd => 0,
            Self::QuotaOfPods(2) | Self::QuotaOfCpu => 1,
            _ if self.has_gap() => 0,
            _ => usize::MAX,
        }
    }

    pub(super) fn shortest(self) -> usize {
        usize::from(self == Self::TaskElsewhere || self.has_gap())
    }

    /// How long a task lasts. It is still there when something happens to its node.
    pub(super) fn lasting(self, drawn: Duration) -> Duration {
        match self {
            Self::NodeDies | Self::NodeReturns | Self::Preempted => Duration::from_secs(3),
            _ => drawn,
        }
    }

    /// How many runs there are of it at the same time.
    pub(super) fn crowd(self) -> usize {
        match self {
            Self::Crowd => 3,
            Self::QuotaOfSets => 2,
            _ => 1,
        }
    }

    /// What each task requests.
    pub(super) fn cpu(self, place: Place) -> Option<&'static str> {
        match (self, place) {
            (Self::LargeTasks | Self::Preempted, _) => Some("5"),
            (_, Place::Busy) => Some("2"),
            _ => None,
        }
    }
}
