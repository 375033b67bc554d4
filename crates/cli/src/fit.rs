//! The obstacles that keep a pod from a node. Pure.
//!
//! The scheduler checks more: this module knows the obstacles that runs meet in practice. If a node has none of them, only the
//! scheduler's message says why the pod is not there.

pub(crate) mod neighbours;
mod selectors;

pub(crate) use selectors::BoundVolume;

use crate::view::{is_live, node};
use k8s_openapi::api::core::v1::{Node, Pod, PodSpec, Taint};
use neighbours::Neighbours;
use placement::node::{Cause, NodeFacts, untolerated};
use placement::quantity::Quantity;
use placement::resources::Resources;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

/// The nodes, the pods that could be read, and the volumes of the run's PVCs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClusterView<'a> {
    pub(crate) nodes: &'a [Node],
    pub(crate) pods: &'a [Pod],
    pub(crate) volumes: &'a [BoundVolume],
}

/// A run on a node, by the labels of its pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Occupant {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Its strategy, if it is enrolled.
    pub(crate) strategy: Option<String>,
    /// The run is done and keeps its node.
    pub(crate) reserved: bool,
}

/// A reason why a pod cannot go to a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Obstacle {
    NotReady,
    Cordoned,
    Taint(String),
    /// The requirement that the labels of the node do not meet.
    Selector(String),
    /// The PVC, and what its volume requires of a node.
    Volume {
        claim: String,
        needs: String,
    },
    /// The pod's group is on these nodes.
    Away(Vec<String>),
    Occupied(Occupant),
    /// A pod that belongs to no run, and that this pod's or its own anti-affinity keeps apart.
    Repelled(String),
    Short {
        resource: String,
        free: Quantity,
        asked: Quantity,
    },
}

/// A pod, and what matters to it in a cluster.
pub(crate) struct Fit<'a> {
    pod: &'a Pod,
    cluster: ClusterView<'a>,
    neighbours: Neighbours<'a>,
    on_nodes: HashMap<&'a str, Vec<&'a Pod>>,
}

impl<'a> Fit<'a> {
    pub(crate) fn new(pod: &'a Pod, cluster: ClusterView<'a>) -> Self {
        let mut on_nodes: HashMap<_, Vec<_>> = HashMap::new();
        for other in cluster.pods.iter().filter(|other| is_live(other)) {
            if let Some(name) = node(other) {
                on_nodes.entry(name).or_default().push(other);
            }
        }
        Self {
            pod,
            neighbours: Neighbours::new(pod, &cluster),
            on_nodes,
            cluster,
        }
    }

    pub(crate) fn nodes(&self) -> &'a [Node] {
        self.cluster.nodes
    }

    /// All obstacles of this node.
    pub(crate) fn obstacles(&self, node: &Node) -> Vec<Obstacle> {
        let Some(spec) = self.pod.spec.as_ref() else {
            return Vec::new();
        };
        let volumes = self.cluster.volumes.iter();
        let mut found = state(spec, node);
        found.extend(volumes.filter_map(|volume| volume.obstacle(self.pod, node)));
        found.extend(selectors::unmet(spec, node).map(Obstacle::Selector));
        found.extend(self.neighbours.obstacles(node));
        found.extend(self.short(spec, node));
        found
    }

    fn short(&self, spec: &PodSpec, node: &Node) -> Vec<Obstacle> {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let used = used(self.on_nodes.get(name).into_iter().flatten().copied());
        let offered = NodeFacts::from_node(node).unwrap_or_default().allocatable;
        let asked = Resources::from_pod_spec(spec);
        let one_pod = ("pods", Quantity::of(1));
        let lacking = |(name, asked): (&str, Quantity)| {
            let free = left(offered.get(name), used.get(name).copied().unwrap_or_default());
            (asked > free).then(|| Obstacle::Short {
                resource: name.to_owned(),
                free,
                asked,
            })
        };
        asked.iter().chain([one_pod]).filter_map(lacking).collect()
    }
}

/// The state of the node by the rules of placement.
fn state(spec: &PodSpec, node: &Node) -> Vec<Obstacle> {
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let facts = NodeFacts::from_node(node).unwrap_or_default();
    let taints = untolerated(&facts, tolerations);
    let found = taints.map(|taint| match Cause::from_taint(&taint) {
        Cause::NotReady | Cause::Gone => Obstacle::NotReady,
        Cause::Cordoned => Obstacle::Cordoned,
        Cause::Tainted => Obstacle::Taint(taint_text(&taint)),
    });
    let found: BTreeSet<_> = found.collect();
    found.into_iter().collect()
}

fn taint_text(taint: &Taint) -> String {
    match taint.value.as_deref() {
        Some(value) if !value.is_empty() => format!("{}={value}:{}", taint.key, taint.effect),
        Some(_) | None => format!("{}:{}", taint.key, taint.effect),
    }
}

/// The requests of these pods, and their number as the resource `pods`.
pub(crate) fn used<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> BTreeMap<String, Quantity> {
    let mut sum = BTreeMap::new();
    for pod in pods {
        let asked = Resources::from_pod(pod);
        for (name, amount) in asked.iter().chain([("pods", Quantity::of(1))]) {
            let total: &mut Quantity = sum.entry(name.to_owned()).or_default();
            *total = *total + amount;
        }
    }
    sum
}

/// The live pods that are bound to a node.
pub(crate) fn on<'a>(pods: &'a [Pod], name: Option<&'a str>) -> impl Iterator<Item = &'a Pod> {
    pods.iter()
        .filter(move |pod| is_live(pod) && name.is_some() && node(pod) == name)
}

/// The difference, at least zero.
pub(crate) fn left(offered: Quantity, used: Quantity) -> Quantity {
    Quantity::default().max(offered - used)
}

impl Obstacle {
    /// The name in JSON.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::NotReady => "NotReady",
            Self::Cordoned => "Cordoned",
            Self::Taint(_) => "Taint",
            Self::Selector(_) => "NodeSelector",
            Self::Volume { .. } => "Volume",
            Self::Away(_) => "OtherNode",
            Self::Occupied(occupant) if occupant.reserved => "Reserved",
            Self::Occupied(_) => "Occupied",
            Self::Repelled(_) => "AntiAffinity",
            Self::Short { .. } => "Resources",
        }
    }
}

impl fmt::Display for Occupant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run {} of namespace {}", self.name, self.namespace)
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady => f.write_str("is not ready"),
            Self::Cordoned => f.write_str("is cordoned"),
            Self::Taint(taint) => write!(f, "has the taint {taint}, which the run does not tolerate"),
            Self::Selector(what) => f.write_str(what),
            Self::Volume { claim, needs } => {
                write!(f, "cannot use the volume of PVC {claim} ({needs})")
            }
            Self::Away(nodes) if nodes.is_empty() => {
                f.write_str("does not have the pods that this pod must be with")
            }
            Self::Away(nodes) => write!(f, "is not the node of this run ({})", nodes.join(", ")),
            Self::Occupied(occupant) if occupant.reserved => {
                write!(f, "is reserved by the finished {occupant} (isolateAlways)")
            }
            Self::Occupied(occupant) => match &occupant.strategy {
                Some(strategy) => write!(f, "is occupied by {occupant} ({strategy})"),
                None => write!(f, "has pods of {occupant}, which is not labelled"),
            },
            Self::Repelled(pod) => write!(
                f,
                "has pod {pod}, and one of the two has anti-affinity to the other"
            ),
            Self::Short { resource, .. } if resource == "pods" => f.write_str("has no room for more pods"),
            Self::Short {
                resource,
                free,
                asked,
            } => write!(
                f,
                "has not enough {resource}: {free} is free, {asked} is asked for"
            ),
        }
    }
}

#[cfg(test)]
mod tests;
