//! Custom tasks: Tekton creates a CustomRun, and waits until another controller, here the test, ends the CustomRun.

use crate::support::SOON;
use jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use testbed::Testbed;
use testbed::runs::RunSpec;

/// Adds a custom task to the run.
pub(crate) fn with_custom_task(run: RunSpec, name: &str, after: &[&str]) -> RunSpec {
    let mut run = run;
    let kind = json!({"apiVersion": "testbed.example.com/v1", "kind": "Gap", "name": name});
    let task = json!({"name": name, "runAfter": after, "taskRef": kind});
    let tasks = run.manifest["spec"]["pipelineSpec"]["tasks"].as_array_mut();
    tasks.unwrap().push(task);
    run
}

fn custom_runs(client: Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("tekton.dev", "v1beta1", "CustomRun");
    Api::namespaced_with(client, namespace, &ApiResource::from_gvk(&kind))
}

/// Waits until Tekton has created the CustomRun of this task.
pub(crate) async fn custom_run(bed: &Testbed, run: &RunSpec, task: &str) -> testbed::Result<DynamicObject> {
    let custom_runs = custom_runs(bed.client().await?, run.namespace());
    let name = format!("{}-{task}", run.name());
    bed.until(format!("{name} to begin"), SOON, async || {
        custom_runs.get(&name).await.map_err(|error| error.to_string())
    })
    .await
}

pub(crate) async fn end_custom_run(
    bed: &Testbed,
    custom_run: &DynamicObject,
    succeeded: bool,
) -> testbed::Result<()> {
    let status = if succeeded { "True" } else { "False" };
    let now = Timestamp::now().to_string();
    let over = json!({"type": "Succeeded", "status": status, "reason": "Over", "lastTransitionTime": now});
    let done = Patch::Merge(json!({"status": {"conditions": [over]}}));
    let namespace = custom_run.namespace().unwrap_or_default();
    custom_runs(bed.client().await?, &namespace)
        .patch_status(&custom_run.name_any(), &PatchParams::default(), &done)
        .await
        .unwrap();
    Ok(())
}

/// The run that the controller of a custom task creates: with the labels of the custom task, which has those of its run.
pub(crate) fn run_of_custom_task(custom_run: &DynamicObject, name: &str) -> RunSpec {
    let namespace = custom_run.namespace().unwrap();
    let mut run = RunSpec::new(&namespace, name)
        .task("left", &[])
        .task("right", &[]);
    let metadata = &mut run.manifest["metadata"];
    metadata["labels"] = json!(custom_run.labels());
    metadata["ownerReferences"] = json!([{
        "apiVersion": "tekton.dev/v1beta1", "kind": "CustomRun", "name": custom_run.name_any(), "uid": custom_run.uid(),
        "controller": true,
    }]);
    run
}
