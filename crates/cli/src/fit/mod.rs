//! Why a pod cannot go to a node, in the scheduler's terms and in plain words. Pure.
//!
//! Not the scheduler: only the reasons that runs meet in practice are told apart. Where none of them speaks against
//! a node, the scheduler's own message is all there is to say.

pub(crate) mod neighbours;
mod selectors;
mod volumes;

pub(crate) use volumes::Bound;

use crate::view::{is_live, node};
use k8s_openapi::api::core::v1::{Node, Pod, PodSpec, Taint, Toleration};
use placement::quantity::Quantity;
use placement::resources::Resources;
use std::collections::BTreeMap;
use std::fmt;

const CORDON: &str = "node.kubernetes.io/unschedulable";
const WELL_KNOWN: &str = "node.kubernetes.io/";

/// What stands between a pod and the nodes: the nodes, all pods in sight, the volumes of its run's claims.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) nodes: &'a [Node],
    pub(crate) pods: &'a [Pod],
    pub(crate) volumes: &'a [Bound],
}

/// A run, by the labels of its pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tenant {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Its strategy, if it is enrolled.
    pub(crate) strategy: Option<String>,
    /// It is done and keeps its node all the same.
    pub(crate) reserved: bool,
}

/// One reason against a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Refusal {
    NotReady,
    Cordoned,
    Taint(String),
    /// The label that it lacks, or the expression that it does not meet.
    Selector(String),
    /// The claim, and what its volume asks of a node.
    Volume {
        claim: String,
        needs: String,
    },
    /// The pod's group is on other nodes.
    Away(Vec<String>),
    Occupied(Tenant),
    /// A pod of no run, by the pod's or its own terms.
    Repelled(String),
    Short {
        resource: String,
        free: Quantity,
        asked: Quantity,
    },
}

/// Every reason against this node, the most telling first.
pub(crate) fn refusals(pod: &Pod, node: &Node, scene: &Scene<'_>) -> Vec<Refusal> {
    let Some(spec) = pod.spec.as_ref() else {
        return Vec::new();
    };
    let mut found = state(spec, node);
    found.extend(
        scene
            .volumes
            .iter()
            .filter_map(|volume| volume.refusal(pod, node)),
    );
    found.extend(selectors::refusal(spec, node).map(Refusal::Selector));
    found.extend(neighbours::refusals(pod, node, scene));
    found.extend(short(spec, node, scene));
    found
}

fn state(spec: &PodSpec, node: &Node) -> Vec<Refusal> {
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let mut found = Vec::new();
    if is_cordoned(node) && !tolerates(tolerations, &cordon()) {
        found.push(Refusal::Cordoned);
    }
    let keeps_out = taints(node).filter(|taint| taint.effect != "PreferNoSchedule");
    for taint in keeps_out.filter(|taint| !tolerates(tolerations, taint)) {
        match taint.key.as_str() {
            CORDON => {}
            key if key.starts_with(WELL_KNOWN) && !is_ready(node) => found.insert(0, Refusal::NotReady),
            _ => found.push(Refusal::Taint(taint_text(taint))),
        }
    }
    found.dedup();
    found
}

fn cordon() -> Taint {
    Taint {
        key: CORDON.to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    }
}

fn taints(node: &Node) -> impl Iterator<Item = &Taint> {
    let spec = node.spec.as_ref();
    spec.into_iter().flat_map(|spec| spec.taints.iter().flatten())
}

fn taint_text(taint: &Taint) -> String {
    match taint.value.as_deref() {
        Some(value) if !value.is_empty() => format!("{}={value}:{}", taint.key, taint.effect),
        Some(_) | None => format!("{}:{}", taint.key, taint.effect),
    }
}

fn tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|it| is_tolerated(it, taint))
}

fn is_tolerated(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |it: &Option<String>| it.clone().unwrap_or_default();
    let (key, effect) = (text(&toleration.key), text(&toleration.effect));
    let same_key = key.is_empty() || key == taint.key;
    let same_effect = effect.is_empty() || effect == taint.effect;
    let same_value = match toleration.operator.as_deref().unwrap_or_default() {
        "Exists" => true,
        "" | "Equal" => !key.is_empty() && text(&toleration.value) == text(&taint.value),
        _ => false,
    };
    same_key && same_effect && same_value
}

/// Somebody took it out of use.
pub(crate) fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
}

/// Its kubelet says that it works.
pub(crate) fn is_ready(node: &Node) -> bool {
    let status = node.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref());
    conditions
        .unwrap_or_default()
        .iter()
        .any(|it| it.type_ == "Ready" && it.status == "True")
}

/// What a node has for pods.
pub(crate) fn allocatable(node: &Node) -> Resources {
    let amounts = node
        .status
        .as_ref()
        .and_then(|status| status.allocatable.as_ref());
    amounts.map(Resources::from_quantities).unwrap_or_default()
}

/// What the pods on a node ask for, resource by resource.
pub(crate) fn used<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> BTreeMap<String, Quantity> {
    let mut sum = BTreeMap::new();
    for pod in pods {
        let asked = pod
            .spec
            .as_ref()
            .map(Resources::from_pod_spec)
            .unwrap_or_default();
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

/// What is left, never less than nothing. Quantities can be added only, so the opposite is added, by its exact text.
pub(crate) fn left(offered: Quantity, used: Quantity) -> Quantity {
    let opposite = format!("-{used}").parse().unwrap_or_default();
    Quantity::default().max(offered + opposite)
}

fn short(spec: &PodSpec, node: &Node, scene: &Scene<'_>) -> Vec<Refusal> {
    let used = used(on(scene.pods, node.metadata.name.as_deref()));
    let offered = allocatable(node);
    let asked = Resources::from_pod_spec(spec);
    let one_pod = ("pods", Quantity::of(1));
    let lacking = |(name, asked): (&str, Quantity)| {
        let free = left(offered.get(name), used.get(name).copied().unwrap_or_default());
        (asked > free).then(|| Refusal::Short {
            resource: name.to_owned(),
            free,
            asked,
        })
    };
    asked.iter().chain([one_pod]).filter_map(lacking).collect()
}

impl Refusal {
    /// Its name in data.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::NotReady => "NotReady",
            Self::Cordoned => "Cordoned",
            Self::Taint(_) => "Taint",
            Self::Selector(_) => "NodeSelector",
            Self::Volume { .. } => "Volume",
            Self::Away(_) => "OtherNode",
            Self::Occupied(tenant) if tenant.reserved => "Reserved",
            Self::Occupied(_) => "Occupied",
            Self::Repelled(_) => "AntiAffinity",
            Self::Short { .. } => "Resources",
        }
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run {} of namespace {}", self.name, self.namespace)
    }
}

impl fmt::Display for Refusal {
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
            Self::Occupied(tenant) if tenant.reserved => {
                write!(f, "is reserved by the finished {tenant} (isolateAlways)")
            }
            Self::Occupied(tenant) => match &tenant.strategy {
                Some(strategy) => write!(f, "is occupied by {tenant} ({strategy})"),
                None => write!(f, "has pods of {tenant}, which is not labelled"),
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
