//! Obstacles by required pod affinity and anti-affinity, of the pod and of the pods on the node.

use super::{ClusterView, Obstacle, Occupant};
use crate::view::{full_name, is_live, is_placeholder, is_reservation, label, node as node_of};
use k8s_openapi::api::core::v1::{Node, Pod, PodAffinityTerm};
use kube::core::{Selector, SelectorExt};
use placement::keys;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The other pods that matter to a pod, found before the nodes are compared: a cluster may have thousands of both.
pub(super) struct Neighbours<'a> {
    apart: Domains<'a>,
    together: Vec<Together<'a>>,
}

/// The pods that must not share a topology domain with the pod, by the label of the domain and its value.
type Domains<'a> = BTreeMap<&'a str, BTreeMap<&'a str, Vec<&'a Pod>>>;

/// The pods with which the pod must share a topology domain.
struct Together<'a> {
    key: &'a str,
    domains: BTreeSet<&'a str>,
    nodes: BTreeSet<&'a str>,
    /// A term that selects no pod but the pod itself: the pod is the first of its group and can go to any node.
    is_first: bool,
}

/// A pod on a node.
struct Placed<'a> {
    pod: &'a Pod,
    name: &'a str,
    node: Option<&'a Node>,
}

impl<'a> Placed<'a> {
    /// All live pods that are bound to a node.
    fn all(cluster: &ClusterView<'a>) -> Vec<Self> {
        let nodes = cluster.nodes.iter();
        let nodes: HashMap<_, _> = nodes
            .filter_map(|node| Some((node.metadata.name.as_deref()?, node)))
            .collect();
        let placed = cluster.pods.iter().filter(|pod| is_live(pod)).filter_map(|pod| {
            let name = node_of(pod)?;
            let node = nodes.get(name).copied();
            Some(Self { pod, name, node })
        });
        placed.collect()
    }

    fn domain(&self, key: &str) -> Option<&'a str> {
        label(&self.node?.metadata, key)
    }
}

fn apart<'a>(pod: &'a Pod, others: &[Placed<'a>]) -> Domains<'a> {
    let own: Vec<_> = anti_terms(pod).map(|term| Term::new(pod, term)).collect();
    let mut apart = Domains::new();
    for other in others.iter().filter(|other| !is_same(pod, other.pod)) {
        let own = own.iter().filter(|term| term.selects(other.pod)).map(Term::key);
        let theirs = anti_terms(other.pod).map(|term| Term::new(other.pod, term));
        let theirs = theirs.filter(|term| term.selects(pod)).map(|term| term.key());
        for key in own.chain(theirs) {
            if let Some(value) = other.domain(key) {
                let domain = apart.entry(key).or_default().entry(value).or_default();
                domain.push(other.pod);
            }
        }
    }
    apart
}

impl<'a> Neighbours<'a> {
    pub(super) fn new(pod: &'a Pod, cluster: &ClusterView<'a>) -> Self {
        let others = Placed::all(cluster);
        let together = terms(pod).map(|term| Together::new(&Term::new(pod, term), &others));
        Self {
            together: together.collect(),
            apart: apart(pod, &others),
        }
    }

    /// The obstacles of this node because of other pods.
    pub(super) fn obstacles(&self, node: &Node) -> Vec<Obstacle> {
        let others = self
            .apart
            .iter()
            .filter_map(|(key, domains)| domains.get(label(&node.metadata, key)?));
        let mut found: BTreeSet<Obstacle> = others.flatten().map(|other| obstacle(other)).collect();
        let placeholders: BTreeSet<_> = found.iter().filter_map(enrolled).collect();
        // A run is reported once, with its strategy: only its placeholder may have the strategy as a label.
        found.retain(|it| !is_shadow(it, &placeholders));
        let away = self.together.iter().find_map(|term| term.away(node));
        away.into_iter().chain(found).collect()
    }
}

impl<'a> Together<'a> {
    fn new(term: &Term<'a>, others: &[Placed<'a>]) -> Self {
        let selected: Vec<_> = others.iter().filter(|other| term.selects(other.pod)).collect();
        Self {
            key: term.key(),
            domains: selected
                .iter()
                .filter_map(|other| other.domain(term.key()))
                .collect(),
            nodes: selected.iter().map(|other| other.name).collect(),
            is_first: selected.is_empty() && term.selects(term.of),
        }
    }

    fn away(&self, node: &Node) -> Option<Obstacle> {
        let is_near = label(&node.metadata, self.key).is_some_and(|value| self.domains.contains(value));
        let nodes = || self.nodes.iter().map(|name| (*name).to_owned()).collect();
        (!is_near && !self.is_first).then(|| Obstacle::Away(nodes()))
    }
}

/// A term, with its selector.
struct Term<'a> {
    of: &'a Pod,
    definition: &'a PodAffinityTerm,
    selector: Option<Selector>,
}

impl<'a> Term<'a> {
    fn new(of: &'a Pod, definition: &'a PodAffinityTerm) -> Self {
        let selector = definition.label_selector.clone();
        Self {
            of,
            definition,
            selector: selector.and_then(|selector| Selector::try_from(selector).ok()),
        }
    }

    fn key(&self) -> &'a str {
        &self.definition.topology_key
    }

    /// Whether the term selects another pod. A namespace selector with requirements is ignored, because it would take a read of all
    /// namespaces; an empty one selects all namespaces.
    fn selects(&self, other: &Pod) -> bool {
        let is_selected = |selector: &Selector| match &other.metadata.labels {
            Some(labels) => selector.matches(labels),
            None => selector.matches(&BTreeMap::new()),
        };
        is_in_reach(self.definition, self.of, other) && self.selector.as_ref().is_some_and(is_selected)
    }
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
    one.metadata.name == other.metadata.name && one.metadata.namespace == other.metadata.namespace
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
