//! The automatic reserve: a run reserves what the tasks of the latest run of the same Pipeline requested.

use crate::support::SOON;
use crate::support::auditor::Auditor;
use crate::support::controller::configure;
use crate::support::events::{reasons, until_event};
use crate::support::pool::PooledTestbed;
use crate::support::runs::{create, let_end_once_bound, let_task_end, nodes_of, of_pipeline};
use crate::support::testbeds::fresh;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use placement::keys;
use serde_json::json;
use testbed::runs::{RunSpec, runs};
use testbed::{Nodes, Testbed, apply};

/// A run of the Pipeline `grows`: first a small task, then two parallel tasks with this CPU request each, one of them from a
/// Task.
pub(crate) async fn run(bed: &Testbed, name: &str, cpu: &str) -> RunSpec {
    let run = RunSpec::new("default", name)
        .task("small", &[])
        .sized_task("one", &["small"], &json!({"cpu": cpu}))
        .sized_task("other", &["small"], &json!({"cpu": cpu}))
        .opted_in("true")
        .lasting("3s");
    let run = with_a_task(bed, run).await;
    of_pipeline(bed, run, json!({"name": "grows"})).await
}

/// Such a run whose tasks end when the test lets them end.
async fn hanging(bed: &Testbed, name: &str, cpu: &str) -> RunSpec {
    run(bed, name, cpu).await.ending("hang")
}

/// Moves the last task into a Task.
async fn with_a_task(bed: &Testbed, mut run: RunSpec) -> RunSpec {
    let tasks = run.manifest["spec"]["pipelineSpec"]["tasks"].as_array_mut();
    let last = tasks.and_then(|tasks| tasks.last_mut()?.as_object_mut()).unwrap();
    let task = json!({
        "apiVersion": "tekton.dev/v1", "kind": "Task", "metadata": {"namespace": "default", "name": "other"},
        "spec": last.remove("taskSpec"),
    });
    last.insert("taskRef".into(), json!({"name": "other"}));
    apply::apply_all(&bed.client().await.unwrap(), &[task])
        .await
        .unwrap();
    run
}

/// Whether the run moved, and the record of requests that it leaves.
async fn after(bed: &Testbed, run: &RunSpec) -> (bool, String) {
    create(bed, run).await;
    finished(bed, run).await
}

/// Lets the run end after both large tasks were bound, so that they run at the same time on a slow machine as well.
async fn finished(bed: &Testbed, run: &RunSpec) -> (bool, String) {
    let_task_end(bed, run, "small").await;
    let_end_once_bound(bed, [run], &["one", "other"]).await;
    bed.until_succeeded(run, SOON).await.unwrap();
    let recorded = bed.until_run(run, "to have a record", SOON, |run| {
        run.annotations().contains_key(keys::USED)
    });
    let used = recorded.await.unwrap().annotations()[keys::USED].clone();
    let reported = reasons(&bed.client().await.unwrap(), run).await;
    (reported.contains(&"MovedOff".to_owned()), used)
}

async fn bed() -> PooledTestbed {
    let bed = fresh(0).await;
    bed.add_nodes(&Nodes::new("small", 1).size("2", "8Gi"))
        .await
        .unwrap();
    configure(&bed, &[("default-reserve", Some("auto"))]).await;
    bed
}

#[e2e_test]
async fn the_next_run_of_a_pipeline_has_room_for_its_tasks_and_the_run_after_it_adapts() {
    let bed = bed().await;
    let auditor = Auditor::start(&bed).await;
    let first = hanging(&bed, "first", "3").await;
    create(&bed, &first).await;
    let reported = until_event(&bed, &first, "ReserveChosen").await;
    assert!(
        reported.contains("cpu=3") && reported.contains("the largest task of its Pipeline"),
        "{reported}"
    );
    until_event(&bed, &first, "WaitingForNode").await;
    bed.add_nodes(&Nodes::new("large", 1).size("8", "16Gi"))
        .await
        .unwrap();
    let (moved, used) = finished(&bed, &first).await;
    assert!(!moved && used.starts_with("cpu=6"), "{used}");

    let second = hanging(&bed, "second", "3").await;
    assert_eq!(after(&bed, &second).await, (false, used));
    assert_eq!(nodes_of(&bed, &second).await, ["large-0".to_owned()].into());
    let reported = until_event(&bed, &second, "ReserveChosen").await;
    assert!(
        reported.contains("cpu=6") && reported.contains("PipelineRun first"),
        "{reported}"
    );

    let shrunk = hanging(&bed, "shrunk", "500m").await;
    let (moved, used) = after(&bed, &shrunk).await;
    assert!(!moved && used.starts_with("cpu=1"), "{used}");
    let adapted = hanging(&bed, "adapted", "500m").await;
    after(&bed, &adapted).await;
    let reported = until_event(&bed, &adapted, "ReserveChosen").await;
    assert!(reported.contains("room for cpu=1"), "{reported}");
    auditor.assert_no_violation();
}

#[e2e_test]
async fn a_wrong_record_delays_its_pipeline_only_until_the_autoscaler_has_reported() {
    let bed = bed().await;
    let first = hanging(&bed, "first", "500m").await;
    let (_, used) = after(&bed, &first).await;
    assert!(used.starts_with("cpu=1"), "{used}");
    let patch = Patch::Merge(json!({"metadata": {"annotations": {keys::USED: "cpu=64"}}}));
    let api = runs(&bed.client().await.unwrap(), "default");
    api.patch("first", &PatchParams::default(), &patch).await.unwrap();
    let next = hanging(&bed, "next", "500m").await;
    let (moved, used) = after(&bed, &next).await;
    assert!(!moved && used.starts_with("cpu=1"), "{used}");
    let reported = until_event(&bed, &next, "ReserveGivenUp").await;
    assert!(reported.contains("small-0 has cpu 2 of 64"), "{reported}");
}

#[e2e_test]
async fn a_copied_record_does_not_count_for_the_pipeline() {
    let bed = bed().await;
    let copied = hanging(&bed, "copied", "500m")
        .await
        .annotation(keys::USED, "cpu=64");
    let (_, used) = after(&bed, &copied).await;
    assert!(used.starts_with("cpu=1"), "{used}");
}
