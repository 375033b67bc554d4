//! Task pods that have no node yet, as they are watched.
//!
//! They are large, since a task's pod carries its scripts, and come several times before they have a node. Nothing
//! is kept of a pod that is bound, so that runs that are done, or busy, weigh nothing here.

use crate::conditions::{Condition, unschedulable};
use crate::index::{Index, Reduced};
use crate::placeholders::{Of, of};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use placement::keys;
use placement::names::RunKey;
use placement::placeholder::wake::Wake;
use placement::plan::WaitingPod;
use placement::resources::Resources;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// Unbound task pods, by group and name. The run that Tekton made one for is, for a nested run's pod, not the one
/// whose group it is in.
pub(crate) type WaitingPods = Index<PodKey, Of<WaitingPod>>;

/// A pod of a group, sorted by group. Who may make pods in one namespace has no say over the runs of another, so that
/// a group is one namespace's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodKey {
    pub(crate) namespace: String,
    pub(crate) group: String,
    name: String,
}

/// A pod of a task.
#[derive(kube::Resource, Clone, Debug, Default, Deserialize)]
#[resource(inherit = Pod)]
#[serde(default)]
pub(crate) struct WatchedTask {
    #[serde(deserialize_with = "tekton::metadata::read")]
    metadata: ObjectMeta,
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
    tolerations: Option<Vec<Toleration>>,
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

/// A pod of a group, reduced: it matters as long as it has no node and may still get one.
pub(crate) fn pod(pod: &WatchedTask) -> Option<Reduced<PodKey, Of<WaitingPod>>> {
    let key = PodKey {
        namespace: pod.metadata.namespace.clone()?,
        group: pod.labels().get(keys::GROUP)?.clone(),
        name: pod.metadata.name.clone()?,
    };
    let is_bound = pod.spec.node_name.as_deref().is_some_and(|node| !node.is_empty());
    if is_bound || pod.metadata.deletion_timestamp.is_some() {
        return Some((key, None));
    }
    let waiting = WaitingPod {
        name: key.name.clone(),
        requests: Resources::of_pod(&pod.spec),
        unschedulable: unschedulable(&pod.status.conditions),
        tolerations: pod.spec.tolerations.clone().unwrap_or_default(),
        woken: pod.labels().get(keys::WOKEN).and_then(|label| Wake::read(label)),
        relaxed: pod.annotations().contains_key(keys::RELAXED),
    };
    Some((key, Some(of(&pod.metadata, waiting))))
}

impl PodKey {
    fn is_beside(&self, other: &Self) -> bool {
        (&self.namespace, &self.group) == (&other.namespace, &other.group)
    }
}

/// The task pods of a run's group that wait for a node.
pub(crate) fn waiting_in(pods: &WaitingPods, run: &RunKey) -> Vec<WaitingPod> {
    let from = PodKey {
        namespace: run.namespace.clone(),
        group: run.uid.clone(),
        name: String::new(),
    };
    let known = pods.read();
    let members = known.range(&from..).take_while(|(key, _)| key.is_beside(&from));
    members.map(|(_, waiting)| waiting.it.clone()).collect()
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
        tolerations: asks.tolerations,
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
#[path = "waiting_pods_tests.rs"]
mod tests;

#[cfg(test)]
mod decoding {
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
        let read: WatchedTask = serde_json::from_value(document).unwrap();
        assert_eq!(
            Resources::of_pod(&read.spec),
            Resources::of_pod(&whole.spec.unwrap())
        );
        assert_eq!(Resources::of_pod(&read.spec).to_string(), "cpu=6500m, memory=1Gi");
    }
}
