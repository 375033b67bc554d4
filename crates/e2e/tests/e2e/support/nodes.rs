//! Patches and cordons nodes.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::{Testbed, runs};

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
