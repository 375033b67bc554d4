//! The disruption of a run or its node, while the run waits or runs.

use super::condition::Condition;
use super::manifest::{GAP, OWNER};
use super::pair::{Pair, Variant};
use crate::support::SOON;
use crate::support::custom_runs::{custom_run, end_custom_run, run_of_custom_task};
use crate::support::kubectl::kubectl;
use crate::support::objects::{cordon, uncordon};
use crate::support::placeholders::{placeholder_name, pods};
use crate::support::runs::create;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use placement::keys;
use serde_json::json;
use std::time::Duration;
use testbed::runs::{self, RunSpec, State};
use testbed::{Result, Testbed};

/// How long an unreachable node stays away, and how long a cordoned node stays cordoned.
const A_WHILE: Duration = Duration::from_secs(2);
const A_SECOND: Duration = Duration::from_secs(1);

pub(super) async fn disrupt(
    bed: &Testbed,
    pair: &Pair,
    variant: Variant,
    (run, created): (&RunSpec, &DynamicObject),
) -> Result<()> {
    match pair.condition {
        Condition::Cordoned | Condition::CordonedForASecond => {
            let node = first_node(bed, run).await?;
            cordon(bed, &node).await;
            if pair.condition == Condition::CordonedForASecond {
                tokio::time::sleep(A_SECOND).await;
                uncordon(bed, &node).await;
            }
            Ok(())
        }
        // The remedy of the event NodeUnfit. Without the taint, it stays unknown whether the pods have ended.
        Condition::NodeDies => {
            let node = first_node(bed, run).await?;
            bed.fail_node(&node).await?;
            let out_of_service = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute";
            kubectl(bed, &["taint", "node", &node, out_of_service]);
            Ok(())
        }
        Condition::NodeReturns => {
            let node = first_node(bed, run).await?;
            bed.fail_node(&node).await?;
            tokio::time::sleep(A_WHILE).await;
            bed.recover_node(&node).await
        }
        Condition::CordonedBetween | Condition::NodeDiesBetween => in_the_gap(bed, pair, run).await,
        Condition::CustomTask => execute_custom_task(bed, run).await,
        Condition::Preempted => preempt(bed, run).await,
        Condition::PlaceholderDeleted if variant == Variant::Labelled => {
            first_node(bed, run).await?;
            let pods = pods(&bed.client().await?, run.namespace());
            let name = placeholder_name(created).pod();
            // The pod of a short run may be deleted already.
            let _ = pods.delete(&name, &DeleteParams::default()).await;
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The node of the run's first bound pod.
async fn first_node(bed: &Testbed, run: &RunSpec) -> Result<String> {
    let client = bed.client().await?;
    bed.until(format!("a pod of {} on a node", run.name()), SOON, async || {
        let pods = runs::pods(&client, run.namespace(), run.name()).await;
        let nodes = runs::nodes(&pods.map_err(|error| error.to_string())?);
        nodes.into_iter().next().ok_or_else(|| "none".to_owned())
    })
    .await
}

/// Waits until the first task has ended, disrupts the node, and lets the second task begin.
async fn in_the_gap(bed: &Testbed, pair: &Pair, run: &RunSpec) -> Result<()> {
    let gap = custom_run(bed, run, GAP).await?;
    let node = first_node(bed, run).await?;
    if pair.condition == Condition::CordonedBetween {
        cordon(bed, &node).await;
    } else {
        bed.fail_node(&node).await?;
    }
    until_unfit(bed, &node).await?;
    end_custom_run(bed, &gap, true).await
}

/// Creates a run for the custom task of this run, as the controllers of such tasks do, and ends the custom task with the run.
async fn execute_custom_task(bed: &Testbed, run: &RunSpec) -> Result<()> {
    let custom_run = custom_run(bed, run, GAP).await?;
    let mut inner = run_of_custom_task(&custom_run, &format!("{}-inner", run.name()));
    // Only pods with the toleration of the pair can use the node of the pair, where the volume can be.
    inner.manifest["spec"]["taskRunTemplate"] = run.manifest["spec"]["taskRunTemplate"].clone();
    create(bed, &inner).await;
    let is_over = |run: &DynamicObject| runs::state(run).is_over();
    let inner = bed.until_run(&inner, "to end", SOON, is_over).await?;
    end_custom_run(bed, &custom_run, runs::state(&inner) == State::Succeeded).await
}

/// Waits until the node has the taint that keeps pods away.
async fn until_unfit(bed: &Testbed, node: &str) -> Result<()> {
    let nodes: Api<Node> = Api::all(bed.client().await?);
    bed.until(format!("{node} to be tainted"), SOON, async || {
        let node = nodes.get(node).await.map_err(|error| error.to_string())?;
        let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        if taints.any(|taint| taint.key.starts_with("node.kubernetes.io/")) {
            Ok(())
        } else {
            Err(format!("{:?}", node.spec))
        }
    })
    .await
}

/// A pod of higher priority preempts the run, and keeps the node.
async fn preempt(bed: &Testbed, run: &RunSpec) -> Result<()> {
    let node = first_node(bed, run).await?;
    let container = json!({
        "name": "main", "image": "testbed.invalid/main", "resources": {"requests": {"cpu": "7"}},
    });
    let pod = json!({
        "metadata": {"name": preemptor(run)},
        "spec": {
            "nodeSelector": {keys::HOSTNAME: node},
            "tolerations": [{"operator": "Exists"}],
            "priorityClassName": "urgent",
            "containers": [container],
        },
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let pods = pods(&bed.client().await?, "default");
    pods.create(&PostParams::default(), &pod).await.unwrap();
    Ok(())
}

fn preemptor(run: &RunSpec) -> String {
    format!("urgent-{}", run.name())
}

/// Deletes the pod that preempted the pods of a run.
pub(super) async fn end_preemption(bed: &Testbed, run: &RunSpec) {
    let pods = pods(&bed.client().await.unwrap(), "default");
    // The pod does not exist if the run hung before.
    let _ = pods.delete(&preemptor(run), &DeleteParams::default()).await;
}

/// Creates an unlabelled run whose two tasks occupy the two nodes of a pair.
pub(super) async fn take_nodes(bed: &Testbed, pair: &Pair, variant: Variant) -> RunSpec {
    let name = pair.name(variant);
    let mut template = pair.place.template();
    template["nodeSelector"][OWNER] = json!(name);
    template["tolerations"] = json!([{"operator": "Exists"}]);
    let size = json!({"cpu": "5"});
    let run = RunSpec::new("default", &format!("neighbour-of-{name}"))
        .sized_task("left", &[], &size)
        .sized_task("right", &[], &size)
        .lasting("5s")
        .spec("taskRunTemplate", json!({"podTemplate": template}));
    create(bed, &run).await;
    let client = bed.client().await.unwrap();
    bed.until(format!("{} to be on two nodes", run.name()), SOON, async || {
        let pods = runs::pods(&client, run.namespace(), run.name()).await;
        let nodes = runs::nodes(&pods.map_err(|error| error.to_string())?);
        if nodes.len() == 2 {
            Ok(())
        } else {
            Err(format!("{nodes:?}"))
        }
    })
    .await
    .unwrap();
    run
}
