//! What Tekton does with pods, as far as a decision of the design depends on it.

use crate::support::SOON;
use crate::support::placeholders::pods;
use crate::support::runs::{bound_task, create, of_task, small_then, until_unschedulable};
use crate::support::testbeds::fresh;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use std::time::Duration;
use testbed::runs::{self, RunSpec};
use testbed::{Nodes, Testbed};

const KEY: &str = "example.com/node";

/// docs/benchmarks/improvements.md: why the tasks of a run do not name the node of its placeholder.
#[e2e_test(second)]
async fn a_deleted_pod_that_never_started_is_created_again_with_the_annotations_of_its_task_run() {
    let bed = fresh(0).await;
    bed.configure(&[("move-after", Some("never"))]).await.unwrap();
    bed.add_nodes(&Nodes::new("small", 1).size("2", "8Gi"))
        .await
        .unwrap();
    let run = small_then("4").annotation(KEY, "old");
    create(&bed, &run).await;
    bound_task(&bed, &run, "small").await;
    until_unschedulable(&bed, &run, "large", Duration::ZERO).await;
    let client = bed.client().await.unwrap();
    let annotation = Patch::Merge(json!({"metadata": {"annotations": {KEY: "new"}}}));
    runs::runs(&client, run.namespace())
        .patch(run.name(), &PatchParams::default(), &annotation)
        .await
        .unwrap();
    let pods = pods(&client, run.namespace());
    let deleted = only_pod(&pods, &run).await.unwrap();
    pods.delete(&deleted.name_any(), &DeleteParams::default())
        .await
        .unwrap();
    let created = until_another(&bed, &pods, &run, &deleted).await;
    assert_eq!(created.annotations()[KEY], "old");
    bed.add_nodes(&Nodes::new("large", 1).size("8", "32Gi"))
        .await
        .unwrap();
    bed.configure(&[("move-after", Some("1s"))]).await.unwrap();
    bed.until_succeeded(&run, SOON).await.unwrap();
}

async fn only_pod(pods: &Api<Pod>, run: &RunSpec) -> Result<Pod, String> {
    let selected = ListParams::default().labels(&of_task(run, "large"));
    let found = pods.list(&selected).await.map_err(|error| error.to_string())?;
    <[Pod; 1]>::try_from(found.items)
        .map(|[pod]| pod)
        .map_err(|found| format!("{} pods", found.len()))
}

async fn until_another(bed: &Testbed, pods: &Api<Pod>, run: &RunSpec, deleted: &Pod) -> Pod {
    bed.until("Tekton to create another pod", SOON, async || {
        let found = only_pod(pods, run).await?;
        if found.uid() == deleted.uid() {
            Err("the deleted pod is still there".to_owned())
        } else {
            Ok(found)
        }
    })
    .await
    .unwrap()
}
