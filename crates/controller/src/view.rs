//! Read views of placeholders: what the plan needs of a StatefulSet and of its pod, and nothing else.
//!
//! Never written back. Ten thousand runs may each have one, so they are pruned before they are stored.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::runtime::reflector::ObjectRef;
use placement::keys;
use placement::plan;
use serde::Deserialize;
use std::str::FromStr;
use tekton::PipelineRun;

/// A placeholder StatefulSet as it is watched.
#[derive(kube::Resource, Clone, Debug, Default, Deserialize)]
#[resource(inherit = StatefulSet)]
#[serde(default)]
pub(crate) struct PlaceholderSet {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: SetSpec,
    pub(crate) status: SetStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SetSpec {
    replicas: Option<i32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SetStatus {
    observed_generation: Option<i64>,
}

/// A placeholder pod as it is watched.
#[derive(kube::Resource, Clone, Debug, Default, Deserialize)]
#[resource(inherit = Pod)]
#[serde(default)]
pub(crate) struct PlaceholderPod {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: PodSpec,
    pub(crate) status: PodStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PodSpec {
    node_name: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodStatus {
    phase: Option<String>,
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    message: Option<String>,
}

impl PlaceholderSet {
    /// Drops what the plan never reads.
    pub(crate) fn prune(&mut self) {
        prune(&mut self.metadata);
    }

    /// Its controller has tried to make the pod at least once. A controller that is busy, as one with the usual
    /// client limits is for a minute when hundreds of runs come at once, has not, and is not helped by more work.
    pub(crate) fn is_taken_up(&self) -> bool {
        self.status
            .observed_generation
            .is_some_and(|generation| generation > 0)
    }

    /// The placeholder as the plan sees it; `None` without a UID, which no object of an API server lacks.
    pub(crate) fn facts(&self, run_uid: &str) -> Option<plan::Placeholder> {
        Some(plan::Placeholder {
            uid: self.metadata.uid.clone()?,
            owned: is_owned(&self.metadata, run_uid),
            deleting: self.metadata.deletion_timestamp.is_some(),
            // The API server fills it in; its default is 1.
            replicas: self.spec.replicas.unwrap_or(1),
            strategy: label(&self.metadata, keys::STRATEGY),
            isolation: label(&self.metadata, keys::ISOLATION),
        })
    }
}

impl PlaceholderPod {
    /// Drops what the plan never reads.
    pub(crate) fn prune(&mut self) {
        prune(&mut self.metadata);
        self.status.conditions.retain(Condition::is_unscheduled);
        self.status.conditions.shrink_to_fit();
    }

    /// The pod as the plan sees it.
    pub(crate) fn facts(&self, run_uid: &str) -> Option<plan::PlaceholderPod> {
        Some(plan::PlaceholderPod {
            uid: self.metadata.uid.clone()?,
            node: self.spec.node_name.clone().filter(|name| !name.is_empty()),
            ending: self.metadata.deletion_timestamp.is_some() || self.has_ended(),
            unschedulable: self.unschedulable(),
            adopted: is_owned(&self.metadata, run_uid),
        })
    }

    fn has_ended(&self) -> bool {
        matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"))
    }

    fn unschedulable(&self) -> Option<String> {
        let condition = self
            .status
            .conditions
            .iter()
            .find(|condition| condition.is_unscheduled())?;
        condition.message.clone()
    }
}

impl Condition {
    fn is_unscheduled(&self) -> bool {
        self.type_ == "PodScheduled" && self.status == "False"
    }
}

/// The run that a placeholder, set or pod, belongs to: by name, as the caches are keyed.
pub(crate) fn run_of(metadata: &ObjectMeta) -> Option<ObjectRef<PipelineRun>> {
    let name = metadata.labels.as_ref()?.get(keys::TEKTON_PIPELINE_RUN)?;
    Some(ObjectRef::new(name).within(metadata.namespace.as_deref()?))
}

/// The UID of that run.
pub(crate) fn group_of(metadata: &ObjectMeta) -> Option<&str> {
    metadata.labels.as_ref()?.get(keys::GROUP).map(String::as_str)
}

fn prune(metadata: &mut ObjectMeta) {
    let kept = [
        keys::GROUP,
        keys::STRATEGY,
        keys::ISOLATION,
        keys::TEKTON_PIPELINE_RUN,
    ];
    metadata.managed_fields = None;
    metadata.annotations = None;
    metadata.generate_name = None;
    if let Some(labels) = &mut metadata.labels {
        labels.retain(|key, _| kept.contains(&key.as_str()));
    }
}

fn is_owned(metadata: &ObjectMeta, uid: &str) -> bool {
    owners(metadata).iter().any(|owner| owner.uid == uid)
}

fn owners(metadata: &ObjectMeta) -> &[OwnerReference] {
    metadata.owner_references.as_deref().unwrap_or_default()
}

fn label<T: FromStr>(metadata: &ObjectMeta, key: &str) -> Option<T> {
    metadata.labels.as_ref()?.get(key)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use placement::strategy::{Isolation, Strategy};
    use serde_json::{Value, json};

    fn metadata() -> Value {
        json!({
            "name": "custom-pod-affinity-0123456789", "namespace": "ns", "uid": "s1",
            "labels": {
                keys::GROUP: "u1", keys::STRATEGY: "isolateAlways", keys::ISOLATION: "cluster-all",
                keys::TEKTON_PIPELINE_RUN: "build", keys::COMPONENT: keys::PLACEHOLDER,
            },
            "annotations": {"a": "b"},
            "managedFields": [{"manager": "m"}],
            "ownerReferences": [
                {"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "build", "uid": "u1"},
            ],
        })
    }

    fn set(changes: &Value) -> PlaceholderSet {
        let mut set = json!({"metadata": metadata(), "spec": {"replicas": 1, "template": {}}, "status": {}});
        json_patch::merge(&mut set, changes);
        let mut set: PlaceholderSet = serde_json::from_value(set).unwrap();
        set.prune();
        set
    }

    fn pod(changes: &Value) -> plan::PlaceholderPod {
        let mut pod = json!({"metadata": metadata(), "spec": {}, "status": {"phase": "Pending"}});
        json_patch::merge(&mut pod, changes);
        let mut pod: PlaceholderPod = serde_json::from_value(pod).unwrap();
        pod.prune();
        pod.facts("u1").unwrap()
    }

    #[test]
    fn a_placeholder_of_the_run_is_seen_with_its_strategy() {
        let expected = plan::Placeholder {
            uid: "s1".into(),
            owned: true,
            deleting: false,
            replicas: 1,
            strategy: Some(Strategy::IsolateAlways),
            isolation: Some(Isolation::default()),
        };
        assert_eq!(set(&json!({})).facts("u1"), Some(expected));
    }

    #[test]
    fn a_placeholder_of_another_run_or_with_odd_labels_is_told_apart() {
        let odd = set(&json!({"metadata": {"labels": {keys::STRATEGY: "?"}}, "spec": null}))
            .facts("u2")
            .unwrap();
        assert!(!odd.owned);
        assert_eq!((odd.strategy, odd.replicas), (None, 1));
    }

    #[test]
    fn a_placeholder_is_taken_up_once_its_controller_has_tried() {
        assert!(!set(&json!({})).is_taken_up());
        assert!(!set(&json!({"status": {"observedGeneration": 0}})).is_taken_up());
        assert!(set(&json!({"status": {"observedGeneration": 1}})).is_taken_up());
    }

    #[test]
    fn a_placeholder_leads_to_its_run() {
        let set = set(&json!({}));
        assert_eq!(run_of(&set.metadata), Some(ObjectRef::new("build").within("ns")));
        assert_eq!(group_of(&set.metadata), Some("u1"));
    }

    #[test]
    fn what_is_never_read_is_not_kept() {
        let metadata = set(&json!({})).metadata;
        assert!(metadata.annotations.is_none() && metadata.managed_fields.is_none());
        assert!(!metadata.labels.unwrap().contains_key(keys::COMPONENT));
    }

    #[test]
    fn a_pod_is_seen_with_its_node() {
        assert_eq!(pod(&json!({})).node, None);
        assert_eq!(pod(&json!({"spec": {"nodeName": ""}})).node, None);
        assert_eq!(
            pod(&json!({"spec": {"nodeName": "n1"}})).node.as_deref(),
            Some("n1")
        );
    }

    #[test]
    fn a_pod_that_is_deleted_or_finished_is_ending() {
        assert!(!pod(&json!({})).ending);
        assert!(pod(&json!({"status": {"phase": "Failed"}})).ending);
        assert!(pod(&json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})).ending);
    }

    #[test]
    fn the_schedulers_message_is_kept_only_while_there_is_no_node() {
        let condition = |status: &str| {
            json!({"status": {"conditions": [
                {"type": "Ready", "status": "False", "message": "no"},
                {"type": "PodScheduled", "status": status, "message": "0/3 nodes"},
            ]}})
        };
        assert_eq!(
            pod(&condition("False")).unschedulable.as_deref(),
            Some("0/3 nodes")
        );
        assert_eq!(pod(&condition("True")).unschedulable, None);
    }
}
