//! Nodes: whether the next pod of a run can start on a node, and which node comes nearest to the requests of a pod.
//!
//! The rules are the scheduler's: a node is unusable if the scheduler would not place a pod with the run's tolerations
//! there.

pub mod selector;

use crate::quantity::Quantity;
use crate::resources::Resources;
use k8s_openapi::api::core::v1::{Node, Taint, Toleration};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use strum::IntoStaticStr;

const CORDON: &str = "node.kubernetes.io/unschedulable";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const NO_SCHEDULE: &str = "NoSchedule";

/// The fields of a node that the rules read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFacts {
    /// Name of the node.
    pub name: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// Taints.
    pub taints: Vec<Taint>,
    /// Condition Ready is True.
    pub ready: bool,
    /// The resources for pods.
    pub allocatable: Resources,
}

/// Whether the next pod of a run can start on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NodeState {
    /// The node was not read.
    #[default]
    Unknown,
    /// Readiness, cordon and taints allow it.
    Usable,
    /// The node is unusable.
    Unusable(Cause),
}

/// Why a node is unusable; the worst cause is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Cause {
    /// The node has a taint that the run does not tolerate.
    Tainted,
    /// The node is cordoned.
    Cordoned,
    /// The kubelet does not answer, or reports that the node is not ready.
    NotReady,
    /// The node was deleted.
    Gone,
}

/// The resources of a node, compared with requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeOffer {
    /// Name of the node.
    pub node: String,
    /// Each requested resource, by name.
    pub amounts: Vec<Amount>,
}

/// The requested and the offered amount of one resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Amount {
    /// Name of the resource.
    pub resource: String,
    /// The request.
    pub asked: Quantity,
    /// What the node has for all pods together.
    pub offered: Quantity,
}

impl NodeFacts {
    /// Reads a node; `None` without a name. Nodes from an API server always have a name.
    pub fn from_node(node: &Node) -> Option<Self> {
        let spec = node.spec.as_ref();
        let status = node.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_deref());
        let allocatable = status.and_then(|status| status.allocatable.as_ref());
        Some(Self {
            name: node.metadata.name.clone()?,
            labels: node.metadata.labels.clone().unwrap_or_default(),
            unschedulable: spec.and_then(|spec| spec.unschedulable).unwrap_or_default(),
            taints: spec.and_then(|spec| spec.taints.clone()).unwrap_or_default(),
            ready: conditions
                .unwrap_or_default()
                .iter()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True"),
            allocatable: allocatable.map(Resources::from_quantities).unwrap_or_default(),
        })
    }
}

/// Whether a pod with these tolerations can start on a node; `None` stands for a deleted node.
pub fn state(node: Option<&NodeFacts>, tolerations: &[Toleration]) -> NodeState {
    match node.map(|node| unusable_cause(node, tolerations)) {
        None => NodeState::Unusable(Cause::Gone),
        Some(Some(cause)) => NodeState::Unusable(cause),
        Some(None) => NodeState::Usable,
    }
}

/// The worst cause: a node that is not ready and cordoned is reported as not ready.
fn unusable_cause(node: &NodeFacts, tolerations: &[Toleration]) -> Option<Cause> {
    let taints = untolerated(node, tolerations);
    taints.map(|taint| Cause::from_taint(&taint)).max()
}

/// The taints that keep a pod with these tolerations off the node. Kubernetes adds the taint of a condition or of a cordon
/// a moment later, so the condition and the cordon count as taints.
pub fn untolerated(node: &NodeFacts, tolerations: &[Toleration]) -> impl Iterator<Item = Taint> {
    let derived = [(!node.ready, NOT_READY), (node.unschedulable, CORDON)];
    let derived = derived.into_iter().filter(|(holds, _)| *holds);
    let derived = derived.map(|(_, key)| no_schedule(key));
    let taints = derived
        .chain(node.taints.iter().cloned())
        .filter(prevents_scheduling);
    taints.filter(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

fn no_schedule(key: &str) -> Taint {
    Taint {
        key: key.to_owned(),
        effect: NO_SCHEDULE.to_owned(),
        ..Taint::default()
    }
}

fn prevents_scheduling(taint: &Taint) -> bool {
    matches!(taint.effect.as_str(), NO_SCHEDULE | "NoExecute")
}

/// The scheduler's rule, with the numeric operators that are alpha in Kubernetes 1.35. An unknown operator tolerates nothing.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let is = |own: Option<&str>, other: &str| own.is_none_or(|own| own.is_empty() || own == other);
    let value = toleration.value.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref();
    let has_key = key.is_some_and(|key| !key.is_empty());
    let numbers = || selector::numbers(taint.value.as_deref(), toleration.value.as_slice());
    is(toleration.effect.as_deref(), &taint.effect)
        && is(key, &taint.key)
        && match toleration.operator.as_deref().unwrap_or_default() {
            "Exists" => true,
            "" | "Equal" => has_key && value == taint.value.as_deref().unwrap_or_default(),
            "Gt" => has_key && numbers().is_some_and(|(own, bound)| own > bound),
            "Lt" => has_key && numbers().is_some_and(|(own, bound)| own < bound),
            _ => false,
        }
}

/// The nearest of these nodes: the node that is short of the fewest resources, then the node with the largest amounts.
pub fn largest<'a>(nodes: impl Iterator<Item = &'a NodeFacts>, asked: &Resources) -> Option<NodeOffer> {
    let offers = nodes.map(|node| offer(node, asked));
    offers.min_by_key(|offer| {
        let offered: Vec<_> = offer
            .amounts
            .iter()
            .map(|amount| Reverse(amount.offered))
            .collect();
        (offer.short().count(), offered, offer.node.clone())
    })
}

fn offer(node: &NodeFacts, asked: &Resources) -> NodeOffer {
    let amount = |(name, asked): (&str, Quantity)| Amount {
        resource: name.to_owned(),
        asked,
        offered: node.allocatable.get(name),
    };
    NodeOffer {
        node: node.name.clone(),
        amounts: asked.iter().map(amount).collect(),
    }
}

impl NodeOffer {
    /// The resources that the node would lack even if it were empty.
    pub fn short(&self) -> impl Iterator<Item = &Amount> {
        self.amounts.iter().filter(|amount| amount.asked > amount.offered)
    }

    /// Whether the node would be large enough if it were empty.
    pub fn fits(&self) -> bool {
        self.short().next().is_none()
    }
}

impl fmt::Display for NodeOffer {
    /// The resources that are short: `node-1 has cpu 4 of 12`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let amount = |it: &Amount| format!("{} {} of {}", it.resource, it.offered, it.asked);
        let short: Vec<_> = self.short().map(amount).collect();
        if short.is_empty() {
            write!(f, "{} is large enough", self.node)
        } else {
            write!(f, "{} has {}", self.node, short.join(", "))
        }
    }
}

impl Cause {
    /// The cause that a taint stands for.
    pub fn from_taint(taint: &Taint) -> Self {
        match taint.key.as_str() {
            NOT_READY | UNREACHABLE => Self::NotReady,
            CORDON => Self::Cordoned,
            _ => Self::Tainted,
        }
    }

    /// The rest of a sentence about the node, such as `is cordoned`.
    pub fn text(self) -> &'static str {
        match self {
            Self::Cordoned => "is cordoned",
            Self::Tainted => "has a taint that this run does not tolerate",
            Self::NotReady => "is not ready",
            Self::Gone => "is gone",
        }
    }

    /// The cause as metric label.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests;
