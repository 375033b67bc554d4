//! The overlay of warm nodes: the next run takes an idle node at once, without waiting for the autoscaler, which adds
//! another node in the background.

use crate::support::SOON;
use crate::support::auditor::Auditor;
use crate::support::autoscalers::{Autoscaler, FIXED, bed, delete_runs, until_left};
use crate::support::events::until_event;
use crate::support::kubectl::{file, kubectl, parsed, rendered, workspace};
use crate::support::objects::node_of;
use crate::support::pages::block;
use crate::support::runs::{bound_task, create, let_end, let_succeed, nodes_of};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use std::time::{Duration, Instant};
use testbed::karpenter::NODE_POOL;
use testbed::product::NAMESPACE;
use testbed::runs::{RunSpec, node};
use testbed::{Part, Testbed};

const README: &str = "config/components/warm-nodes/README.md";
/// Karpenter reconciles a buffer every 30 seconds.
const LONGEST_WAIT: Duration = Duration::from_mins(2);

fn run(name: &str) -> RunSpec {
    RunSpec::new("default", name).task("only", &[]).opted_in("true")
}

/// The node of the only warm pod, after the pod was bound.
async fn until_warm(bed: &Testbed) -> String {
    let pods: Api<Pod> = Api::namespaced(bed.client().await.unwrap(), NAMESPACE);
    let warm = ListParams::default().labels("app.kubernetes.io/component=warm-node");
    bed.until("the warm pod to have a node", SOON, async || {
        let pods = pods.list(&warm).await.map_err(|error| error.to_string())?.items;
        match pods.as_slice() {
            [pod] => node(pod).map(str::to_owned).ok_or_else(|| "none yet".to_owned()),
            other => Err(format!("{} pods", other.len())),
        }
    })
    .await
    .unwrap()
}

/// Creates a long run on each fixed node.
async fn occupied(bed: &Testbed) {
    for number in 0..FIXED {
        let long = run(&format!("long-{number}")).lasting("10m");
        create(bed, &long).await;
        bound_task(bed, &long, "only").await;
    }
}

async fn takes_a_warm_node(autoscaler: Autoscaler) {
    let bed = bed(autoscaler).await;
    let auditor = Auditor::start(&bed).await;
    occupied(&bed).await;
    let overlay = file(
        &bed,
        "warm",
        &rendered(&workspace().join("config/components/warm-nodes")),
    );
    kubectl(&bed, &["apply", "-f", &overlay]);
    let warm = until_warm(&bed).await;
    assert!(!warm.starts_with("fixed"), "{warm}");

    bed.pause(autoscaler.part()).unwrap();
    let start = Instant::now();
    let (next, other) = (run("next").ending("hang"), run("other").lasting("5s"));
    create(&bed, &next).await;
    let first_task = bound_task(&bed, &next, "only").await;
    println!(
        "{autoscaler:?}: the first task was bound {:.1?} after its run was created",
        start.elapsed()
    );
    assert_eq!(node_of(&first_task), warm);
    create(&bed, &other).await;
    // Neither the other run nor the preempted warm pod has a node: the autoscaler adds one for each.
    until_event(&bed, &other, "WaitingForNode").await;
    bed.resume(autoscaler.part()).unwrap();

    let replaced = until_warm(&bed).await;
    println!("{autoscaler:?}: {warm} was replaced by {replaced}");
    assert_ne!(warm, replaced);
    let_end(&bed, &next).await;
    for run in [&next, &other] {
        bed.until_succeeded(run, SOON).await.unwrap();
        assert_eq!(nodes_of(&bed, run).await.len(), 1);
    }
    delete_runs(&bed).await;
    until_left(&bed, 1).await;
    kubectl(&bed, &["delete", "-f", &overlay]);
    until_left(&bed, 0).await;
    auditor.assert_no_violation_on_live_nodes();
}

#[e2e_test(first, autoscaler, second)]
async fn with_the_cluster_autoscaler_the_next_run_takes_a_warm_node_which_is_replaced() {
    takes_a_warm_node(Autoscaler::Cluster).await;
}

#[e2e_test(first, autoscaler, second)]
async fn with_karpenter_the_next_run_takes_a_warm_node_which_is_replaced() {
    takes_a_warm_node(Autoscaler::Karpenter).await;
}

/// The number of nodes that Karpenter keeps ready for a buffer of two pods.
const BUFFER: usize = 2;

/// The manifests of the page, with one pod more: each of them needs a node of its own.
#[e2e_test(autoscaler, nightly)]
async fn with_karpenter_a_capacity_buffer_has_a_node_for_each_pod_and_is_refilled_after_a_run_took_a_node() {
    let bed = bed(Autoscaler::Karpenter).await;
    occupied(&bed).await;
    let buffer = block(README, "## CapacityBuffer").replace("replicas: 1", &format!("replicas: {BUFFER}"));
    kubectl(&bed, &["apply", "-f", &file(&bed, "buffer", &parsed(&buffer))]);
    let ready = until_ready(&bed, BUFFER).await;

    bed.pause(Part::Karpenter).unwrap();
    let start = Instant::now();
    let next = run("next").ending("hang");
    create(&bed, &next).await;
    let node = node_of(&bound_task(&bed, &next, "only").await);
    println!(
        "CapacityBuffer: the first task was bound {:.1?} after its run was created",
        start.elapsed()
    );
    assert!(ready.contains(&node), "{node} is none of {ready:?}");
    bed.resume(Part::Karpenter).unwrap();

    until_ready(&bed, BUFFER + 1).await;
    println!(
        "CapacityBuffer: refilled {:.1?} after the run was created",
        start.elapsed()
    );
    let_succeed(&bed, &next).await;
    delete_runs(&bed).await;
}

/// The nodes of Karpenter, if they are this many and have no taint any more: Karpenter taints a node until it is registered.
async fn until_ready(bed: &Testbed, count: usize) -> Vec<String> {
    let nodes: Api<Node> = Api::all(bed.client().await.unwrap());
    let of_karpenter = ListParams::default().labels(NODE_POOL);
    bed.until(format!("{count} nodes of Karpenter"), LONGEST_WAIT, async || {
        let nodes = nodes
            .list(&of_karpenter)
            .await
            .map_err(|error| error.to_string())?;
        let is_ready = |node: &Node| node.spec.as_ref().is_none_or(|spec| spec.taints.is_none());
        let ready = nodes
            .iter()
            .filter(|node| is_ready(node))
            .map(ResourceExt::name_any);
        let ready: Vec<_> = ready.collect();
        if ready.len() == count {
            Ok(ready)
        } else {
            Err(format!("{ready:?}"))
        }
    })
    .await
    .unwrap()
}
