//! The watch of nodes. Each heartbeat delivers the list of all images on the node; skipping unused fields while decoding costs
//! almost nothing.

use crate::index::{Index, Reduced};
use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeSpec, NodeStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use placement::keys;
use placement::node::NodeFacts;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// All nodes, by name.
pub(crate) type Nodes = Index<String, Arc<NodeFacts>>;

/// A node, with the fields that decisions read.
#[derive(kube::Resource, Clone, Debug, Default, Deserialize)]
#[resource(inherit = Node)]
#[serde(default)]
pub(crate) struct WatchedNode {
    #[serde(deserialize_with = "tekton::metadata::read_node")]
    metadata: ObjectMeta,
    spec: Option<NodeSpec>,
    status: NodeState,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct NodeState {
    conditions: Option<Vec<NodeCondition>>,
    allocatable: Option<BTreeMap<String, Quantity>>,
}

/// Reduces a node.
pub(crate) fn node(node: &WatchedNode) -> Option<Reduced<String, Arc<NodeFacts>>> {
    let facts = node.facts()?;
    Some((facts.name.clone(), Some(Arc::new(facts))))
}

impl WatchedNode {
    /// The label `kubernetes.io/hostname`, by which volumes refer to the node.
    pub(crate) fn hostname(&self) -> Option<String> {
        self.metadata.labels.as_ref()?.get(keys::HOSTNAME).cloned()
    }

    /// The facts that decisions read; `None` without a name. Nodes from the API server always have a name.
    pub(crate) fn facts(&self) -> Option<NodeFacts> {
        NodeFacts::from_node(&Node {
            metadata: ObjectMeta {
                name: self.metadata.name.clone(),
                labels: self.metadata.labels.clone(),
                ..ObjectMeta::default()
            },
            spec: self.spec.clone(),
            status: Some(NodeStatus {
                conditions: self.status.conditions.clone(),
                allocatable: self.status.allocatable.clone(),
                ..NodeStatus::default()
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_view_of_a_node_has_the_same_facts_as_the_type_of_kubernetes() {
        let document = json!({
            "metadata": {"name": "n"},
            "spec": {"unschedulable": true, "taints": [{"key": "k", "effect": "NoSchedule"}], "podCIDR": "10.0.0.0/24"},
            "status": {
                "allocatable": {"cpu": "8"}, "images": [{"names": ["a"], "sizeBytes": 1}],
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        let whole: Node = serde_json::from_value(document.clone()).unwrap();
        let read: WatchedNode = serde_json::from_value(document).unwrap();
        assert_eq!(read.facts(), NodeFacts::from_node(&whole));
        assert!(
            read.facts()
                .is_some_and(|facts| facts.ready && facts.unschedulable)
        );
    }
}
