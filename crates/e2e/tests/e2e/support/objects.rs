//! Objects that tests create, change and watch: quotas, pods of other applications, Secrets, nodes.

use super::SOON;
use super::placeholders::pods;
use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{Node, Pod, ResourceQuota, Secret};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource};
use placement::keys;
use runtime::install;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use testbed::product::NAMESPACE;
use testbed::{Testbed, apply, runs};

/// Creates a ResourceQuota with the name `tight`, and waits until the API server enforces it: before the quota has a status,
/// the API server rejects pods with another message.
pub(crate) async fn quota(bed: &Testbed, namespace: &str, resource: &str, most: &str) -> Api<ResourceQuota> {
    create_quota(bed, namespace, json!({"hard": {resource: most}})).await
}

/// Creates a ResourceQuota with the name `tight` that rejects pods with affinity terms across namespaces.
pub(crate) async fn forbid_cross_namespace_terms(bed: &Testbed, namespace: &str) {
    limit_cross_namespace_terms(bed, namespace, "0").await;
}

/// Creates a quota that allows so many pods with affinity terms across namespaces.
pub(crate) async fn limit_cross_namespace_terms(bed: &Testbed, namespace: &str, pods: &str) {
    let spec = json!({"hard": {"pods": pods}, "scopes": ["CrossNamespacePodAffinity"]});
    create_quota(bed, namespace, spec).await;
}

async fn create_quota(bed: &Testbed, namespace: &str, spec: Value) -> Api<ResourceQuota> {
    let quotas: Api<ResourceQuota> = Api::namespaced(bed.client().await.unwrap(), namespace);
    let quota = json!({"metadata": {"name": "tight"}, "spec": spec});
    quotas
        .create(&PostParams::default(), &serde_json::from_value(quota).unwrap())
        .await
        .unwrap();
    until_enforced(bed, &quotas).await;
    quotas
}

/// Waits until the quota `tight` has a status.
pub(crate) async fn until_enforced(bed: &Testbed, quotas: &Api<ResourceQuota>) {
    bed.until("the quota to be enforced", SOON, async || {
        let quota = quotas.get("tight").await.map_err(|error| error.to_string())?;
        quota
            .status
            .and_then(|status| status.hard)
            .ok_or_else(|| "no status".to_owned())
    })
    .await
    .unwrap();
}

/// Creates a pod of another application with this CPU request. A large request makes its node the least attractive one.
pub(crate) async fn another_pod(bed: &Testbed, node: &str, app: &str, cpu: &str) {
    let pod = json!({
        "metadata": {"name": format!("{app}-{node}"), "labels": {"app": app}},
        "spec": {"nodeName": node, "containers": [{
            "name": "main", "image": "testbed.invalid/main", "resources": {"requests": {"cpu": cpu}},
        }]},
    });
    let pods = pods(&bed.client().await.unwrap(), "default");
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap())
        .await
        .unwrap();
}

/// Empties the webhook's Secret, so that the leader issues all certificates again.
pub(crate) async fn lose_certificates(client: &Client) {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let lost = Patch::Merge(json!({"data": null}));
    secrets
        .patch(install::CERTIFICATE_SECRET, &PatchParams::default(), &lost)
        .await
        .unwrap();
}

pub(crate) async fn patch_node(bed: &Testbed, node: &str, patch: Value) {
    let nodes: Api<Node> = Api::all(bed.client().await.unwrap());
    nodes
        .patch(node, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

pub(crate) async fn cordon(bed: &Testbed, node: &str) {
    patch_node(bed, node, json!({"spec": {"unschedulable": true}})).await;
}

pub(crate) async fn uncordon(bed: &Testbed, node: &str) {
    patch_node(bed, node, json!({"spec": {"unschedulable": null}})).await;
}

pub(crate) fn node_of(pod: &Pod) -> String {
    runs::node(pod).unwrap().to_owned()
}

/// All objects that exist, then each that is created or changed. After an error, the watch starts again.
pub(crate) fn changes<K>(api: Api<K>, config: watcher::Config) -> BoxStream<'static, K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let changes = watcher(api, config).default_backoff().applied_objects();
    changes.filter_map(async |changed| changed.ok()).boxed()
}

/// An object of the API group of admission policies.
pub(crate) fn admission(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": name}, "spec": spec,
    })
}

/// Adds a node that KWOK does not manage: its pods stay bound and not running, and can be resized. On KWOK's nodes, a resize
/// of a running pod is rejected, because KWOK does not report allocated resources.
pub(crate) async fn still_node(bed: &Testbed, client: &Client, name: &str) {
    let nodes: Api<Node> = Api::all(client.clone());
    let room = json!({"cpu": "6", "memory": "16Gi", "pods": "110"});
    let node = json!({
        "metadata": {"name": name, "labels": {keys::HOSTNAME: name}},
        "status": {
            "capacity": room, "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": ""}],
        },
    });
    nodes
        .create(&PostParams::default(), &serde_json::from_value(node).unwrap())
        .await
        .unwrap();
    bed.until(format!("node {name} to be Ready"), SOON, async || {
        let node = nodes.get(name).await.map_err(|error| error.to_string())?;
        testbed::kwok::is_ready(&node)
            .then_some(())
            .ok_or_else(|| format!("{:?}", node.spec))
    })
    .await
    .unwrap();
}

pub(crate) fn cpu(pod: &Pod) -> &str {
    let resources = pod.spec.as_ref().unwrap().containers[0].resources.as_ref();
    &resources.unwrap().requests.as_ref().unwrap()["cpu"].0
}

/// Tries to create an object. Returns the message of the API server if the object is rejected.
pub(crate) async fn tried(client: &Client, object: &Value) -> Result<(), String> {
    let (api, _) = apply::api_of(client, object).unwrap();
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let object = serde_json::from_value(object.clone()).unwrap();
    let created = api.create(&dry_run, &object).await;
    created.map(drop).map_err(|error| error.to_string())
}
