//! The part of a placeholder's StatefulSet that the plan changes: as observed, and as wanted.

use crate::config::Config;
use crate::image_pull::Images;
use crate::keys;
use crate::pod_rejection::LimitRangeBounds;
use crate::raw::{add, remove, replace, test};
use crate::resources::Resources;
use json_patch::{Patch, PatchOperation};
use k8s_openapi::api::apps::v1::StatefulSetSpec;
use k8s_openapi::api::core::v1::{
    NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Toleration, Volume,
};
use serde::Serialize;
use serde_json::Value;

const CONTAINER: [&str; 5] = ["spec", "template", "spec", "containers", "0"];

/// The observed or the wanted fields of a placeholder's StatefulSet. All fields except `replicas` are in its pod
/// template.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spec {
    /// `spec.replicas`.
    pub replicas: i32,
    /// What the container `placeholder` requests.
    pub size: Resources,
    /// The annotation `reserve`: the size contains a reserve.
    pub reserve: Option<String>,
    /// The annotation `within-limits`: a `LimitRange` decided the size.
    pub within_limits: bool,
    /// The annotation `pinned`: the only node that the pod may be on.
    pub node: Option<String>,
    /// The node affinity without the pin: the requirements of the run's pod template and of the run's volumes.
    pub affinity: NodeAffinity,
    /// The annotation `left`: the node that the run gave up last; empty if the placeholder last made room in a quota.
    pub previous_node: Option<String>,
    /// The tolerations.
    pub tolerations: Vec<Toleration>,
    /// The PVCs that the pod mounts.
    pub claims: Vec<String>,
    /// The images of the image volumes.
    pub images: Images,
}

/// Whether a placeholder meets the bounds of a `LimitRange` that rejected its pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LimitsMet {
    /// The size meets the bounds: the pod was rejected before the last change.
    Now,
    /// This size meets the bounds of this message and of all earlier messages.
    With(Resources),
    /// The bounds of this message contradict the bounds of an earlier message.
    Never,
}

impl Spec {
    /// Reads a placeholder's StatefulSet. Fields that are absent have the default of the API server.
    pub fn from_statefulset(spec: &StatefulSetSpec) -> Self {
        let annotation = |key| {
            spec.template
                .metadata
                .as_ref()?
                .annotations
                .as_ref()?
                .get(key)
                .cloned()
        };
        let pod = spec.template.spec.clone().unwrap_or_default();
        let node = annotation(keys::PINNED).filter(|node| !node.is_empty());
        let affinity = pod.affinity.and_then(|affinity| affinity.node_affinity);
        let volumes = pod.volumes.as_deref().unwrap_or_default();
        let claim = |volume: &Volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.clone());
        let image = |volume: &Volume| volume.image.as_ref()?.reference.clone();
        Self {
            replicas: spec.replicas.unwrap_or(1),
            size: Resources::of_container(&pod.containers, keys::PLACEHOLDER),
            reserve: annotation(keys::RESERVE),
            within_limits: annotation(keys::WITHIN_LIMITS).is_some(),
            affinity: Self::unpinned(affinity.unwrap_or_default(), node.as_deref()),
            node,
            previous_node: annotation(keys::LEFT),
            tolerations: pod.tolerations.unwrap_or_default(),
            claims: volumes.iter().filter_map(claim).collect(),
            images: volumes.iter().filter_map(image).collect(),
        }
    }

    /// The node affinity of a pod template that is pinned to this node, without the pin.
    #[must_use]
    pub fn unpinned(mut affinity: NodeAffinity, node: Option<&str>) -> NodeAffinity {
        let required = &mut affinity.required_during_scheduling_ignored_during_execution;
        if let (Some(node), Some(required)) = (node, required.as_mut()) {
            let pin = name_requirement(node);
            for term in &mut required.node_selector_terms {
                let fields = term.match_fields.take();
                let others = fields.into_iter().flatten().filter(|field| *field != pin);
                term.match_fields = Some(others.collect()).filter(|fields: &Vec<_>| !fields.is_empty());
            }
        }
        required.take_if(|required| required.node_selector_terms == [NodeSelectorTerm::default()]);
        affinity
    }

    /// Changes the size to the usual size, without a reserve.
    pub(crate) fn shrink(&mut self, config: &Config) {
        self.size = super::size::usual(config).requests();
        self.reserve = None;
    }

    /// Compares the size with the bounds in a message of the API server, which reports a single `LimitRange` at a time. If the namespace
    /// has several, each message changes the size that meets the earlier messages. An amount only grows, or only shrinks: bounds that
    /// need the opposite contradict an earlier message.
    pub(crate) fn meet_limits(&self, bounds: &LimitRangeBounds, config: &Config) -> LimitsMet {
        let usual = super::size::usual(config).requests();
        let size = if self.within_limits { &self.size } else { &usual };
        let next = bounds.nearest(size.clone());
        let lowers_raised = size.beyond(&usual).any(|name| next.get(name) < size.get(name));
        let raises_lowered = usual.beyond(size).any(|name| next.get(name) > size.get(name));
        if next == self.size {
            LimitsMet::Now
        } else if lowers_raised || raises_lowered {
            LimitsMet::Never
        } else {
            LimitsMet::With(next)
        }
    }

    /// The node that the run gave up last.
    pub fn node_given_up(&self) -> Option<&str> {
        self.previous_node.as_deref().filter(|node| !node.is_empty())
    }
}

/// Changes the StatefulSet from the observed to the wanted state. The patch is empty exactly if both are equal. The
/// patch fails as a whole if the StatefulSet has another UID, or if a field that the patch relies on changed meanwhile.
pub fn patch(uid: &str, observed: &Spec, wanted: &Spec) -> Patch {
    let Spec {
        replicas,
        size,
        reserve,
        within_limits,
        node,
        affinity,
        previous_node,
        tolerations,
        claims,
        images,
    } = wanted;
    let mut changes = Vec::new();
    if observed.replicas != *replicas {
        let at = ["spec", "replicas"];
        changes.extend([test(&at, observed.replicas), replace(&at, *replicas)]);
    }
    if observed.previous_node != *previous_node {
        changes.push(annotation(keys::LEFT, previous_node.as_deref()));
    }
    if observed.size != *size {
        changes.extend(resources(size));
    }
    if observed.reserve != *reserve {
        changes.push(annotation(keys::RESERVE, reserve.as_deref()));
    }
    if observed.within_limits != *within_limits {
        changes.push(annotation(keys::WITHIN_LIMITS, within_limits.then_some("true")));
    }
    if observed.node != *node || observed.affinity != *affinity {
        changes.extend(pin(affinity, node.as_deref()));
    }
    if observed.tolerations != *tolerations {
        changes.push(add(&template(&["spec", "tolerations"]), json(tolerations)));
    }
    if observed.claims != *claims || observed.images != *images {
        let volumes = super::volumes(claims, images);
        changes.push(add(&template(&["spec", "volumes"]), json(&volumes)));
    }
    if !changes.is_empty() {
        changes.insert(0, test(&["metadata", "uid"], uid));
    }
    Patch(changes)
}

/// The patch tests the name of the container, because webhooks may have added containers. Requests equal limits, as in
/// a new placeholder.
fn resources(size: &Resources) -> [PatchOperation; 2] {
    let at = |member| [CONTAINER.as_slice(), &[member]].concat();
    [
        test(&at("name"), keys::PLACEHOLDER),
        replace(&at("resources"), json(&super::size::requests_and_limits(size))),
    ]
}

/// The pin is added to each term, because the terms are alternatives. The operation `add` also replaces a value,
/// whereas `remove` fails if the value is absent.
fn pin(affinity: &NodeAffinity, node: Option<&str>) -> [PatchOperation; 2] {
    let mut affinity = affinity.clone();
    if let Some(node) = node {
        let required = affinity
            .required_during_scheduling_ignored_during_execution
            .get_or_insert_with(any_node);
        for term in &mut required.node_selector_terms {
            term.match_fields
                .get_or_insert_default()
                .push(name_requirement(node));
        }
    }
    [
        add(&template(&["spec", "affinity", "nodeAffinity"]), json(&affinity)),
        annotation(keys::PINNED, Some(node.unwrap_or_default())),
    ]
}

fn any_node() -> NodeSelector {
    NodeSelector {
        node_selector_terms: vec![NodeSelectorTerm::default()],
    }
}

/// Pins by the name of the node and not by its hostname label, because the two may differ.
pub(crate) fn name_requirement(node: &str) -> NodeSelectorRequirement {
    NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    }
}

fn annotation(key: &str, value: Option<&str>) -> PatchOperation {
    let at = template(&["metadata", "annotations", key]);
    match value {
        Some(value) => add(&at, value),
        None => remove(&at),
    }
}

fn template<'a>(path: &[&'a str]) -> Vec<&'a str> {
    [&["spec", "template"], path].concat()
}

/// Serialising a type of Kubernetes cannot fail.
fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}
