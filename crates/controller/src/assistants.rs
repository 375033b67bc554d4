//! Tekton's assistants of a run: they leave a node with its placeholder, and follow with it.
//!
//! Tekton makes them for runs that mount a PVC, unless its `coschedule` is disabled, and no task of an enrolled run
//! hangs on them; see `placement::inject`. But as long as one is on the old node the scheduler sends the tasks there.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use placement::plan::Assistant;
use serde::Deserialize;

/// A StatefulSet of an assistant.
#[derive(kube::Resource, Clone, Debug, Default, Deserialize)]
#[resource(inherit = StatefulSet)]
#[serde(default)]
pub(crate) struct ListedSet {
    #[serde(deserialize_with = "tekton::metadata::read")]
    metadata: ObjectMeta,
    spec: Spec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    replicas: Option<i32>,
}

/// Its pod.
#[derive(kube::Resource, Clone, Debug, Default, Deserialize)]
#[resource(inherit = Pod)]
#[serde(default)]
pub(crate) struct ListedPod {
    #[serde(deserialize_with = "tekton::metadata::read")]
    metadata: ObjectMeta,
}

/// A StatefulSet, reduced.
pub(crate) fn listed_set(set: ListedSet) -> Option<Assistant> {
    Some(Assistant::Set {
        name: set.metadata.name?,
        uid: set.metadata.uid?,
        replicas: set.spec.replicas?,
    })
}

/// A pod, reduced.
pub(crate) fn listed_pod(pod: ListedPod) -> Option<Assistant> {
    Some(Assistant::Pod {
        name: pod.metadata.name?,
        uid: pod.metadata.uid?,
    })
}
