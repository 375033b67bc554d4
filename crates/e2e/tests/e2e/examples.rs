//! Every file in examples/ is accepted unchanged, its run succeeds, and all pods are on one node.

use crate::support::SOON;
use crate::support::runs::create_manifest;
use crate::support::testbeds::{fresh, installed};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams};
use placement::keys;
use std::path::{Path, PathBuf};
use testbed::Testbed;
use testbed::runs;

/// In its default mode, Tekton rejects two PVCs in one task; the file's comment says so.
const NEEDS_DISABLED: &str = "several-workspaces.yaml";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

fn files() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .filter(|path| path.extension().is_some_and(|ending| ending == "yaml"))
        .collect()
}

async fn ends_on_one_node(bed: &Testbed, namespace: &str, file: &Path) {
    let client = bed.client().await.unwrap();
    let [manifest] = testbed::apply::documents(file).unwrap().try_into().unwrap();
    let run = create_manifest(&client, namespace, manifest).await.unwrap();
    let name = run.name_any();
    let api = runs::runs(&client, namespace);
    bed.until(format!("{} to end", file.display()), SOON * 2, async || {
        let run = api.get(&name).await.map_err(|error| error.to_string())?;
        let state = runs::state(&run);
        state.is_over().then_some(()).ok_or_else(|| format!("{state:?}"))
    })
    .await
    .unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let followers = format!("{},{}!=false", runs::task_pods(&name), keys::OPT_IN);
    let pods = pods
        .list(&ListParams::default().labels(&followers))
        .await
        .unwrap()
        .items;
    assert!(pods.len() > 1, "{} has {} pods", file.display(), pods.len());
    assert_eq!(runs::nodes(&pods).len(), 1, "{}", file.display());
    api.delete(&name, &DeleteParams::default()).await.unwrap();
}

#[e2e_test]
async fn every_example_ends_with_its_pods_on_one_node() {
    let bed = &installed().await;
    let namespace = bed.namespace("examples").await.unwrap();
    for file in files().iter().filter(|file| !file.ends_with(NEEDS_DISABLED)) {
        ends_on_one_node(bed, &namespace, file).await;
    }
}

#[e2e_test]
async fn one_task_with_two_claims_runs_with_coschedule_disabled() {
    let bed = fresh(4).await;
    bed.feature_flags(&[("coschedule", "disabled")]).await.unwrap();
    ends_on_one_node(&bed, "default", &folder().join(NEEDS_DISABLED)).await;
}
