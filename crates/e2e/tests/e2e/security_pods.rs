//! Our pods under Pod Security `restricted`, as the API server itself judges them.

use crate::beds::{bound_placeholder, create, installed, pods};
use crate::install_kubectl::{parsed, workspace};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use serde_json::{Value, json};
use testbed::product::NAMESPACE;
use testbed::runs::RunSpec;

/// Only tried, not made.
async fn tried(client: &Client, namespace: &str, template: &Value) -> Result<Pod, Error> {
    let mut pod = template.clone();
    pod["metadata"]["name"] = json!("tried");
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    pods(client, namespace)
        .create(&dry_run, &serde_json::from_value(pod).unwrap())
        .await
}

async fn is_enforced(client: &Client, namespace: &str) {
    let careless = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
    let refusal = tried(client, namespace, &careless).await.unwrap_err().to_string();
    assert!(refusal.contains("violates PodSecurity \"restricted"), "{refusal}");
}

#[e2e_test]
async fn the_processes_are_admitted_where_restricted_is_enforced() {
    let client = installed().await.client().await.unwrap();
    is_enforced(&client, NAMESPACE).await;
    for file in ["700-webhook.yaml", "701-controller.yaml"] {
        let objects = parsed(&std::fs::read_to_string(workspace().join("config").join(file)).unwrap());
        let deployment = objects
            .iter()
            .find(|object| object["kind"] == "Deployment")
            .unwrap();
        tried(&client, NAMESPACE, &deployment["spec"]["template"])
            .await
            .unwrap();
    }
}

#[e2e_test]
async fn a_placeholder_gets_its_node_where_restricted_is_enforced() {
    let bed = installed().await;
    let (client, namespace) = (
        bed.client().await.unwrap(),
        bed.namespace("restricted").await.unwrap(),
    );
    let enforced =
        Patch::Merge(json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}));
    Api::<Namespace>::all(client.clone())
        .patch(&namespace, &PatchParams::default(), &enforced)
        .await
        .unwrap();
    is_enforced(&client, &namespace).await;
    let run = create(
        bed,
        &RunSpec::new(&namespace, "run").task("only", &[]).opted_in("true"),
    )
    .await;
    bound_placeholder(bed, &run).await;
}
