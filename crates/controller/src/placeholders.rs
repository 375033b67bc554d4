//! Placeholders as they are watched: StatefulSets and their pods, of which only what decisions read is decoded.
//!
//! Ten thousand runs may each have one, so each is reduced at once.

use crate::conditions::{Condition, INFEASIBLE, unschedulable};
use crate::index::Reduced;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, ResourceRequirements, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::reflector::ObjectRef;
use placement::keys;
use placement::names::PlaceholderName;
use placement::plan::{Make, Placeholder, PlaceholderPod, Resize, is_pinned};
use placement::resources::Resources;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::str::FromStr;
use tekton::PipelineRun;

/// Namespace and name of an object.
pub(crate) type ObjectKey = (String, String);

/// An object of a run, reduced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Of<T> {
    /// The run's name, as Tekton's label has it.
    pub(crate) run: Option<String>,
    pub(crate) it: T,
}

/// A placeholder's StatefulSet.
#[derive(kube::Resource, Clone, Debug, Default, Deserialize)]
#[resource(inherit = StatefulSet)]
#[serde(default)]
pub(crate) struct WatchedSet {
    #[serde(deserialize_with = "tekton::metadata::read")]
    metadata: ObjectMeta,
    spec: SetSpec,
    status: SetStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SetSpec {
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
struct SetStatus {
    observed_generation: Option<i64>,
}

/// Its pod.
#[derive(kube::Resource, Clone, Debug, Default, Deserialize)]
#[resource(inherit = Pod)]
#[serde(default)]
pub(crate) struct WatchedPod {
    #[serde(deserialize_with = "tekton::metadata::read")]
    metadata: ObjectMeta,
    spec: PodSpec,
    status: PodStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    node_name: Option<String>,
    containers: Vec<Container>,
    tolerations: Vec<Toleration>,
    volumes: Vec<Volume>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Volume {
    persistent_volume_claim: Option<IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Container {
    name: String,
    resources: ResourceRequirements,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct PodStatus {
    phase: Option<String>,
    conditions: Vec<Condition>,
    /// Kubernetes 1.32 and older say here what newer ones say in a condition.
    resize: Option<String>,
}

/// A StatefulSet, reduced.
pub(crate) fn set(set: &WatchedSet) -> Option<Reduced<ObjectKey, Of<Placeholder>>> {
    let WatchedSet {
        metadata,
        spec,
        status,
    } = set;
    let key = key(metadata)?;
    let template = spec.template.metadata.as_ref();
    let template = template.and_then(|metadata| metadata.annotations.as_ref());
    let placeholder = Placeholder {
        uid: metadata.uid.clone()?,
        owned: is_owned(metadata, &key.1),
        deleting: metadata.deletion_timestamp.is_some(),
        // The API server fills it in; its default is 1.
        replicas: spec.replicas.unwrap_or(1),
        generation: metadata.generation.unwrap_or_default(),
        taken_up: status
            .observed_generation
            .is_some_and(|generation| generation > 0),
        strategy: label(metadata, keys::STRATEGY),
        isolation: label(metadata, keys::ISOLATION),
        pinned: template.is_some_and(is_pinned),
        left: template
            .and_then(|annotations| annotations.get(keys::LEFT))
            .filter(|node| !node.is_empty())
            .cloned(),
    };
    Some((key, Some(of(metadata, placeholder))))
}

/// A placeholder's pod, reduced.
pub(crate) fn pod(pod: &WatchedPod) -> Option<Reduced<ObjectKey, Of<PlaceholderPod>>> {
    let WatchedPod {
        metadata,
        spec,
        status,
    } = pod;
    let key = key(metadata)?;
    let node = spec.node_name.clone().filter(|name| !name.is_empty());
    let reduced = PlaceholderPod {
        uid: metadata.uid.clone()?,
        node,
        ending: metadata.deletion_timestamp.is_some() || has_ended(status.phase.as_deref()),
        unschedulable: unschedulable(&status.conditions),
        tolerations: spec.tolerations.clone(),
        adopted: is_owned(metadata, key.1.trim_end_matches("-0")),
        make: make(pod),
    };
    Some((key, Some(of(metadata, reduced))))
}

/// Whether a pod of this phase runs no more.
pub(crate) fn has_ended(phase: Option<&str>) -> bool {
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// The run of this name, if there is one to be named.
pub(crate) fn run_of<T>(namespace: &str, of: &Of<T>) -> Option<ObjectRef<PipelineRun>> {
    of.run.as_ref().map(|name| ObjectRef::new(name).within(namespace))
}

/// An object together with the name of its run.
pub(crate) fn of<T>(metadata: &ObjectMeta, it: T) -> Of<T> {
    Of {
        run: label(metadata, keys::TEKTON_PIPELINE_RUN),
        it,
    }
}

fn make(pod: &WatchedPod) -> Make {
    let none = BTreeMap::new();
    let annotations = pod.metadata.annotations.as_ref().unwrap_or(&none);
    let mut containers = pod.spec.containers.iter();
    let own = containers.find(|container| container.name == keys::PLACEHOLDER);
    let requests = own.and_then(|container| container.resources.requests.as_ref());
    let mut volumes = pod.spec.volumes.iter();
    let make = Make::read(
        annotations,
        requests.map(Resources::read).unwrap_or_default(),
        resize(&pod.status),
    );
    Make {
        mounts: volumes.any(|volume| volume.persistent_volume_claim.is_some()),
        ..make
    }
}

fn resize(status: &PodStatus) -> Resize {
    let infeasible = status.conditions.iter().any(Condition::is_infeasible_resize);
    if infeasible || status.resize.as_deref() == Some(INFEASIBLE) {
        Resize::Refused
    } else {
        Resize::Possible
    }
}

fn key(metadata: &ObjectMeta) -> Option<ObjectKey> {
    Some((metadata.namespace.clone()?, metadata.name.clone()?))
}

/// Whether a run owns it that gives its placeholder this name, which is made from the run's UID.
fn is_owned(metadata: &ObjectMeta, name: &str) -> bool {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    owners
        .iter()
        .any(|owner| PlaceholderName::of_uid(&owner.uid).as_str() == name)
}

fn label<T: FromStr>(metadata: &ObjectMeta, key: &str) -> Option<T> {
    metadata.labels.as_ref()?.get(key)?.parse().ok()
}

#[cfg(test)]
#[path = "placeholders_tests.rs"]
mod tests;
