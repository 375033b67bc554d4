//! The three strategies with each other and with unlabelled runs.

use crate::support::SOON;
use crate::support::events::until_event;
use crate::support::kubectl::kubectl;
use crate::support::placeholders::{bound_placeholder, placeholder_name, pods, sets, until_no_placeholder};
use crate::support::runs::{create, let_end_once_bound, let_succeed, nodes_of, until_released};
use crate::support::testbeds::fresh;
use kube::api::DeleteParams;
use testbed::runs::{self, RunSpec, State};

#[e2e_test]
async fn colocate_always_runs_may_share_a_node() {
    let bed = fresh(1).await;
    let run = |name| {
        RunSpec::diamond("default", name)
            .opted_in("colocateAlways")
            .ending("hang")
    };
    let runs = [run("one"), run("two")];
    for run in &runs {
        create(&bed, run).await;
    }
    let_end_once_bound(&bed, &runs, &["fetch"]).await;
    for run in &runs {
        bed.until_succeeded(run, SOON).await.unwrap();
    }
}

#[e2e_test]
async fn an_isolated_run_shares_no_node_with_unlabelled_runs_that_start_before_or_after_it() {
    let bed = fresh(2).await;
    let isolated = RunSpec::diamond("default", "isolated")
        .opted_in("colocateCompleted")
        .ending("hang");
    let before = RunSpec::new("default", "before").task("only", &[]).ending("hang");
    create(&bed, &before).await;
    let client = bed.client().await.unwrap();
    bed.until("the unlabelled run's pod to be bound", SOON, async || {
        let nodes = runs::nodes(&runs::pods(&client, "default", "before").await.unwrap());
        if nodes.is_empty() { Err("none") } else { Ok(()) }
    })
    .await
    .unwrap();
    create(&bed, &isolated).await;
    until_released(&bed, &isolated).await;
    // Three more unlabelled runs while the isolated run is running: all must be on the other node.
    let after: Vec<_> = ["x", "y", "z"]
        .map(|name| RunSpec::new("default", name).task("only", &[]).lasting("1s"))
        .into();
    for run in &after {
        create(&bed, run).await;
    }
    for run in &after {
        bed.until_succeeded(run, SOON).await.unwrap();
    }
    for run in [&before, &isolated] {
        let_succeed(&bed, run).await;
    }
    let own = nodes_of(&bed, &isolated).await;
    assert_eq!(own.len(), 1);
    for run in after.iter().chain([&before]) {
        assert!(
            own.is_disjoint(&nodes_of(&bed, run).await),
            "{} was on the isolated run's node",
            run.name()
        );
    }
}

#[e2e_test]
async fn colocate_completed_frees_its_node_when_the_run_is_done() {
    let bed = fresh(1).await;
    let one = RunSpec::diamond("default", "one").opted_in("true").lasting("1s");
    create(&bed, &one).await;
    bed.until_succeeded(&one, SOON).await.unwrap();
    until_no_placeholder(&bed, "default").await;
    let two = RunSpec::diamond("default", "two").opted_in("true").lasting("1s");
    create(&bed, &two).await;
    bed.until_succeeded(&two, SOON).await.unwrap();
}

#[e2e_test]
async fn isolate_always_reserves_its_node_until_the_run_is_deleted() {
    let bed = fresh(1).await;
    let client = bed.client().await.unwrap();
    let one = RunSpec::diamond("default", "one")
        .opted_in("isolateAlways")
        .lasting("1s");
    let run = create(&bed, &one).await;
    bed.until_succeeded(&one, SOON).await.unwrap();
    let (set, pod) = (placeholder_name(&run).to_string(), placeholder_name(&run).pod());
    let sets = sets(&client, "default");
    bed.until("the StatefulSet to be gone", SOON, async || {
        if sets.get_opt(&set).await.unwrap().is_none() {
            Ok(())
        } else {
            Err("it exists")
        }
    })
    .await
    .unwrap();
    let kept = bound_placeholder(&bed, &run).await;
    let owners = kept.metadata.owner_references.unwrap();
    assert!(
        owners.iter().all(|owner| owner.kind == "PipelineRun"),
        "{owners:?}"
    );
    let annotations = kept.metadata.annotations.unwrap();
    assert_eq!(annotations[placement::keys::SAFE_TO_EVICT], "true");
    assert!(!annotations.contains_key(placement::keys::DO_NOT_DISRUPT));

    let two = RunSpec::diamond("default", "two").opted_in("true").lasting("1s");
    create(&bed, &two).await;
    // This event proves that the scheduler has tried the only node and the controller has read the result.
    until_event(&bed, &two, "WaitingForNode").await;
    let runs = runs::runs(&client, "default");
    let waiting = runs.get("two").await.unwrap();
    assert_eq!(runs::state(&waiting), State::Pending, "the node is reserved");
    runs.delete("one", &DeleteParams::default()).await.unwrap();
    bed.until_succeeded(&two, SOON).await.unwrap();
    assert!(pods(&client, "default").get_opt(&pod).await.unwrap().is_none());
}

#[e2e_test]
async fn a_node_that_a_finished_run_reserves_can_be_drained_like_any_other() {
    let bed = fresh(1).await;
    let run = RunSpec::new("default", "one")
        .task("only", &[])
        .opted_in("isolateAlways")
        .lasting("1s");
    let made = create(&bed, &run).await;
    bed.until_succeeded(&run, SOON).await.unwrap();
    until_event(&bed, &run, "CleanedUp").await;
    let node = bound_placeholder(&bed, &made)
        .await
        .spec
        .unwrap()
        .node_name
        .unwrap();
    // The run's own pods have ended.
    kubectl(
        &bed,
        &[
            "drain",
            &node,
            "--ignore-daemonsets",
            "--delete-emptydir-data",
            "--timeout=90s",
        ],
    );
    let pod = placeholder_name(&made).pod();
    let pods = pods(&bed.client().await.unwrap(), "default");
    assert!(pods.get_opt(&pod).await.unwrap().is_none(), "it is evicted");
}

#[e2e_test]
async fn an_unknown_strategy_is_refused_with_the_list_of_valid_ones() {
    let bed = &crate::support::testbeds::installed().await;
    let run = RunSpec::diamond("default", "misspelt").opted_in("colocateSometimes");
    let refused = run
        .create(&bed.client().await.unwrap())
        .await
        .unwrap_err()
        .to_string();
    for word in [
        "colocateSometimes",
        "true",
        "false",
        "colocateAlways",
        "colocateCompleted",
        "isolateAlways",
    ] {
        assert!(refused.contains(word), "{word} is missing in: {refused}");
    }
}
