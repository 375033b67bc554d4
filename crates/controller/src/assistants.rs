//! Tekton's assistants of a run.
//!
//! Tekton makes them for runs that mount a PVC, unless its `coschedule` is disabled, and no task of an enrolled run
//! hangs on them; see `placement::inject`. But as long as one is on the old node the scheduler sends the tasks there.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use placement::plan::AssistantPod;
use serde::Deserialize;

/// Its pod.
#[derive(kube::Resource, Clone, Debug, Default, Deserialize)]
#[resource(inherit = Pod)]
#[serde(default)]
pub(crate) struct ListedPod {
    #[serde(deserialize_with = "tekton::metadata::read")]
    metadata: ObjectMeta,
    spec: Spec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
}

/// A pod, reduced.
pub(crate) fn listed_pod(pod: ListedPod) -> Option<AssistantPod> {
    Some(AssistantPod {
        name: pod.metadata.name?,
        uid: pod.metadata.uid?,
        node: pod.spec.node_name.filter(|name| !name.is_empty()),
    })
}
