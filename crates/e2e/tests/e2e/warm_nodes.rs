//! The overlay of warm nodes: the next run takes an idle node at once, without waiting for the autoscaler, which adds
//! another node in the background.

use crate::autoscalers::{Autoscaler, FIXED, bed, delete_runs, until_left};
use crate::support::SOON;
use crate::support::auditor::Auditor;
use crate::support::events::until_event;
use crate::support::kubectl::{file, kubectl, rendered, workspace};
use crate::support::objects::node_of;
use crate::support::runs::{bound_task, create, let_end, nodes_of};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use std::time::Instant;
use testbed::Testbed;
use testbed::product::NAMESPACE;
use testbed::runs::{RunSpec, node};

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

#[e2e_test(first, autoscaler)]
async fn with_the_cluster_autoscaler_the_next_run_takes_a_warm_node_which_is_replaced() {
    takes_a_warm_node(Autoscaler::Cluster).await;
}

#[e2e_test(first, autoscaler, second)]
async fn with_karpenter_the_next_run_takes_a_warm_node_which_is_replaced() {
    takes_a_warm_node(Autoscaler::Karpenter).await;
}
