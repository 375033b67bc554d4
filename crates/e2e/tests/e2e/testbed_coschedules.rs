//! Tekton without pod-affinity: pods are spread without the label, and share a node in Tekton's own isolating mode. If pods
//! were not spread, tests of pod-affinity could not fail.

use crate::support::SOON;
use crate::support::pool;
use crate::support::testbeds::plain;
use std::collections::BTreeSet;
use testbed::runs::{self, RunSpec};
use testbed::{Nodes, Testbed};

async fn nodes_of(bed: &Testbed, spec: &RunSpec) -> BTreeSet<String> {
    let client = bed.client().await.unwrap();
    spec.create(&client).await.unwrap();
    bed.until_succeeded(spec, SOON).await.unwrap();
    runs::nodes(&runs::pods(&client, spec.namespace(), spec.name()).await.unwrap())
}

#[e2e_test]
async fn the_pods_of_an_unlabelled_run_spread_over_nodes() {
    let bed = &plain().await;
    let namespace = bed.namespace("spread").await.unwrap();
    let nodes = nodes_of(bed, &RunSpec::diamond(&namespace, "run").lasting("2s")).await;
    assert!(nodes.len() > 1, "all pods met on {nodes:?}");
}

#[e2e_test]
async fn the_pods_of_a_run_share_a_node_in_tektons_own_isolating_mode() {
    let bed = pool::bare().await;
    bed.add_nodes(&Nodes::new("node", 4)).await.unwrap();
    bed.feature_flags(&[("coschedule", "isolate-pipelinerun")])
        .await
        .unwrap();
    let nodes = nodes_of(&bed, &RunSpec::diamond("default", "run").lasting("2s")).await;
    assert_eq!(nodes.len(), 1, "the pods are on {nodes:?}");
}
