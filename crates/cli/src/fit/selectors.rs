//! Requirements on a node: by node selectors and node affinity of the pod, and by volumes of its PVCs.

use super::Obstacle;
use crate::view::{claims, is_placeholder};
use k8s_openapi::api::core::v1::{
    Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume, Pod, PodSpec,
};
use placement::node::selector;
use placement::volume::{NodeNames, is_only_on, required};
use std::collections::BTreeMap;

/// A PVC whose volume cannot be used on all nodes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BoundVolume {
    claim: String,
    volume: PersistentVolume,
}

impl BoundVolume {
    /// The volume of a PVC; `None` if all nodes can use the volume.
    pub(crate) fn of(claim: &str, volume: &PersistentVolume) -> Option<Self> {
        required(volume)?;
        Some(Self {
            claim: claim.to_owned(),
            volume: volume.clone(),
        })
    }

    /// The name of the PVC.
    pub(crate) fn claim(&self) -> &str {
        &self.claim
    }

    /// Whether this node can use the volume, and no other node can.
    pub(crate) fn is_only_on(&self, node: NodeNames<'_>) -> bool {
        is_only_on(&self.volume, node)
    }

    pub(super) fn obstacle(&self, pod: &Pod, node: &Node) -> Option<Obstacle> {
        let required = required(&self.volume).filter(|_| self.concerns(pod))?;
        (!matches(required, node)).then(|| Obstacle::Volume {
            claim: self.claim.clone(),
            needs: text(required),
        })
    }

    /// The node affinity of a placeholder contains the volume of a PVC that only tasks may mount.
    fn concerns(&self, pod: &Pod) -> bool {
        claims(pod).any(|claim| claim == self.claim) || (is_placeholder(pod) && self.is_required_by(pod))
    }

    fn is_required_by(&self, pod: &Pod) -> bool {
        let affinity = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref());
        let of_pod = affinity.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
        let of_pod = of_pod.into_iter().flat_map(|it| &it.node_selector_terms);
        let of_pod: Vec<_> = of_pod.flat_map(requirements).collect();
        // The placeholder keeps only the terms that a node can meet together with those of other volumes.
        let mut terms = required(&self.volume)
            .into_iter()
            .flat_map(|it| &it.node_selector_terms);
        terms.any(|term| requirements(term).all(|requirement| of_pod.contains(&requirement)))
    }
}

/// The first requirement of the pod that the labels of the node do not meet.
pub(super) fn unmet(spec: &PodSpec, node: &Node) -> Option<String> {
    let labels = labels(node);
    let selector = spec.node_selector.iter().flatten();
    let mut lacking = selector.filter(|(key, value)| labels.get(*key) != Some(value));
    if let Some((key, value)) = lacking.next() {
        return Some(format!("lacks the label {key}={value} (nodeSelector)"));
    }
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity
        .required_during_scheduling_ignored_during_execution
        .as_ref()?;
    (!matches(required, node)).then(|| format!("does not match the node affinity ({})", text(required)))
}

fn matches(selector: &NodeSelector, node: &Node) -> bool {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    selector::matches(selector, name, &labels(node))
}

fn text(selector: &NodeSelector) -> String {
    let terms: Vec<_> = selector.node_selector_terms.iter().map(term_text).collect();
    terms.join(", or ")
}

fn term_text(term: &NodeSelectorTerm) -> String {
    let all = expressions(term).chain(fields(term));
    all.map(requirement_text).collect::<Vec<_>>().join(" and ")
}

fn requirement_text(requirement: &NodeSelectorRequirement) -> String {
    let values = requirement.values.as_deref().unwrap_or_default().join(", ");
    let key = &requirement.key;
    match requirement.operator.as_str() {
        "In" => format!("{key} in {values}"),
        "NotIn" => format!("{key} not in {values}"),
        "Exists" => format!("{key} is there"),
        "DoesNotExist" => format!("{key} is not there"),
        "Gt" => format!("{key} above {values}"),
        "Lt" => format!("{key} below {values}"),
        other => format!("{key} {other} {values}"),
    }
}

fn requirements(term: &NodeSelectorTerm) -> impl Iterator<Item = &NodeSelectorRequirement> {
    expressions(term).chain(fields(term))
}

fn expressions(term: &NodeSelectorTerm) -> impl Iterator<Item = &NodeSelectorRequirement> {
    term.match_expressions.iter().flatten()
}

fn fields(term: &NodeSelectorTerm) -> impl Iterator<Item = &NodeSelectorRequirement> {
    term.match_fields.iter().flatten()
}

fn labels(node: &Node) -> BTreeMap<String, String> {
    node.metadata.labels.clone().unwrap_or_default()
}
