//! A run that moves takes its claims along: it goes where they can be attached, and they follow.

use crate::attacher::Attacher;
use crate::auditor::Auditor;
use crate::beds::{SOON, create, fresh, notes, pods};
use crate::claims::{claim, with_claim};
use crate::moves::{bound_task, cordon, node_of, patch_node, small_then, until_moved_from};
use kube::api::ListParams;
use serde_json::json;
use std::collections::BTreeSet;
use testbed::runs::{self, RunSpec};
use testbed::{Nodes, Testbed};

#[e2e_test]
async fn a_moving_run_goes_where_its_claim_can_go() {
    let bed = fresh(0).await;
    bed.add_nodes(&Nodes::new("west-small", 1).size("2", "8Gi").zone("west"))
        .await
        .unwrap();
    claim(&bed, "zonal", Some("west")).await;
    let run = with_claim(small_then("4"), "zonal");
    create(&bed, &run).await;
    bound_task(&bed, &run, "small").await;
    bed.add_nodes(&Nodes::new("east", 2).zone("east")).await.unwrap();
    bed.add_nodes(&Nodes::new("west-large", 1).zone("west"))
        .await
        .unwrap();
    assert_eq!(node_of(&bound_task(&bed, &run, "large").await), "west-large-0");
    bed.until_succeeded(&run, SOON).await.unwrap();
}

#[e2e_test]
async fn tektons_own_assistant_leaves_with_the_run_and_follows_it() {
    let bed = fresh(0).await;
    bed.add_nodes(&Nodes::new("small", 2).size("2", "8Gi"))
        .await
        .unwrap();
    claim(&bed, "source", None).await;
    let run = with_claim(small_then("4"), "source").lasting("6s");
    let auditor = Auditor::start(&bed).await;
    create(&bed, &run).await;
    bound_task(&bed, &run, "small").await;
    bed.add_nodes(&Nodes::new("large", 1)).await.unwrap();
    assert_eq!(node_of(&bound_task(&bed, &run, "large").await), "large-0");
    until_assistant_on(&bed, "large-0").await;
    bed.until_succeeded(&run, SOON).await.unwrap();
    auditor.found_no_meeting();
}

/// Tekton itself looks after the assistant of a cordoned node only until the run's first task is made.
#[e2e_test]
async fn a_cordoned_node_is_left_together_with_tektons_own_assistant() {
    let bed = fresh(2).await;
    claim(&bed, "source", None).await;
    let tasks = RunSpec::new("default", "run").task("a", &[]).task("b", &["a"]);
    let run = with_claim(tasks.opted_in("true").lasting("6s"), "source");
    create(&bed, &run).await;
    let first = node_of(&bound_task(&bed, &run, "a").await);
    cordon(&bed, &first).await;
    let second = until_moved_from(&bed, &run, &first).await;
    assert_eq!(node_of(&bound_task(&bed, &run, "b").await), second);
    until_assistant_on(&bed, &second).await;
    bed.until_succeeded(&run, SOON).await.unwrap();
}

async fn until_assistant_on(bed: &Testbed, node: &str) {
    let api = pods(&bed.client().await.unwrap(), "default");
    let assistants = ListParams::default().labels("app.kubernetes.io/component=affinity-assistant");
    bed.until(format!("Tekton's assistant to be on {node}"), SOON, async || {
        let found = api.list(&assistants).await.map_err(|error| error.to_string())?;
        let nodes = runs::nodes(&found.items);
        if nodes == BTreeSet::from([node.to_owned()]) {
            Ok(())
        } else {
            Err(format!("{nodes:?}"))
        }
    })
    .await
    .unwrap();
}

/// The attach-detach controller is the real one; what a storage driver would do, the test does, and takes its time.
#[e2e_test]
async fn a_claim_that_is_still_attached_to_the_old_node_is_detached_before_it_follows() {
    let bed = fresh(0).await;
    let attacher = Attacher::start(&bed).await;
    Attacher::claim(&bed, "source").await;
    add_attaching_node(&bed, "small", "2").await;
    let run = with_claim(small_then("4"), "source").lasting("10s");
    create(&bed, &run).await;
    bound_task(&bed, &run, "small").await;
    attacher.until_attached(&bed, "small-0").await;
    add_attaching_node(&bed, "large", "8").await;
    assert_eq!(node_of(&bound_task(&bed, &run, "large").await), "large-0");
    attacher.until_attached(&bed, "large-0").await;
    bed.until_succeeded(&run, SOON).await.unwrap();
    let told = notes(&bed.client().await.unwrap(), &run).await;
    let let_goes = told.iter().filter(|(reason, _)| reason == "LetGo").count();
    assert_eq!(
        let_goes, 1,
        "waiting for a volume is no reason to move again: {told:?}"
    );
    attacher.never_attached_twice();
}

/// A node whose volumes the attach-detach controller looks after, as a kubelet asks it to.
async fn add_attaching_node(bed: &Testbed, prefix: &str, cpu: &str) {
    let nodes = bed
        .add_nodes(&Nodes::new(prefix, 1).size(cpu, "16Gi"))
        .await
        .unwrap();
    let managed = json!({"volumes.kubernetes.io/controller-managed-attach-detach": "true"});
    patch_node(bed, &nodes[0], json!({"metadata": {"annotations": managed}})).await;
}
