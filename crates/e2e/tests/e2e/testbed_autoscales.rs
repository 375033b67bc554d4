//! The real cluster autoscaler adds a node for a pod that fits nowhere, and removes the node when it is not needed.

use crate::support::SOON;
use crate::support::pool;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;
use testbed::{NodeGroup, Nodes};

#[e2e_test(autoscaler)]
async fn a_node_is_added_for_a_pod_that_fits_nowhere_and_removed_later() {
    let bed = pool::bare().await;
    bed.add_nodes(&Nodes::new("fixed", 3).size("1", "4Gi"))
        .await
        .unwrap();
    bed.start_autoscaler(&[NodeGroup::new("big", 0, 3).size("8", "32Gi")])
        .await
        .unwrap();
    let pods: Api<Pod> = Api::namespaced(bed.client().await.unwrap(), "default");
    let pod = json!({
        "metadata": {"name": "large"},
        "spec": {"containers": [{
            "name": "main",
            "image": "testbed.invalid/main",
            "resources": {"requests": {"cpu": "4"}},
        }]},
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap())
        .await
        .unwrap();

    let node = bed
        .until("the pod to be bound to a new node", SOON, async || {
            let pod = pods.get("large").await.map_err(|error| error.to_string())?;
            testbed::runs::node(&pod)
                .map(String::from)
                .ok_or_else(|| format!("{:?}", pod.status))
        })
        .await
        .unwrap();
    assert!(node.starts_with("big-"), "bound to {node}");

    pods.delete("large", &DeleteParams::default()).await.unwrap();
    bed.until("the autoscaler to take its node back", SOON, async || {
        let nodes = bed
            .ready_nodes_of("big")
            .await
            .map_err(|error| error.to_string())?;
        if nodes.is_empty() {
            Ok(())
        } else {
            Err(nodes.join(" "))
        }
    })
    .await
    .unwrap();
}
