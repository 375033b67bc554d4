//! Obstacles by required pod affinity and anti-affinity, of the pod and of the pods on the node.

use super::{ClusterView, Obstacle, Occupant};
use crate::view::{full_name, is_live, is_placeholder, is_reservation, label, node as node_of};
use k8s_openapi::api::core::v1::{Node, Pod, PodAffinityTerm};
use kube::core::{Selector, SelectorExt};
use placement::keys;
use std::collections::BTreeSet;

/// The obstacles of this node because of other pods.
pub(super) fn obstacles(pod: &Pod, node: &Node, cluster: &ClusterView<'_>) -> Vec<Obstacle> {
    let mut found: BTreeSet<Obstacle> = cluster
        .pods
        .iter()
        .filter(|other| is_live(other) && !is_same(pod, other))
        .filter(|other| keep_apart(pod, other, node, cluster))
        .map(obstacle)
        .collect();
    let placeholders: BTreeSet<_> = found.iter().filter_map(enrolled).collect();
    // A run is reported once, with its strategy: only its placeholder may have the strategy as a label.
    found.retain(|it| !is_shadow(it, &placeholders));
    away(pod, node, cluster).into_iter().chain(found).collect()
}

fn enrolled(obstacle: &Obstacle) -> Option<(String, String)> {
    match obstacle {
        Obstacle::Occupied(occupant) if occupant.strategy.is_some() => {
            Some((occupant.namespace.clone(), occupant.name.clone()))
        }
        _ => None,
    }
}

fn is_shadow(obstacle: &Obstacle, enrolled: &BTreeSet<(String, String)>) -> bool {
    match obstacle {
        Obstacle::Occupied(occupant) => {
            occupant.strategy.is_none()
                && enrolled.contains(&(occupant.namespace.clone(), occupant.name.clone()))
        }
        _ => false,
    }
}

fn obstacle(other: &Pod) -> Obstacle {
    occupant(other).map_or_else(
        || Obstacle::Repelled(full_name(&other.metadata)),
        Obstacle::Occupied,
    )
}

/// The run that a pod belongs to.
pub(crate) fn occupant(pod: &Pod) -> Option<Occupant> {
    let meta = &pod.metadata;
    Some(Occupant {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: label(meta, keys::TEKTON_PIPELINE_RUN)?.to_owned(),
        strategy: label(meta, keys::STRATEGY)
            .filter(|_| label(meta, keys::GROUP).is_some())
            .map(str::to_owned),
        reserved: is_reservation(pod) && is_placeholder(pod),
    })
}

fn is_same(one: &Pod, other: &Pod) -> bool {
    full_name(&one.metadata) == full_name(&other.metadata)
}

fn keep_apart(pod: &Pod, other: &Pod, node: &Node, cluster: &ClusterView<'_>) -> bool {
    let here = |term: &&PodAffinityTerm| shares(&term.topology_key, other, node, cluster);
    anti_terms(pod).any(|term| here(&term) && selects(term, pod, other))
        || anti_terms(other).any(|term| here(&term) && selects(term, other, pod))
}

fn anti_terms(pod: &Pod) -> impl Iterator<Item = &PodAffinityTerm> {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let anti = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    anti.into_iter().flat_map(|anti| {
        anti.required_during_scheduling_ignored_during_execution
            .iter()
            .flatten()
    })
}

fn terms(pod: &Pod) -> impl Iterator<Item = &PodAffinityTerm> {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let together = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
    together.into_iter().flat_map(|it| {
        it.required_during_scheduling_ignored_during_execution
            .iter()
            .flatten()
    })
}

/// The pods that a term selects are in other topology domains than the node. If a term selects no pod but the pod itself, the pod
/// is the first of its group and can go to any node.
fn away(pod: &Pod, node: &Node, cluster: &ClusterView<'_>) -> Option<Obstacle> {
    terms(pod).find_map(|term| {
        let company: Vec<_> = cluster
            .pods
            .iter()
            .filter(|other| is_live(other) && node_of(other).is_some() && selects(term, pod, other))
            .collect();
        let near = company
            .iter()
            .any(|other| shares(&term.topology_key, other, node, cluster));
        let first = company.is_empty() && selects(term, pod, pod);
        (!near && !first).then(|| Obstacle::Away(nodes(&company)))
    })
}

fn nodes(pods: &[&Pod]) -> Vec<String> {
    let names: BTreeSet<_> = pods
        .iter()
        .filter_map(|pod| node_of(pod))
        .map(str::to_owned)
        .collect();
    names.into_iter().collect()
}

/// Whether the pod is in the same topology domain as the node.
fn shares(key: &str, pod: &Pod, node: &Node, cluster: &ClusterView<'_>) -> bool {
    let Some(name) = node_of(pod) else { return false };
    let of = |node: &Node| label(&node.metadata, key).map(str::to_owned);
    let other = cluster
        .nodes
        .iter()
        .find(|it| it.metadata.name.as_deref() == Some(name));
    match (other.and_then(of), of(node)) {
        (Some(one), Some(other)) => one == other,
        _ => false,
    }
}

/// Whether a term of one pod selects another pod. A namespace selector with requirements is ignored, because it would take a read
/// of all namespaces; an empty one selects all namespaces.
fn selects(term: &PodAffinityTerm, of: &Pod, other: &Pod) -> bool {
    is_in_reach(term, of, other)
        && term
            .label_selector
            .clone()
            .and_then(|selector| Selector::try_from(selector).ok())
            .is_some_and(|selector| selector.matches(&other.metadata.labels.clone().unwrap_or_default()))
}

fn is_in_reach(term: &PodAffinityTerm, of: &Pod, other: &Pod) -> bool {
    let own = || of.metadata.namespace == other.metadata.namespace;
    let listed = term.namespaces.as_deref().unwrap_or_default();
    let is_listed = other
        .metadata
        .namespace
        .as_ref()
        .is_some_and(|it| listed.contains(it));
    match &term.namespace_selector {
        None if listed.is_empty() => own(),
        None => is_listed,
        Some(selector) => {
            let all = selector.match_labels.iter().flatten().next().is_none()
                && selector.match_expressions.iter().flatten().next().is_none();
            all || is_listed
        }
    }
}
