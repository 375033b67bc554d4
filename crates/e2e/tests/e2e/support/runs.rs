//! Creates runs, lets them end, and waits for their states.

use super::SOON;
use super::events::until_event;
use super::objects::changes;
use super::placeholders::{pods, unschedulable};
use super::testbeds::plain;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use placement::keys;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use testbed::kwok::OUTCOME;
use testbed::runs::{self, RunSpec};
use testbed::{Testbed, apply};

/// Creates a run as the administrator.
pub(crate) async fn create(bed: &Testbed, spec: &RunSpec) -> DynamicObject {
    spec.create(&bed.client().await.unwrap()).await.unwrap()
}

/// Creates the object of a manifest. The untyped API needs a name, and some manifests have only `generateName`.
pub(crate) async fn create_manifest(
    client: &Client,
    namespace: &str,
    mut manifest: Value,
) -> Result<DynamicObject, String> {
    let metadata = &mut manifest["metadata"];
    metadata["namespace"] = namespace.into();
    if let Some(prefix) = metadata["generateName"].as_str() {
        metadata["name"] = prefix.trim_end_matches('-').into();
    }
    let (api, _) = testbed::apply::api_of(client, &manifest).ok_or("it has no kind or no name")?;
    let object = serde_json::from_value(manifest).map_err(|error| error.to_string())?;
    let created = api.create(&PostParams::default(), &object).await;
    created.map_err(|error| error.to_string())
}

/// A run whose first task fits on any node, and whose second task requests `cpu`.
pub(crate) fn small_then(cpu: &str) -> RunSpec {
    RunSpec::new("default", "run")
        .task("small", &[])
        .sized_task("large", &["small"], &json!({"cpu": cpu}))
        .opted_in("true")
        .lasting("2s")
}

/// Moves the tasks of the run into a Pipeline with these metadata, which is created or updated, and refers to the Pipeline.
pub(crate) async fn of_pipeline(bed: &Testbed, mut run: RunSpec, mut metadata: Value) -> RunSpec {
    let name = metadata["name"].clone();
    metadata["namespace"] = json!(run.namespace());
    let pipeline = json!({
        "apiVersion": "tekton.dev/v1", "kind": "Pipeline", "metadata": metadata,
        "spec": run.manifest["spec"]["pipelineSpec"].take(),
    });
    apply::apply_all(&bed.client().await.unwrap(), &[pipeline])
        .await
        .unwrap();
    run.manifest["spec"] = json!({"pipelineRef": {"name": name}});
    run
}

/// A run that gets the label from its Pipeline. Tekton copies the label when it creates the first tasks, whose pods have no
/// terms.
pub(crate) async fn labelled_by_its_pipeline(bed: &Testbed, run: RunSpec) -> RunSpec {
    let name = run.name().to_owned();
    let run = of_pipeline(bed, run, json!({"name": name, "labels": {keys::OPT_IN: "true"}})).await;
    create(bed, &run).await;
    until_event(bed, &run, "LabelledTooLate").await;
    run
}

/// Creates a run that fits on no node, and waits until an event reports this.
pub(crate) async fn held_for_good(bed: &Testbed, namespace: &str, name: &str) -> RunSpec {
    let nowhere = json!({"podTemplate": {"nodeSelector": {"nowhere": "true"}}});
    let run = RunSpec::new(namespace, name)
        .task("only", &[])
        .opted_in("true")
        .spec("taskRunTemplate", nowhere);
    create(bed, &run).await;
    until_event(bed, &run, "WaitingForNode").await;
    run
}

/// A label selector for the pods of one task of the run.
pub(crate) fn of_task(run: &RunSpec, task: &str) -> String {
    format!("{}={task}", runs::task_pods(run.name()))
}

/// The pod of one task of the run, after the pod was bound.
pub(crate) async fn bound_task(bed: &Testbed, run: &RunSpec, task: &str) -> Pod {
    let api = pods(&bed.client().await.unwrap(), run.namespace());
    let selector = of_task(run, task);
    bed.until(format!("task {task} to be bound"), SOON, async || {
        let found = api
            .list(&ListParams::default().labels(&selector))
            .await
            .map_err(|error| error.to_string())?;
        let bound = found.items.into_iter().find(|pod| runs::node(pod).is_some());
        bound.ok_or_else(|| "no such pod has a node".to_owned())
    })
    .await
    .unwrap()
}

/// The pod of one task of the run, after KWOK has started the pod. If the node is deleted earlier, KWOK never ends the pod.
pub(crate) async fn running_task(bed: &Testbed, run: &RunSpec, task: &str) -> Pod {
    bed.until(format!("task {task} to run"), SOON, async || {
        let pod = bound_task(bed, run, task).await;
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
        match phase.as_deref() {
            Some("Running") => Ok(pod),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap()
}

/// Waits until the pod of a task has been unschedulable for this time.
pub(crate) async fn until_unschedulable(bed: &Testbed, run: &RunSpec, task: &str, time: Duration) {
    let api = pods(&bed.client().await.unwrap(), run.namespace());
    let selector = ListParams::default().labels(&of_task(run, task));
    let what = format!("task {task} to be unschedulable for {time:?}");
    bed.until(what, SOON, async || {
        let listed = api.list(&selector).await.map_err(|error| error.to_string())?;
        let since = listed
            .items
            .iter()
            .find_map(unschedulable)
            .and_then(|it| it.last_transition_time.as_ref());
        let waited = since.map(|since| Timestamp::now().duration_since(since.0));
        match waited {
            Some(waited) if waited.unsigned_abs() > time => Ok(()),
            _ => Err(format!("{waited:?}")),
        }
    })
    .await
    .unwrap();
}

/// The nodes of the pods of a run's tasks.
pub(crate) async fn nodes_of(bed: &Testbed, spec: &RunSpec) -> BTreeSet<String> {
    runs::nodes(
        &runs::pods(&bed.client().await.unwrap(), spec.namespace(), spec.name())
            .await
            .unwrap(),
    )
}

/// Creates a run, waits until the run has succeeded, and returns the nodes of its pods.
pub(crate) async fn nodes_after(bed: &Testbed, spec: &RunSpec) -> BTreeSet<String> {
    create(bed, spec).await;
    bed.until_succeeded(spec, SOON).await.unwrap();
    nodes_of(bed, spec).await
}

/// Waits until the run's annotation names another node than `old`, and returns that node.
pub(crate) async fn until_moved_from(bed: &Testbed, run: &RunSpec, old: &str) -> String {
    let moved = |run: &DynamicObject| run.annotations().get(keys::NODE).is_some_and(|node| node != old);
    let run = bed
        .until_run(run, &format!("to move away from {old}"), SOON, moved)
        .await
        .unwrap();
    run.annotations()[keys::NODE].clone()
}

/// Lets a hanging run end: its pods succeed, including pods that are created later.
///
/// Tekton copies annotations from its caches to new TaskRuns and pods. A pod can therefore have the old annotation although
/// the run was patched before, so a background task patches such pods until the test ends.
pub(crate) async fn let_end(bed: &Testbed, spec: &RunSpec) {
    let client = bed.client().await.unwrap();
    runs::runs(&client, spec.namespace())
        .patch(spec.name(), &PatchParams::default(), &succeeds())
        .await
        .unwrap();
    let_pods_end(bed, spec.namespace(), &runs::task_pods(spec.name())).await;
}

/// Lets a hanging run end, and waits until the run has succeeded.
pub(crate) async fn let_succeed(bed: &Testbed, spec: &RunSpec) {
    let_end(bed, spec).await;
    bed.until_succeeded(spec, SOON).await.unwrap();
}

/// Lets the pods of hanging tasks succeed: the existing pods before this function returns, and later pods until the test
/// ends.
pub(crate) async fn let_pods_end(bed: &Testbed, namespace: &str, selector: &str) {
    let api = pods(&bed.client().await.unwrap(), namespace);
    for pod in api.list(&ListParams::default().labels(selector)).await.unwrap() {
        let_pod_end(&api, &pod).await;
    }
    let config = watcher::Config::default().labels(selector);
    tokio::spawn(async move {
        let mut pods = changes(api.clone(), config);
        while let Some(pod) = pods.next().await {
            let_pod_end(&api, &pod).await;
        }
    });
}

async fn let_pod_end(api: &Api<Pod>, pod: &Pod) {
    if pod
        .annotations()
        .get(OUTCOME)
        .is_some_and(|outcome| outcome == "hang")
    {
        // The pod may be deleted already. A pod that still hangs fails the test, which names the pod.
        drop(
            api.patch(&pod.name_any(), &PatchParams::default(), &succeeds())
                .await,
        );
    }
}

/// Lets one task of a hanging run succeed after the task's pod was bound.
pub(crate) async fn let_task_end(bed: &Testbed, run: &RunSpec, task: &str) {
    bound_task(bed, run, task).await;
    let_pods_end(bed, run.namespace(), &of_task(run, task)).await;
}

/// Lets hanging runs end after the pods of these tasks of each run were bound: all pods exist at the same time, so no pod is
/// missed.
pub(crate) async fn let_end_once_bound<'a>(
    bed: &Testbed,
    runs: impl IntoIterator<Item = &'a RunSpec> + Clone,
    tasks: &[&str],
) {
    for run in runs.clone() {
        for task in tasks {
            bound_task(bed, run, task).await;
        }
    }
    for run in runs {
        let_end(bed, run).await;
    }
}

fn succeeds() -> Patch<Value> {
    Patch::Merge(json!({"metadata": {"annotations": {OUTCOME: "succeed"}}}))
}

#[e2e_test]
async fn a_pod_that_tekton_creates_from_an_older_annotation_ends_with_its_run() {
    let bed = plain().await;
    let namespace = bed.namespace("let-end").await.unwrap();
    let run = RunSpec::new(&namespace, "run").task("first", &[]).ending("hang");
    create(&bed, &run).await;
    let_end(&bed, &run).await;
    let late = json!({
        "metadata": {
            "name": "late",
            "labels": {runs::RUN_LABEL: "run", "tekton.dev/pipelineTask": "late"},
            "annotations": {OUTCOME: "hang"},
        },
        "spec": {"containers": [{"name": "main", "image": "testbed.invalid/main"}]},
    });
    let pods = pods(&bed.client().await.unwrap(), &namespace);
    let late = serde_json::from_value(late).unwrap();
    pods.create(&PostParams::default(), &late).await.unwrap();
    bed.until("the late pod to get the annotation", SOON, async || {
        let pod = pods.get("late").await.map_err(|error| error.to_string())?;
        let outcome = &pod.annotations()[OUTCOME];
        if outcome == "succeed" {
            Ok(())
        } else {
            Err(outcome.clone())
        }
    })
    .await
    .unwrap();
}

pub(crate) async fn until_released(bed: &Testbed, run: &RunSpec) -> DynamicObject {
    let released = |run: &DynamicObject| run.data["spec"].get("status").is_none();
    bed.until_run(run, "to be released", SOON, released)
        .await
        .unwrap()
}

/// Sets the status in the spec, which cancels or stops the run.
pub(crate) async fn set_status(bed: &Testbed, run: &RunSpec, status: &str) {
    let api = runs::runs(&bed.client().await.unwrap(), run.namespace());
    let patch = Patch::Merge(json!({"spec": {"status": status}}));
    api.patch(run.name(), &PatchParams::default(), &patch)
        .await
        .unwrap();
}
