//! However a run ends, all objects of pod-affinity are removed, and a status that users set is never overwritten.

use crate::support::SOON;
use crate::support::events::until_event;
use crate::support::placeholders::{bound_placeholder, until_no_placeholder};
use crate::support::runs::{create, held_for_good, let_end_once_bound, set_status};
use crate::support::testbeds::{fresh, installed};
use futures::future::join_all;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams};
use std::time::Duration;
use testbed::Testbed;
use testbed::runs::{self, RunSpec, State};

async fn delete(bed: &Testbed, run: &RunSpec) {
    let api = runs::runs(&bed.client().await.unwrap(), run.namespace());
    api.delete(run.name(), &DeleteParams::default()).await.unwrap();
}

fn failed(run: &DynamicObject) -> bool {
    matches!(runs::state(run), State::Failed(_))
}

#[e2e_test]
async fn no_object_is_left_after_success_and_after_failure() {
    let bed = &installed().await;
    let namespace = bed.namespace("ended").await.unwrap();
    let good = RunSpec::diamond(&namespace, "good").opted_in("true");
    let bad = RunSpec::diamond(&namespace, "bad")
        .opted_in("true")
        .ending("fail");
    create(bed, &good).await;
    create(bed, &bad).await;
    bed.until_succeeded(&good, SOON).await.unwrap();
    bed.until_run(&bad, "to fail", SOON, failed).await.unwrap();
    until_no_placeholder(bed, &namespace).await;
}

#[e2e_test]
async fn a_run_cancelled_while_held_stays_cancelled() {
    let bed = fresh(0).await;
    let spec = RunSpec::diamond("default", "run").opted_in("true");
    create(&bed, &spec).await;
    until_event(&bed, &spec, "WaitingForNode").await;
    set_status(&bed, &spec, "Cancelled").await;
    let run = bed
        .until_run(&spec, "to be cancelled", SOON, failed)
        .await
        .unwrap();
    assert_eq!(run.data["spec"]["status"], "Cancelled");
    until_no_placeholder(&bed, "default").await;
}

#[e2e_test]
async fn a_run_stopped_while_held_still_runs_its_finally_tasks_on_one_node() {
    let bed = fresh(0).await;
    // The user has removed the hold while no node exists. Each waiting pod is tried again after a pause, and so is the
    // placeholder: the tasks hang until both are bound, in any order.
    let spec = RunSpec::diamond("default", "run")
        .finally("report")
        .finally("tidy")
        .opted_in("true")
        .ending("hang");
    create(&bed, &spec).await;
    until_event(&bed, &spec, "WaitingForNode").await;
    // Tekton starts the finally tasks as soon as it reads this status. pod-affinity's controller may read the status later.
    set_status(&bed, &spec, "CancelledRunFinally").await;
    bed.add_nodes(&testbed::Nodes::new("late", 5)).await.unwrap();
    let_end_once_bound(&bed, [&spec], &["report", "tidy"]).await;
    bed.until_run(&spec, "to be cancelled", SOON, failed)
        .await
        .unwrap();
    let nodes = crate::support::runs::nodes_of(&bed, &spec).await;
    assert_eq!(nodes.len(), 1, "{nodes:?}");
    until_no_placeholder(&bed, "default").await;
}

#[e2e_test]
async fn a_run_cancelled_while_running_leaves_no_object() {
    let bed = &installed().await;
    let namespace = bed.namespace("cancelled").await.unwrap();
    let spec = RunSpec::diamond(&namespace, "run")
        .opted_in("true")
        .ending("hang");
    let run = create(bed, &spec).await;
    bound_placeholder(bed, &run).await;
    bed.until_run(&spec, "to have a task", SOON, |run| {
        run.data.pointer("/status/childReferences/0").is_some()
    })
    .await
    .unwrap();
    set_status(bed, &spec, "Cancelled").await;
    bed.until_run(&spec, "to be cancelled", SOON, failed)
        .await
        .unwrap();
    until_no_placeholder(bed, &namespace).await;
}

#[e2e_test]
async fn a_run_deleted_while_held_leaves_no_object() {
    let bed = fresh(0).await;
    let spec = RunSpec::diamond("default", "run").opted_in("true");
    create(&bed, &spec).await;
    until_event(&bed, &spec, "WaitingForNode").await;
    delete(&bed, &spec).await;
    until_no_placeholder(&bed, "default").await;
}

#[e2e_test]
async fn a_namespace_deleted_while_a_run_is_held_there_ends() {
    let bed = fresh(0).await;
    let namespace = bed.namespace("deleted-whole").await.unwrap();
    held_for_good(&bed, &namespace, "run").await;
    bed.remove_namespace(&namespace).await.unwrap();
    let namespaces: Api<Namespace> = Api::all(bed.client().await.unwrap());
    bed.until("the namespace to end", SOON, async || {
        match namespaces.get_opt(&namespace).await {
            Ok(None) => Ok(()),
            it => Err(format!("{it:?}")),
        }
    })
    .await
    .unwrap();
}

/// A reservation moves to the next run at this time. Many runs, so that runs are deleted at each moment of the move.
#[e2e_test]
async fn isolated_runs_deleted_as_soon_as_they_are_done_leave_no_object() {
    let bed = &installed().await;
    let namespace = bed.namespace("deleted-done").await.unwrap();
    let specs: Vec<_> = (0..12).map(|index| reserving(&namespace, index)).collect();
    let ends = specs.iter().enumerate().map(async |(index, spec)| {
        create(bed, spec).await;
        bed.until_succeeded(spec, SOON).await.unwrap();
        tokio::time::sleep(Duration::from_millis(30) * u32::try_from(index).unwrap()).await;
        delete(bed, spec).await;
    });
    join_all(ends).await;
    until_no_placeholder(bed, &namespace).await;
    let revisions: Api<ControllerRevision> = Api::namespaced(bed.client().await.unwrap(), &namespace);
    bed.until("no revision of a placeholder to be left", SOON, async || {
        let left = revisions.list(&ListParams::default()).await;
        let left = left.map_err(|error| error.to_string())?.items;
        if left.is_empty() {
            Ok(())
        } else {
            Err(left.len().to_string())
        }
    })
    .await
    .unwrap();
}

fn reserving(namespace: &str, index: usize) -> RunSpec {
    RunSpec::new(namespace, &format!("run-{index}"))
        .task("only", &[])
        .opted_in("isolateAlways")
        .lasting("1s")
}

#[e2e_test]
async fn a_run_deleted_while_running_leaves_no_object_and_its_name_can_be_used_again() {
    let bed = &installed().await;
    let namespace = bed.namespace("deleted").await.unwrap();
    for strategy in ["true", "isolateAlways"] {
        let spec = RunSpec::diamond(&namespace, "run")
            .opted_in(strategy)
            .ending("hang");
        let run = create(bed, &spec).await;
        bound_placeholder(bed, &run).await;
        delete(bed, &spec).await;
        until_no_placeholder(bed, &namespace).await;
    }
    let again = RunSpec::diamond(&namespace, "run").opted_in("true");
    create(bed, &again).await;
    bed.until_succeeded(&again, SOON).await.unwrap();
}
