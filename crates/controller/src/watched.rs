//! Nodes and task pods as they are watched: of Kubernetes' own types only what is read.
//!
//! These come often and are large: a node tells of all its images with each heartbeat, a task's pod carries its scripts
//! and comes several times before it has a node. What is skipped while decoding costs next to nothing.

use crate::view::{self, Condition};
use k8s_openapi::api::core::v1::{
    Container, Node, NodeCondition, NodeSpec, NodeStatus, Pod, PodSpec, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use placement::node::NodeFacts;
use placement::plan::Unschedulable;
use placement::resources::Resources;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// A node.
#[derive(kube::Resource, Clone, Debug, Default, Deserialize)]
#[resource(inherit = Node)]
#[serde(default)]
pub(crate) struct WatchedNode {
    #[serde(deserialize_with = "tekton::metadata::read")]
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

/// A pod of a task.
#[derive(kube::Resource, Clone, Debug, Default, Deserialize)]
#[resource(inherit = Pod)]
#[serde(default)]
pub(crate) struct WatchedPod {
    #[serde(deserialize_with = "tekton::metadata::read")]
    pub(crate) metadata: ObjectMeta,
    #[serde(deserialize_with = "asks")]
    spec: PodSpec,
    status: PodState,
}

/// What a pod asks for, and where it is.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Asks {
    node_name: Option<String>,
    containers: Vec<ContainerAsks>,
    init_containers: Option<Vec<ContainerAsks>>,
    overhead: Option<BTreeMap<String, Quantity>>,
    resources: Option<ResourceRequirements>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ContainerAsks {
    resources: Option<ResourceRequirements>,
    restart_policy: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct PodState {
    conditions: Vec<Condition>,
}

impl WatchedNode {
    /// `None` without a name, which no node of an API server lacks.
    pub(crate) fn facts(&self) -> Option<NodeFacts> {
        NodeFacts::of(&Node {
            metadata: ObjectMeta {
                name: self.metadata.name.clone(),
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

impl WatchedPod {
    pub(crate) fn is_bound(&self) -> bool {
        self.spec
            .node_name
            .as_deref()
            .is_some_and(|node| !node.is_empty())
    }

    /// What it asks a scheduler for.
    pub(crate) fn requests(&self) -> Resources {
        Resources::of_pod(&self.spec)
    }

    pub(crate) fn unschedulable(&self) -> Option<Unschedulable> {
        view::unschedulable(&self.status.conditions)
    }
}

fn asks<'de, D: Deserializer<'de>>(from: D) -> Result<PodSpec, D::Error> {
    let asks = Asks::deserialize(from)?;
    let containers = |asks: Vec<ContainerAsks>| asks.into_iter().map(Container::from).collect();
    Ok(PodSpec {
        node_name: asks.node_name,
        containers: containers(asks.containers),
        init_containers: asks.init_containers.map(containers),
        overhead: asks.overhead,
        resources: asks.resources,
        ..PodSpec::default()
    })
}

impl From<ContainerAsks> for Container {
    fn from(asks: ContainerAsks) -> Self {
        Self {
            resources: asks.resources,
            restart_policy: asks.restart_policy,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_asks_for_what_it_does_as_kubernetes_own_type() {
        let asks = |cpu: &str| json!({"requests": {"cpu": cpu}});
        let document = json!({
            "metadata": {"name": "p"},
            "spec": {
                "containers": [{"name": "step", "image": "i", "resources": asks("1")}, {"name": "plain"}],
                "initContainers": [
                    {"name": "sidecar", "restartPolicy": "Always", "resources": asks("2")},
                    {"name": "prepare", "resources": asks("4")},
                ],
                "overhead": {"cpu": "500m"},
                "resources": {"requests": {"memory": "1Gi"}},
            },
        });
        let whole: Pod = serde_json::from_value(document.clone()).unwrap();
        let read: WatchedPod = serde_json::from_value(document).unwrap();
        assert_eq!(read.requests(), Resources::of_pod(&whole.spec.unwrap()));
        assert_eq!(read.requests().to_string(), "cpu=6500m, memory=1Gi");
    }

    #[test]
    fn a_node_is_what_it_is_as_kubernetes_own_type() {
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
        assert_eq!(read.facts(), NodeFacts::of(&whole));
        assert!(
            read.facts()
                .is_some_and(|facts| facts.ready && facts.unschedulable)
        );
    }
}
