//! A nested run that starts while its root run has no node: both are bound to the next node.

use crate::support::SOON;
use crate::support::auditor::Auditor;
use crate::support::events::until_event;
use crate::support::placeholders::pods;
use crate::support::pvcs::{create_pvc, with_pvc};
use crate::support::runs::{create, let_pods_end, small_then};
use crate::support::testbeds::fresh;
use k8s_openapi::api::core::v1::{Pod, Taint};
use kube::ResourceExt;
use kube::api::{DynamicObject, ListParams};
use placement::keys;
use serde_json::{Value, json};
use testbed::kwok::OUTCOME;
use testbed::runs::{self, RunSpec};
use testbed::{Nodes, Testbed};

const ASIDE: &str = "aside";
/// The large tasks of the root run and of the nested run. Tekton creates one assistant for each of the two runs; the fifth
/// pod is the placeholder.
const TASKS: usize = 2;
const ASSISTANTS: usize = 2;
const ALL: usize = TASKS + ASSISTANTS + 1;

/// Adds a node that only the task that opted out tolerates.
async fn add_node_aside(bed: &Testbed) {
    let taint = Taint {
        key: ASIDE.into(),
        effect: "NoSchedule".into(),
        ..Taint::default()
    };
    let nodes = Nodes::new(ASIDE, 1).label("pool", ASIDE);
    let taints = vec![taint];
    bed.add_nodes(&Nodes { taints, ..nodes }).await.unwrap();
}

/// Adds a nested run, whose task mounts the PVC as well. The nested run starts when a task that opted out has ended: such a
/// task does not keep its root run on a node.
fn nesting(run: RunSpec) -> RunSpec {
    let workspace = json!([{"name": "source"}]);
    let step = json!({
        "name": "step", "image": "testbed.invalid/step", "script": "true",
        "computeResources": {"requests": {"cpu": "3"}},
    });
    let inner = json!({
        "name": "inner",
        "workspaces": workspace,
        "taskSpec": {"workspaces": workspace, "steps": [step]},
    });
    run.task(ASIDE, &[])
        .task("nested", &[ASIDE])
        .task_field("taskSpec", json!(null))
        .task_field("pipelineSpec", json!({"workspaces": workspace, "tasks": [inner]}))
        .task_field("workspaces", workspace)
        .spec("taskRunSpecs", task_run_specs())
}

/// All tasks except the first hang until the test lets them end.
fn task_run_specs() -> Value {
    let toleration = json!({"key": ASIDE, "operator": "Exists"});
    json!([
        {"pipelineTaskName": "small", "metadata": {"annotations": {OUTCOME: "succeed"}}},
        {
            "pipelineTaskName": ASIDE,
            "metadata": {"labels": {keys::OPT_IN: "false"}},
            "podTemplate": {"nodeSelector": {"pool": ASIDE}, "tolerations": [toleration]},
        },
    ])
}

/// The pods of the root run and of its nested run that have not ended.
async fn members(bed: &Testbed, root: &DynamicObject) -> Result<Vec<Pod>, String> {
    let api = pods(&bed.client().await.unwrap(), "default");
    let group = format!("{}={},{}!=false", keys::GROUP, root.uid().unwrap(), keys::OPT_IN);
    let ended = "tekton.dev/pipelineTask!=small";
    let found = ListParams::default().labels(&format!("{group},{ended}"));
    let found = api.list(&found).await.map_err(|error| error.to_string())?;
    Ok(found.items)
}

/// Waits until the group has this many pods, all of them on this node, or all unbound.
async fn until_all_are(bed: &Testbed, root: &DynamicObject, count: usize, node: Option<&str>) {
    let what = format!("{count} pods of the group, all on {node:?}");
    bed.until(what, SOON, async || {
        let members = members(bed, root).await?;
        if members.len() == count && members.iter().all(|pod| runs::node(pod) == node) {
            return Ok(());
        }
        let reported = |pod: &Pod| format!("{} on {:?}", pod.name_any(), runs::node(pod));
        Err(members.iter().map(reported).collect::<Vec<_>>().join("; "))
    })
    .await
    .unwrap();
}

/// Lets the pods of these tasks succeed.
async fn end(bed: &Testbed, tasks: &str) {
    let_pods_end(bed, "default", &format!("tekton.dev/pipelineTask in ({tasks})")).await;
}

#[e2e_test]
async fn a_nested_run_that_starts_while_its_root_has_no_node_is_on_the_next_node_of_its_root() {
    let bed = fresh(0).await;
    bed.configure(&[("move-after", Some("2s"))]).await.unwrap();
    bed.feature_flags(&[("enable-api-fields", "alpha")])
        .await
        .unwrap();
    add_node_aside(&bed).await;
    bed.add_nodes(&Nodes::new("small", 1).size("2", "8Gi"))
        .await
        .unwrap();
    create_pvc(&bed, "source", None).await;
    let run = nesting(with_pvc(small_then("4"), "source")).ending("hang");
    let auditor = Auditor::start(&bed).await;
    let root = create(&bed, &run).await;
    until_event(&bed, &run, "MovedOff").await;
    end(&bed, ASIDE).await;
    until_all_are(&bed, &root, TASKS + ASSISTANTS, None).await;
    bed.add_nodes(&Nodes::new("large", 1)).await.unwrap();
    until_all_are(&bed, &root, ALL, Some("large-0")).await;
    end(&bed, "large,inner").await;
    bed.until_succeeded(&run, SOON).await.unwrap();
    auditor.assert_no_violation_on_live_nodes();
}
