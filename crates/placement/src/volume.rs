//! Volumes: which nodes can use a volume, and whether only a single node can.

use crate::keys;
use k8s_openapi::api::core::v1::{
    NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume,
};
use std::collections::BTreeSet;

/// The names of a node in the node affinity of volumes.
#[derive(Clone, Copy, Debug)]
pub struct NodeNames<'a> {
    /// Name of the node.
    pub name: &'a str,
    /// The label `kubernetes.io/hostname` of the node, which may differ from its name.
    pub hostname: &'a str,
}

/// Whether only this node can use the volume, as with a local disk. A volume of a zone can also be used on a node that
/// does not exist yet.
pub fn is_only_on(volume: &PersistentVolume, node: NodeNames<'_>) -> bool {
    let terms = required(volume).map(|required| required.node_selector_terms.as_slice());
    let terms = terms.unwrap_or_default();
    // The terms are alternatives: the scheduler needs only one that matches.
    !terms.is_empty() && terms.iter().all(|term| names_only(term, node))
}

/// The PVC that keeps a run on the only node that can use the PVC's volume. `only_there` are all such PVCs. If pods wait,
/// each of them must mount such a PVC: a pod that can use another node must not wait for this node.
pub fn pin<'a>(only_there: &'a BTreeSet<String>, claims_of_waiting: &[BTreeSet<String>]) -> Option<&'a str> {
    let is_pinned = |claims: &BTreeSet<String>| !claims.is_disjoint(only_there);
    let stays = claims_of_waiting.iter().all(is_pinned);
    only_there.first().filter(|_| stays).map(String::as_str)
}

/// The required node affinity of the volume.
pub fn required(volume: &PersistentVolume) -> Option<&NodeSelector> {
    volume.spec.as_ref()?.node_affinity.as_ref()?.required.as_ref()
}

fn names_only(term: &NodeSelectorTerm, node: NodeNames<'_>) -> bool {
    requirements(term).any(|requirement| is_node(requirement, node))
}

/// Storage drivers name a node by its hostname label, or by its name in a label of their own.
fn is_node(requirement: &NodeSelectorRequirement, node: NodeNames<'_>) -> bool {
    match requirement.values.as_deref() {
        Some([only]) if requirement.operator == "In" => match requirement.key.as_str() {
            keys::HOSTNAME => only == node.hostname,
            _ => only == node.name,
        },
        _ => false,
    }
}

/// Adds the required node affinity of a volume to a node affinity. The terms of each are alternatives, so each term of
/// one is combined with each term of the other.
pub fn restrict(affinity: &mut NodeAffinity, volume: &NodeSelector) {
    let required = &mut affinity.required_during_scheduling_ignored_during_execution;
    let Some(own) = required.as_mut() else {
        *required = Some(volume.clone());
        return;
    };
    let both = |term: &NodeSelectorTerm| {
        let term = term.clone();
        volume
            .node_selector_terms
            .iter()
            .map(move |other| combine(&term, other))
    };
    own.node_selector_terms = own.node_selector_terms.iter().flat_map(both).collect();
}

/// A term without requirements matches no node. The combination must match no node either, so it stays empty.
fn combine(one: &NodeSelectorTerm, other: &NodeSelectorTerm) -> NodeSelectorTerm {
    if is_empty(one) || is_empty(other) {
        return NodeSelectorTerm::default();
    }
    NodeSelectorTerm {
        match_expressions: concatenated(one.match_expressions.iter().chain(&other.match_expressions)),
        match_fields: concatenated(one.match_fields.iter().chain(&other.match_fields)),
    }
}

fn is_empty(term: &NodeSelectorTerm) -> bool {
    requirements(term).next().is_none()
}

fn requirements(term: &NodeSelectorTerm) -> impl Iterator<Item = &NodeSelectorRequirement> {
    let labels = term.match_expressions.iter().flatten();
    labels.chain(term.match_fields.iter().flatten())
}

/// The requirements of all lists, without duplicates.
fn concatenated<'a, T: Clone + PartialEq + 'a>(lists: impl Iterator<Item = &'a Vec<T>>) -> Option<Vec<T>> {
    let mut all: Vec<T> = Vec::new();
    for requirement in lists.flatten() {
        if !all.contains(requirement) {
            all.push(requirement.clone());
        }
    }
    (!all.is_empty()).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const N1: NodeNames<'_> = NodeNames {
        name: "n1",
        hostname: "n1.internal",
    };

    fn is_only_on_n1(terms: &Value) -> bool {
        let volume = json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}});
        is_only_on(&serde_json::from_value(volume).unwrap(), N1)
    }

    fn term(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
    }

    #[test]
    fn a_volume_that_names_one_node_by_any_label_is_only_on_this_node() {
        let by_hostname = term("kubernetes.io/hostname", "In", &["n1.internal"]);
        let by_own_label = term("topology.example.com/node", "In", &["n1"]);
        let by_field = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]});
        for term in [by_hostname, by_own_label, by_field] {
            assert!(is_only_on_n1(&json!([term])), "{term}");
        }
    }

    #[test]
    fn a_volume_that_names_another_node_is_not_on_this_node() {
        let by_hostname = term("kubernetes.io/hostname", "In", &["n2.internal"]);
        let by_own_label = term("topology.example.com/node", "In", &["n2"]);
        for term in [by_hostname, by_own_label] {
            assert!(!is_only_on_n1(&json!([term])), "{term}");
        }
    }

    #[test]
    fn a_volume_of_a_zone_of_several_nodes_or_without_affinity_is_not_only_on_one_node() {
        let zonal = term("topology.kubernetes.io/zone", "In", &["a"]);
        let either = term("kubernetes.io/hostname", "In", &["n1", "n2"]);
        let not = term("kubernetes.io/hostname", "NotIn", &["n2"]);
        for term in [zonal, either, not] {
            assert!(!is_only_on_n1(&json!([term])), "{term}");
        }
        assert!(!is_only_on_n1(&json!([])));
        assert!(!is_only_on(&PersistentVolume::default(), N1));
    }

    #[test]
    fn a_volume_with_one_term_for_several_nodes_is_not_only_on_one_node() {
        let here = term("kubernetes.io/hostname", "In", &["n1.internal"]);
        let zonal = term("topology.kubernetes.io/zone", "In", &["a"]);
        assert!(!is_only_on_n1(&json!([here, zonal])));
    }

    #[test]
    fn a_run_keeps_the_only_node_of_a_volume_unless_a_pod_waits_that_can_use_another_node() {
        let set = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<BTreeSet<_>>()
        };
        let disks = set(&["disk", "scratch"]);
        let on_disk = set(&["disk", "zonal"]);
        assert_eq!(pin(&disks, &[]), Some("disk"));
        assert_eq!(pin(&disks, &[on_disk.clone(), set(&["scratch"])]), Some("disk"));
        for elsewhere in [set(&[]), set(&["zonal"])] {
            assert_eq!(pin(&disks, &[on_disk.clone(), elsewhere]), None);
        }
        assert_eq!(pin(&set(&[]), &[on_disk]), None);
    }

    fn restricted(own: &Value, volume: &Value) -> Value {
        let selector = |terms: &Value| json!({"nodeSelectorTerms": terms});
        let own = json!({"requiredDuringSchedulingIgnoredDuringExecution": selector(own)});
        let mut affinity = serde_json::from_value(own).unwrap();
        restrict(&mut affinity, &serde_json::from_value(selector(volume)).unwrap());
        let required = affinity.required_during_scheduling_ignored_during_execution;
        serde_json::to_value(required.unwrap().node_selector_terms).unwrap()
    }

    #[test]
    fn each_node_selector_term_of_a_run_is_combined_with_each_term_of_a_volume() {
        let (disk, gpu) = (term("disk", "In", &["ssd"]), term("gpu", "Exists", &["x"]));
        let (west, east) = (term("zone", "In", &["west"]), term("zone", "In", &["east"]));
        let both = |one: &Value, other: &Value| json!({"matchExpressions": [one["matchExpressions"][0], other["matchExpressions"][0]]});
        assert_eq!(
            restricted(&json!([disk, gpu]), &json!([west, east])),
            json!([
                both(&disk, &west),
                both(&disk, &east),
                both(&gpu, &west),
                both(&gpu, &east)
            ])
        );
        assert_eq!(
            restricted(&json!([{}]), &json!([west])),
            json!([{}]),
            "no node at all"
        );
    }

    #[test]
    fn a_run_without_requirements_gets_the_node_affinity_of_its_volume() {
        let west = json!({"nodeSelectorTerms": [term("zone", "In", &["west"])]});
        let west: NodeSelector = serde_json::from_value(west).unwrap();
        let mut affinity = NodeAffinity::default();
        restrict(&mut affinity, &west);
        assert_eq!(
            affinity.required_during_scheduling_ignored_during_execution,
            Some(west)
        );
    }
}
