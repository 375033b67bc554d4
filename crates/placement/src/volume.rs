//! Volumes as far as placement goes: whether one can be used on a single node only.

use crate::keys;
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume};

/// Whether no other node than this one, where the volume is in use, can have it: that of a disk in the node itself. A volume
/// of a zone can be used on a node that is still to come.
pub fn is_only_on(volume: &PersistentVolume, node: &str) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    let terms = affinity
        .and_then(|affinity| affinity.required.as_ref())
        .map(|required| required.node_selector_terms.as_slice())
        .unwrap_or_default();
    // Any of the terms is enough for the scheduler.
    !terms.is_empty() && terms.iter().all(|term| names(term, node))
}

fn names(term: &NodeSelectorTerm, node: &str) -> bool {
    let labels = term.match_expressions.iter().flatten();
    let fields = term.match_fields.iter().flatten();
    labels.chain(fields).any(|requirement| is_one(requirement, node))
}

/// Drivers name a node by its hostname, which need not be its name, or by a label of their own.
fn is_one(requirement: &NodeSelectorRequirement, node: &str) -> bool {
    match requirement.values.as_deref() {
        Some([only]) if requirement.operator == "In" => requirement.key == keys::HOSTNAME || only == node,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn is_only_on_n1(terms: &Value) -> bool {
        let volume = json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}});
        is_only_on(&serde_json::from_value(volume).unwrap(), "n1")
    }

    fn term(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
    }

    #[test]
    fn a_volume_that_names_one_node_is_there_only_whatever_label_its_driver_uses() {
        let by_hostname = term("kubernetes.io/hostname", "In", &["n1.internal"]);
        let by_own_label = term("topology.example.com/node", "In", &["n1"]);
        let by_field = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]});
        for term in [by_hostname, by_own_label, by_field] {
            assert!(is_only_on_n1(&json!([term])), "{term}");
        }
    }

    #[test]
    fn a_volume_of_a_zone_of_several_nodes_or_of_none_can_be_elsewhere() {
        let zonal = term("topology.kubernetes.io/zone", "In", &["a"]);
        let either = term("kubernetes.io/hostname", "In", &["n1", "n2"]);
        let not = term("kubernetes.io/hostname", "NotIn", &["n2"]);
        for term in [zonal, either, not] {
            assert!(!is_only_on_n1(&json!([term])), "{term}");
        }
        assert!(!is_only_on_n1(&json!([])));
        assert!(!is_only_on(&PersistentVolume::default(), "n1"));
    }

    #[test]
    fn one_term_that_leaves_a_choice_is_enough() {
        let here = term("kubernetes.io/hostname", "In", &["n1"]);
        let zonal = term("topology.kubernetes.io/zone", "In", &["a"]);
        assert!(!is_only_on_n1(&json!([here, zonal])));
    }
}
