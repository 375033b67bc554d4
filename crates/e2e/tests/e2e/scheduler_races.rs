//! The scheduler is killed while its bindings are delayed.

use crate::support::SOON;
use crate::support::auditor::Auditor;
use crate::support::faulted_runs::{Runs, keep_alive_on};
use crate::support::load::alone;
use crate::support::placeholders::pods;
use crate::support::pool::{self, PooledTestbed};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use std::time::Duration;
use testbed::pace::SHORT_LEASE;
use testbed::{Fault, Nodes, Part, Testbed, runs};

const RUNS: usize = 12;
/// Fewer nodes than runs, so that the new scheduler has other pods for the nodes of the delayed bindings.
const NODES: usize = 4;
const KILLS: usize = 6;
/// Longer than a new scheduler needs until it schedules pods.
const DELAY: Duration = Duration::from_secs(8);

/// A testbed with a proxy between the scheduler and the API server.
async fn bed_with_faults() -> PooledTestbed {
    let bed = pool::bare().await;
    bed.kill(Part::Scheduler).unwrap();
    bed.start_scheduler_behind_faults().await.unwrap();
    bed
}

/// Kills the scheduler when the proxy has delayed this many bindings in total.
async fn kill_after_bindings(bed: &Testbed, bindings: u64) {
    let faults = bed.faults().unwrap();
    let what = format!("{bindings} bindings to be delayed");
    let delayed = bed.until(what, SOON, async || match faults.injected() {
        delayed if delayed < bindings => Err(delayed),
        _ => Ok(()),
    });
    delayed.await.unwrap();
    bed.kill(Part::Scheduler).unwrap();
}

#[e2e_test(second)]
async fn no_two_isolated_runs_share_a_node_while_bindings_are_slow_and_the_scheduler_is_killed() {
    let _alone = alone().await;
    let bed = bed_with_faults().await;
    let faults = bed.faults().unwrap();
    keep_alive_on(&bed, NODES, &SHORT_LEASE).await;
    let auditor = Auditor::start(&bed).await;
    let mut runs = Runs::in_namespace(&bed, &auditor, "slow-bindings").await;
    faults.set(Fault::SlowBindings(DELAY));
    runs.create(RUNS).await;
    for _ in 0..KILLS {
        kill_after_bindings(&bed, faults.injected() + 2).await;
        bed.start_scheduler_behind_faults().await.unwrap();
    }
    faults.set(Fault::None);
    runs.all_succeed().await;
    auditor.assert_no_violation();
}

/// A defect of Kubernetes, shown without pod-affinity: the API server checks no anti-affinity when a pod is bound.
#[e2e_test(second)]
async fn a_binding_that_arrives_after_another_scheduler_started_ignores_anti_affinity() {
    let bed = bed_with_faults().await;
    let faults = bed.faults().unwrap();
    bed.add_nodes(&Nodes::new("node", 1)).await.unwrap();
    faults.set(Fault::LateBindings(DELAY * 3));
    let pods = pods(&bed.client().await.unwrap(), "default");
    create_exclusive(&pods, "older", json!({})).await;
    kill_after_bindings(&bed, 1).await;
    // The new scheduler schedules the pod with the higher priority first, and its bindings are not delayed.
    faults.set(Fault::None);
    let urgent = json!({"priorityClassName": "system-node-critical"});
    create_exclusive(&pods, "newer", urgent).await;
    bed.start_scheduler_behind_faults().await.unwrap();
    for name in ["newer", "older"] {
        bed.until(format!("pod {name} to be bound"), SOON, async || {
            let pod = pods.get(name).await.map_err(|error| error.to_string())?;
            runs::node(&pod).map(drop).ok_or_else(|| "no node".to_owned())
        })
        .await
        .unwrap();
    }
}

/// Creates a pod that requires a node without other such pods.
async fn create_exclusive(pods: &Api<Pod>, name: &str, mut spec: Value) {
    let labels = json!({"app": "exclusive"});
    let term = json!({"labelSelector": {"matchLabels": labels}, "topologyKey": placement::keys::HOSTNAME});
    let terms = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
    spec["affinity"] = json!({"podAntiAffinity": terms});
    spec["containers"] = json!([{"name": "main", "image": "testbed.invalid/main"}]);
    let pod = json!({"metadata": {"name": name, "labels": labels}, "spec": spec});
    let pod = serde_json::from_value(pod).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
}
