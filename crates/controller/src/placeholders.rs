//! The watches of placeholders: StatefulSets and their pods. The decoder keeps only the fields that decisions read.
//!
//! Ten thousand runs may each have a placeholder, so each object is reduced at once.

use crate::index::Reduced;
use crate::pods::PodView;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::reflector::ObjectRef;
use placement::keys;
use placement::names::PlaceholderName;
use placement::placeholder::spec::Spec;
use placement::plan::{Placeholder, PlaceholderPod, Resize, Shape};
use placement::warm::WarmNodes;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::str::FromStr;
use tekton::PipelineRun;

/// Namespace and name of an object.
pub(crate) type ObjectKey = (String, String);

/// A reduced object that belongs to a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OfRun<T> {
    /// The run's name, from Tekton's label.
    pub(crate) run: Option<String>,
    pub(crate) it: T,
}

/// A placeholder's StatefulSet.
#[derive(kube::Resource, Clone, Debug, Default, Deserialize)]
#[resource(inherit = StatefulSet)]
#[serde(default)]
pub(crate) struct WatchedStatefulSet {
    #[serde(deserialize_with = "tekton::metadata::read")]
    metadata: ObjectMeta,
    spec: SetSpec,
    status: SetStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SetSpec {
    replicas: Option<i32>,
    template: PodView,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SetStatus {
    observed_generation: Option<i64>,
}

/// Reduces a placeholder's StatefulSet.
pub(crate) fn set(set: &WatchedStatefulSet) -> Option<Reduced<ObjectKey, OfRun<Placeholder>>> {
    let WatchedStatefulSet {
        metadata,
        spec,
        status,
    } = set;
    let key = key(metadata)?;
    let placeholder = Placeholder {
        uid: metadata.uid.clone()?,
        owned: is_owned(metadata, &key.1),
        deleting: metadata.deletion_timestamp.is_some(),
        generation: metadata.generation.unwrap_or_default(),
        observed: status
            .observed_generation
            .is_some_and(|generation| generation > 0),
        strategy: label(metadata, keys::STRATEGY),
        isolation: label(metadata, keys::ISOLATION),
        warm_nodes: warm_nodes(metadata),
        spec: wanted_pod(spec),
    };
    Some((key, Some(of(metadata, placeholder))))
}

fn wanted_pod(SetSpec { replicas, template }: &SetSpec) -> Spec {
    let annotation = |key| template.metadata.annotations.as_ref()?.get(key).cloned();
    let node = annotation(keys::PINNED).filter(|node| !node.is_empty());
    Spec {
        affinity: Spec::unpinned(template.node_affinity(), node.as_deref()),
        // The API server sets the field; its default is 1.
        replicas: replicas.unwrap_or(1),
        size: template.container_requests(keys::PLACEHOLDER),
        reserve: annotation(keys::RESERVE),
        within_limits: annotation(keys::WITHIN_LIMITS).is_some(),
        node,
        previous_node: annotation(keys::LEFT),
        tolerations: template.spec.tolerations.clone(),
        claims: template.claims().map(str::to_owned).collect(),
        images: template.images().map(str::to_owned).collect(),
    }
}

/// Reduces a placeholder's pod.
pub(crate) fn pod(pod: &PodView) -> Option<Reduced<ObjectKey, OfRun<PlaceholderPod>>> {
    let key = key(&pod.metadata)?;
    let reduced = PlaceholderPod {
        uid: pod.metadata.uid.clone()?,
        node: pod.node().map(str::to_owned),
        ending: pod.is_deleting() || pod.has_ended(),
        unschedulable: pod.unschedulable(),
        tolerations: pod.spec.tolerations.clone(),
        adopted: is_owned(&pod.metadata, key.1.trim_end_matches("-0")),
        shape: shape(pod),
    };
    Some((key, Some(of(&pod.metadata, reduced))))
}

/// A reference to the object's run, if the object has Tekton's label.
pub(crate) fn run_of<T>(namespace: &str, of: &OfRun<T>) -> Option<ObjectRef<PipelineRun>> {
    of.run.as_ref().map(|name| ObjectRef::new(name).within(namespace))
}

/// Adds the name of the run to a reduced object.
pub(crate) fn of<T>(metadata: &ObjectMeta, it: T) -> OfRun<T> {
    OfRun {
        run: label(metadata, keys::TEKTON_PIPELINE_RUN),
        it,
    }
}

fn shape(pod: &PodView) -> Shape {
    let none = BTreeMap::new();
    let annotations = pod.metadata.annotations.as_ref().unwrap_or(&none);
    let resize = if pod.cannot_be_resized() {
        Resize::Refused
    } else {
        Resize::Possible
    };
    Shape {
        mounts: pod.claims().next().is_some(),
        ..Shape::from_annotations(annotations, pod.container_requests(keys::PLACEHOLDER), resize)
    }
}

fn key(metadata: &ObjectMeta) -> Option<ObjectKey> {
    Some((metadata.namespace.clone()?, metadata.name.clone()?))
}

/// Whether an owner is the run whose placeholder has this name. The name is derived from the run's UID.
fn is_owned(metadata: &ObjectMeta, name: &str) -> bool {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    owners
        .iter()
        .any(|owner| PlaceholderName::of_uid(&owner.uid).as_str() == name)
}

fn warm_nodes(metadata: &ObjectMeta) -> Option<WarmNodes> {
    let annotation = metadata.annotations.as_ref()?.get(keys::WARM_NODES)?;
    Some(WarmNodes::parse(annotation))
}

fn label<T: FromStr>(metadata: &ObjectMeta, key: &str) -> Option<T> {
    metadata.labels.as_ref()?.get(key)?.parse().ok()
}

#[cfg(test)]
mod tests;
