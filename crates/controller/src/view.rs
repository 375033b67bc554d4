//! Read views of placeholders: what the plan needs of a StatefulSet and of its pod, and nothing else.
//!
//! Never written back. Ten thousand runs may each have one, so they are pruned before they are stored.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::runtime::reflector::ObjectRef;
use placement::keys;
use placement::plan::{self, Make, Resize, Unschedulable, is_pinned};
use placement::resources::Resources;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::str::FromStr;
use tekton::PipelineRun;

/// A placeholder StatefulSet as it is watched.
#[derive(kube::Resource, Clone, Debug, Default, Deserialize)]
#[resource(inherit = StatefulSet)]
#[serde(default)]
pub(crate) struct PlaceholderSet {
    #[serde(deserialize_with = "tekton::metadata::read")]
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: SetSpec,
    pub(crate) status: SetStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SetSpec {
    replicas: Option<i32>,
    template: Template,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Template {
    metadata: Option<ObjectMeta>,
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
    #[serde(deserialize_with = "tekton::metadata::read")]
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: PodSpec,
    pub(crate) status: PodStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PodSpec {
    node_name: Option<String>,
    containers: Vec<Container>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Container {
    name: String,
    resources: ResourceRequirements,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodStatus {
    phase: Option<String>,
    conditions: Vec<Condition>,
    /// Kubernetes 1.32 and older say here what newer ones say in a condition.
    resize: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    reason: Option<String>,
    message: Option<String>,
    last_transition_time: Option<Time>,
}

impl PlaceholderSet {
    /// Drops what the plan never reads.
    pub(crate) fn prune(&mut self) {
        prune(&mut self.metadata);
        let template = self.spec.template.metadata.take().unwrap_or_default();
        let annotations = template.annotations.filter(is_pinned);
        self.spec.template.metadata = annotations.map(|annotations| ObjectMeta {
            annotations: Some(own(annotations)),
            ..ObjectMeta::default()
        });
    }

    fn is_pinned(&self) -> bool {
        let template = self.spec.template.metadata.as_ref();
        template
            .and_then(|metadata| metadata.annotations.as_ref())
            .is_some_and(is_pinned)
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
            generation: self.metadata.generation.unwrap_or_default(),
            strategy: label(&self.metadata, keys::STRATEGY),
            isolation: label(&self.metadata, keys::ISOLATION),
            pinned: self.is_pinned(),
        })
    }
}

impl PlaceholderPod {
    /// Drops what the plan never reads.
    pub(crate) fn prune(&mut self) {
        prune(&mut self.metadata);
        self.status.conditions.retain(Condition::is_read);
        self.status.conditions.shrink_to_fit();
        self.spec
            .containers
            .retain(|container| container.name == keys::PLACEHOLDER);
        self.spec.containers.shrink_to_fit();
    }

    /// The node it is bound to.
    pub(crate) fn node(&self) -> Option<&str> {
        self.spec.node_name.as_deref().filter(|name| !name.is_empty())
    }

    /// The pod as the plan sees it.
    pub(crate) fn facts(&self, run_uid: &str) -> Option<plan::PlaceholderPod> {
        Some(plan::PlaceholderPod {
            uid: self.metadata.uid.clone()?,
            node: self.node().map(str::to_owned),
            ending: self.metadata.deletion_timestamp.is_some() || self.has_ended(),
            unschedulable: unschedulable(&self.status.conditions),
            adopted: is_owned(&self.metadata, run_uid),
            make: self.make(),
        })
    }

    fn make(&self) -> Make {
        let none = BTreeMap::new();
        let annotations = self.metadata.annotations.as_ref().unwrap_or(&none);
        Make::read(annotations, self.requests(), self.resize())
    }

    fn requests(&self) -> Resources {
        let own = self
            .spec
            .containers
            .iter()
            .find(|container| container.name == keys::PLACEHOLDER);
        let requests = own.and_then(|container| container.resources.requests.as_ref());
        requests.map(Resources::read).unwrap_or_default()
    }

    fn resize(&self) -> Resize {
        let infeasible = self.status.conditions.iter().any(Condition::is_infeasible_resize);
        if infeasible || self.status.resize.as_deref() == Some(INFEASIBLE) {
            Resize::Refused
        } else {
            Resize::Possible
        }
    }

    fn has_ended(&self) -> bool {
        matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"))
    }
}

/// What a kubelet says of a resize that it will never carry out.
const INFEASIBLE: &str = "Infeasible";

impl Condition {
    fn is_read(&self) -> bool {
        self.is_unschedulable() || self.is_infeasible_resize()
    }

    fn is_unschedulable(&self) -> bool {
        self.type_ == "PodScheduled"
            && self.status == "False"
            && self.reason.as_deref() == Some("Unschedulable")
    }

    fn is_infeasible_resize(&self) -> bool {
        self.type_ == "PodResizePending" && self.reason.as_deref() == Some(INFEASIBLE)
    }
}

/// That the scheduler finds no node for a pod, and since when.
pub(crate) fn unschedulable(conditions: &[Condition]) -> Option<Unschedulable> {
    let condition = conditions.iter().find(|condition| condition.is_unschedulable())?;
    Some(Unschedulable {
        message: condition.message.clone().unwrap_or_default(),
        since: condition
            .last_transition_time
            .as_ref()
            .map_or(Timestamp::UNIX_EPOCH, |time| time.0),
    })
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
    metadata.annotations = metadata
        .annotations
        .take()
        .map(own)
        .filter(|annotations| !annotations.is_empty());
    if let Some(labels) = &mut metadata.labels {
        labels.retain(|key, _| kept.contains(&key.as_str()));
    }
}

/// The annotations by which we mark how a placeholder was made.
fn own(mut annotations: BTreeMap<String, String>) -> BTreeMap<String, String> {
    annotations.retain(|key, _| [keys::RESERVE, keys::PINNED].contains(&key.as_str()));
    annotations
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
#[path = "view_tests.rs"]
mod tests;
