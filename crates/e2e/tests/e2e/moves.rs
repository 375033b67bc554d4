//! A run whose node cannot take its next task moves off the node, after its running tasks have ended.

use crate::support::SOON;
use crate::support::auditor::Auditor;
use crate::support::cli::{explain_until, section};
use crate::support::controller::until_reconciled;
use crate::support::events::{reasons, until_event};
use crate::support::kubectl::kubectl;
use crate::support::objects::{cordon, node_of, patch_node};
use crate::support::placeholders::{bound_placeholder, is_unschedulable, placeholder_name, pods, sets};
use crate::support::runs::{
    bound_task, create, let_end, let_succeed, let_task_end, nodes_of, running_task, small_then,
    until_moved_from, until_unschedulable,
};
use crate::support::testbeds::fresh;
use kube::ResourceExt;
use kube::api::{EvictParams, Patch, PatchParams};
use placement::config::Config;
use serde_json::json;
use testbed::runs::{self, RunSpec};
use testbed::{Nodes, Part, Testbed};

#[e2e_test]
async fn a_task_too_big_for_the_node_stays_unschedulable_if_moving_is_switched_off() {
    let bed = fresh(0).await;
    bed.configure(&[("move-after", Some("never"))]).await.unwrap();
    bed.add_nodes(&Nodes::new("small", 1).size("2", "8Gi"))
        .await
        .unwrap();
    let run = small_then("4");
    create(&bed, &run).await;
    let first = node_of(&bound_task(&bed, &run, "small").await);
    bed.add_nodes(&Nodes::new("large", 1).size("8", "32Gi"))
        .await
        .unwrap();
    until_unschedulable(&bed, &run, "large", Config::MOVE_AFTER).await;
    until_reconciled(&bed, &run).await;
    assert_eq!(nodes_of(&bed, &run).await, [first].into());
    let reported = reasons(&bed.client().await.unwrap(), &run).await;
    assert!(!reported.contains(&"MovedOff".to_owned()), "{reported:?}");
    // With moving switched on, the run moves: nothing else has kept it there.
    bed.configure(&[("move-after", Some("1s"))]).await.unwrap();
    bed.until_succeeded(&run, SOON).await.unwrap();
}

#[e2e_test]
async fn a_run_moves_to_a_node_that_fits_a_task_too_big_for_its_node() {
    let bed = fresh(0).await;
    bed.add_nodes(&Nodes::new("small", 2).size("2", "8Gi"))
        .await
        .unwrap();
    let auditor = Auditor::start(&bed).await;
    let run = small_then("4").ending("hang");
    let held = create(&bed, &run).await;
    let first = node_of(&bound_task(&bed, &run, "small").await);
    let_task_end(&bed, &run, "small").await;
    bed.add_nodes(&Nodes::new("large", 1).size("8", "32Gi"))
        .await
        .unwrap();
    until_event(&bed, &run, "MovedOff").await;
    let large = bound_task(&bed, &run, "large").await;
    assert_eq!(node_of(&large), "large-0");
    assert_eq!(until_moved_from(&bed, &run, &first).await, "large-0");
    assert_eq!(node_of(&bound_placeholder(&bed, &held).await), "large-0");
    let_succeed(&bed, &run).await;
    auditor.assert_no_violation_on_live_nodes();
}

#[e2e_test]
async fn two_parallel_tasks_that_do_not_fit_together_run_one_after_another_without_a_move() {
    let bed = fresh(0).await;
    bed.add_nodes(&Nodes::new("node", 2).size("4", "16Gi"))
        .await
        .unwrap();
    let run = RunSpec::new("default", "run")
        .sized_task("left", &[], &json!({"cpu": "3"}))
        .sized_task("right", &[], &json!({"cpu": "3"}))
        .opted_in("true")
        // Longer than move-after: when the first task ends, the second has been unschedulable for long enough.
        .lasting("14s");
    create(&bed, &run).await;
    bed.until_succeeded(&run, SOON).await.unwrap();
    assert_eq!(nodes_of(&bed, &run).await.len(), 1);
    let reported = reasons(&bed.client().await.unwrap(), &run).await;
    assert!(!reported.contains(&"MovedOff".to_owned()), "{reported:?}");
}

/// Waits until the run has this many pods of tasks, and this many of them are bound.
async fn until_placed(bed: &Testbed, run: &RunSpec, placed: usize, all: usize) {
    let client = bed.client().await.unwrap();
    bed.until(
        format!("{placed} of {all} tasks to have a node"),
        SOON,
        async || {
            let pods = runs::pods(&client, run.namespace(), run.name()).await;
            let pods = pods.map_err(|error| error.to_string())?;
            let found = (
                pods.iter().filter(|pod| runs::node(pod).is_some()).count(),
                pods.len(),
            );
            if found == (placed, all) {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        },
    )
    .await
    .unwrap();
}

#[e2e_test]
async fn a_task_that_waits_for_another_on_a_cordoned_node_moves_after_the_other_has_ended() {
    let bed = fresh(0).await;
    let add = async |name| {
        let nodes = Nodes::new(name, 1).size("8", "32Gi");
        bed.add_nodes(&nodes).await.unwrap();
    };
    let run = RunSpec::new("default", "run")
        .task("a", &[])
        .sized_task("b", &["a"], &json!({"cpu": "5"}))
        .sized_task("c", &["a"], &json!({"cpu": "5"}))
        .opted_in("true")
        .lasting("15s");
    add("first").await;
    create(&bed, &run).await;
    bound_task(&bed, &run, "a").await;
    cordon(&bed, "first-0").await;
    // The run moves off the cordoned node before or after this point; the first node has room for one of the two tasks.
    until_placed(&bed, &run, 1, 3).await;
    add("second").await;
    until_placed(&bed, &run, 2, 3).await;
    // The new node makes the scheduler try the other task again: the task now lacks only the affinity to its group.
    cordon(&bed, "second-0").await;
    add("third").await;
    bed.until_succeeded(&run, SOON).await.unwrap();
    let nodes = ["first-0", "second-0", "third-0"].map(str::to_owned);
    assert_eq!(nodes_of(&bed, &run).await, nodes.into());
}

/// Lets the first task of a hanging run end, and waits until its pod has succeeded.
async fn end_first_task(bed: &Testbed, run: &RunSpec) {
    let_end(bed, run).await;
    let client = bed.client().await.unwrap();
    bed.until("the first task's pod to have ended", SOON, async || {
        let pods = runs::pods(&client, run.namespace(), run.name()).await;
        let phases = pods.map_err(|error| error.to_string())?.into_iter();
        let phases: Vec<_> = phases.filter_map(|pod| pod.status?.phase).collect();
        match phases.as_slice() {
            [phase] if phase == "Succeeded" => Ok(()),
            _ => Err(format!("{phases:?}")),
        }
    })
    .await
    .unwrap();
}

/// Tekton's controller is stopped meanwhile, so that no second task waits for a node: the task is created after the run has
/// moved off.
async fn is_left_between_two_tasks(spoil: impl AsyncFn(&Testbed, &str)) {
    let bed = fresh(3).await;
    let run = RunSpec::new("default", "run")
        .task("a", &[])
        .task("b", &["a"])
        .opted_in("true")
        .ending("hang");
    create(&bed, &run).await;
    let first = node_of(&bound_task(&bed, &run, "a").await);
    bed.kill(Part::TektonController).unwrap();
    end_first_task(&bed, &run).await;
    spoil(&bed, &first).await;
    until_event(&bed, &run, "MovedOff").await;
    bed.start_again(Part::TektonController).await.unwrap();
    let second = node_of(&bound_task(&bed, &run, "b").await);
    assert_ne!(first, second);
    bed.until_succeeded(&run, SOON).await.unwrap();
    assert_eq!(until_moved_from(&bed, &run, &first).await, second);
}

#[e2e_test]
async fn a_node_cordoned_between_two_tasks_is_left_at_once() {
    is_left_between_two_tasks(cordon).await;
}

#[e2e_test]
async fn a_node_that_is_not_ready_between_two_tasks_is_left_at_once() {
    is_left_between_two_tasks(async |bed, node| bed.fail_node(node).await.unwrap()).await;
}

#[e2e_test]
async fn a_node_cordoned_during_a_task_is_left_when_the_task_has_ended() {
    let bed = fresh(3).await;
    let run = RunSpec::new("default", "run")
        .task("a", &[])
        .task("b", &[])
        .task("c", &["a", "b"]);
    let run = run.opted_in("true").ending("hang");
    create(&bed, &run).await;
    let a = bound_task(&bed, &run, "a").await;
    let b = bound_task(&bed, &run, "b").await;
    cordon(&bed, &node_of(&a)).await;
    let_end(&bed, &run).await;
    let c = bound_task(&bed, &run, "c").await;
    assert_eq!(node_of(&a), node_of(&b));
    assert_ne!(node_of(&a), node_of(&c));
    bed.until_succeeded(&run, SOON).await.unwrap();
}

#[e2e_test]
async fn a_node_whose_taint_evicts_the_run_is_left_and_a_retry_saves_the_run() {
    let bed = fresh(4).await;
    let run = RunSpec::new("default", "run")
        .task("a", &[])
        .task_field("retries", json!(2));
    let run = run
        .task("b", &["a"])
        .task_field("retries", json!(2))
        .opted_in("true")
        .lasting("8s");
    create(&bed, &run).await;
    let first = node_of(&bound_task(&bed, &run, "a").await);
    let taint = json!([{"key": "maintenance", "effect": "NoExecute"}]);
    patch_node(&bed, &first, json!({"spec": {"taints": taint}})).await;
    let second = until_moved_from(&bed, &run, &first).await;
    bed.until_succeeded(&run, SOON).await.unwrap();
    assert_eq!(node_of(&bound_task(&bed, &run, "b").await), second);
}

#[e2e_test]
async fn a_deleted_node_is_left_although_the_next_task_is_bound_to_another_node() {
    let bed = fresh(3).await;
    let run = RunSpec::new("default", "run")
        .task("a", &[])
        .task_field("retries", json!(2))
        .task("b", &["a"])
        .task_field("retries", json!(2))
        .opted_in("true")
        .lasting("8s");
    let auditor = Auditor::start(&bed).await;
    create(&bed, &run).await;
    let first = node_of(&running_task(&bed, &run, "a").await);
    bed.remove_nodes(std::slice::from_ref(&first)).await.unwrap();
    let second = until_moved_from(&bed, &run, &first).await;
    bed.until_succeeded(&run, SOON).await.unwrap();
    assert_eq!(node_of(&bound_task(&bed, &run, "b").await), second);
    auditor.assert_no_violation_on_live_nodes();
}

/// By itself, the run would wait for the node until its timeout, as a run without the label does.
#[e2e_test]
async fn a_run_whose_node_died_with_a_task_on_it_continues_after_the_remedy_of_the_event() {
    let bed = fresh(3).await;
    let run = RunSpec::new("default", "run")
        .task("a", &[])
        .task_field("retries", json!(1))
        .opted_in("true")
        .ending("hang");
    create(&bed, &run).await;
    let dead = node_of(&bound_task(&bed, &run, "a").await);
    bed.fail_node(&dead).await.unwrap();
    let reported = until_event(&bed, &run, "NodeUnfit").await;
    let taint = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute";
    assert!(reported.contains(&dead) && reported.contains(taint), "{reported}");
    let text = explain_until(&bed, "run", "No new pod can start there: the node is not ready.").await;
    let remedy = format!("`kubectl taint node {dead} {taint}`");
    assert!(section(&text, "Node").contains(&remedy), "{text}");
    kubectl(&bed, &["taint", "node", &dead, taint]);
    let next = until_moved_from(&bed, &run, &dead).await;
    let_succeed(&bed, &run).await;
    assert!(nodes_of(&bed, &run).await.contains(&next));
}

#[e2e_test]
async fn a_drain_that_evicts_the_placeholder_moves_the_run() {
    let bed = fresh(3).await;
    let run = RunSpec::new("default", "run")
        .task("a", &[])
        .task("b", &["a"])
        .opted_in("true")
        .ending("hang");
    let held = create(&bed, &run).await;
    let first = node_of(&bound_task(&bed, &run, "a").await);
    cordon(&bed, &first).await;
    let placeholder = bound_placeholder(&bed, &held).await;
    let api = pods(&bed.client().await.unwrap(), "default");
    api.evict(&placeholder.name_any(), &EvictParams::default())
        .await
        .unwrap();
    let_task_end(&bed, &run, "a").await;
    let second = node_of(&bound_task(&bed, &run, "b").await);
    assert_ne!(first, second);
    assert_eq!(until_moved_from(&bed, &run, &first).await, second);
    let_succeed(&bed, &run).await;
}

/// The scheduler does not requeue a pod with affinity to another pod when that pod is deleted (kubernetes#141354).
#[e2e_test]
async fn a_drain_with_an_evicted_task_that_ends_slowly_moves_the_run() {
    let bed = fresh(3).await;
    let run = RunSpec::new("default", "run")
        .task("a", &[])
        .task_field("retries", json!(2))
        .task("b", &["a"])
        .opted_in("true")
        .lasting("10s");
    let held = create(&bed, &run).await;
    let task = bound_task(&bed, &run, "a").await;
    let first = node_of(&task);
    let placeholder = bound_placeholder(&bed, &held).await;
    let api = pods(&bed.client().await.unwrap(), "default");
    let finalizers = async |names: &[&str]| {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": names}}));
        api.patch(&task.name_any(), &PatchParams::default(), &patch)
            .await
            .unwrap();
    };
    finalizers(&["testbed.pod-affinity.tekton.dev/stays"]).await;
    cordon(&bed, &first).await;
    for pod in [&placeholder, &task] {
        api.evict(&pod.name_any(), &EvictParams::default()).await.unwrap();
    }
    bed.until("a new placeholder that finds no node", SOON, async || {
        let pod = api
            .get(&placeholder.name_any())
            .await
            .map_err(|error| error.to_string())?;
        if pod.uid() != placeholder.uid() && is_unschedulable(&pod) {
            Ok(())
        } else {
            Err(format!("{:?}", pod.status))
        }
    })
    .await
    .unwrap();
    let stays = api.get(&task.name_any()).await.unwrap();
    assert!(
        stays.metadata.deletion_timestamp.is_some(),
        "{:?}",
        stays.metadata
    );
    finalizers(&[]).await;
    until_moved_from(&bed, &run, &first).await;
    bed.until_succeeded(&run, SOON).await.unwrap();
}

#[e2e_test]
async fn if_no_node_fits_an_event_reports_it_with_numbers_and_the_placeholder_is_not_recreated() {
    let bed = fresh(0).await;
    bed.add_nodes(&Nodes::new("small", 2).size("2", "8Gi"))
        .await
        .unwrap();
    let run = small_then("64");
    let made = create(&bed, &run).await;
    let reported = until_event(&bed, &run, "NoNodeFits").await;
    assert!(
        reported.contains("large") && reported.contains("64"),
        "the pod and its requests: {reported}"
    );
    assert!(
        reported.contains("cpu 2 of 64"),
        "the size of the largest node: {reported}"
    );
    let sets = sets(&bed.client().await.unwrap(), "default");
    let set = async || sets.get(&placeholder_name(&made).to_string()).await.unwrap();
    let before = set().await;
    assert_eq!(before.spec.unwrap().replicas, Some(0), "the run has moved off");
    until_reconciled(&bed, &run).await;
    let after = set().await.metadata.generation;
    assert_eq!(
        after, before.metadata.generation,
        "the placeholder is not recreated"
    );
    bed.add_nodes(&Nodes::new("huge", 1).size("96", "256Gi"))
        .await
        .unwrap();
    bed.until_succeeded(&run, SOON).await.unwrap();
}
