//! The part of a placeholder's StatefulSet that the plan changes: as observed, and as wanted.

use super::affinity;
use crate::keys;
use crate::raw::{add, remove, replace, test};
use crate::resources::Resources;
use crate::run::Run;
use json_patch::{Patch, PatchOperation};
use k8s_openapi::api::core::v1::{
    NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Toleration,
};
use serde::Serialize;
use serde_json::Value;

const CONTAINER: [&str; 5] = ["spec", "template", "spec", "containers", "0"];

/// What a placeholder's StatefulSet is, or should be. All fields but the first are those of its pod template.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spec {
    /// `spec.replicas`.
    pub replicas: i32,
    /// What the container `placeholder` requests.
    pub size: Resources,
    /// The annotation `within-limits`: a `LimitRange` decided the size.
    pub within_limits: bool,
    /// The annotation `pinned`: the only node that the pod may be on.
    pub node: Option<String>,
    /// The annotation `left`: the node that the run gave up last; empty if the placeholder last made room in a quota.
    pub left: Option<String>,
    /// The tolerations.
    pub tolerations: Vec<Toleration>,
    /// The PVCs that the pod mounts.
    pub claims: Vec<String>,
}

impl Spec {
    /// The node that the run gave up last.
    pub fn left_node(&self) -> Option<&str> {
        self.left.as_deref().filter(|node| !node.is_empty())
    }
}

/// Changes the StatefulSet from what was observed to what is wanted. Empty exactly if both are equal. The patch fails as a whole if
/// the StatefulSet is another, or if a field that it relies on changed meanwhile.
pub fn patch(uid: &str, seen: &Spec, wanted: &Spec, run: &Run) -> Patch {
    let Spec {
        replicas,
        size,
        within_limits,
        node,
        left,
        tolerations,
        claims,
    } = wanted;
    let mut changes = Vec::new();
    if seen.replicas != *replicas {
        let at = ["spec", "replicas"];
        changes.extend([test(&at, seen.replicas), replace(&at, *replicas)]);
    }
    if seen.left != *left {
        changes.push(annotation(keys::LEFT, left.as_deref()));
    }
    if seen.size != *size {
        changes.extend(resources(size));
    }
    if seen.within_limits != *within_limits {
        changes.push(annotation(keys::WITHIN_LIMITS, within_limits.then_some("true")));
    }
    if seen.node != *node {
        changes.extend(pin(run, node.as_deref()));
    }
    if seen.tolerations != *tolerations {
        changes.push(add(&template(&["spec", "tolerations"]), json(tolerations)));
    }
    if seen.claims != *claims {
        let volumes = super::volumes(claims);
        changes.push(add(&template(&["spec", "volumes"]), json(&volumes)));
    }
    if !changes.is_empty() {
        changes.insert(0, test(&["metadata", "uid"], uid));
    }
    Patch(changes)
}

/// The container is guarded by its name: others may have added containers of their own. Requests equal limits, as at the creation.
fn resources(size: &Resources) -> [PatchOperation; 2] {
    let at = |member| [CONTAINER.as_slice(), &[member]].concat();
    [
        test(&at("name"), keys::PLACEHOLDER),
        replace(&at("resources"), json(&super::size::guaranteed(size))),
    ]
}

/// Where the run itself requires nodes, the pin is added to each of its alternatives. An operation `add` also replaces, whereas
/// `remove` would fail where nothing is.
fn pin(run: &Run, node: Option<&str>) -> [PatchOperation; 2] {
    let affinity = json(&node_affinity(run, node));
    [
        add(&template(&["spec", "affinity", "nodeAffinity"]), affinity),
        annotation(keys::PINNED, Some(node.unwrap_or_default())),
    ]
}

fn node_affinity(run: &Run, node: Option<&str>) -> NodeAffinity {
    let mut affinity = affinity::of_nodes(&run.template).unwrap_or_default();
    if let Some(node) = node {
        let required = affinity
            .required_during_scheduling_ignored_during_execution
            .get_or_insert_with(any_node);
        for term in &mut required.node_selector_terms {
            term.match_fields.get_or_insert_default().push(named(node));
        }
    }
    affinity
}

fn any_node() -> NodeSelector {
    NodeSelector {
        node_selector_terms: vec![NodeSelectorTerm::default()],
    }
}

/// By name and not by hostname label, because the two may differ.
fn named(node: &str) -> NodeSelectorRequirement {
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

/// Types of Kubernetes always serialise.
fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}
