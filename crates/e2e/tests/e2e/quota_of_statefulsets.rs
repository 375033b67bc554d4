//! Quotas of StatefulSets: Tekton creates a StatefulSet for each PVC of a run, and fails the run if it is rejected. The
//! placeholder leaves its place to Tekton.

use crate::support::SOON;
use crate::support::events::{notes, reasons, until_event};
use crate::support::objects::{quota, until_enforced};
use crate::support::placeholders::{sets, until_no_placeholder};
use crate::support::pvcs::{create_pvc, with_pvc};
use crate::support::runs::{create, let_end, let_succeed};
use crate::support::testbeds::fresh;
use futures::future::join_all;
use kube::api::{Api, ListParams};
use serde_json::json;
use testbed::apply::apply_all;
use testbed::runs::RunSpec;
use testbed::{Nodes, Part, Testbed};

const SETS: &str = "count/statefulsets.apps";

/// A run that mounts its own PVC.
async fn run_with_claim(bed: &Testbed, name: &str) -> RunSpec {
    unlabelled_run_with_claim(bed, name).await.opted_in("true")
}

async fn unlabelled_run_with_claim(bed: &Testbed, name: &str) -> RunSpec {
    create_pvc(bed, name, None).await;
    with_pvc(
        RunSpec::new("default", name).task("only", &[]).lasting("1s"),
        name,
    )
}

#[e2e_test]
async fn a_run_whose_quota_has_room_only_for_tektons_assistant_starts_without_a_placeholder() {
    let bed = fresh(2).await;
    quota(&bed, "default", SETS, "1").await;
    create_pvc(&bed, "alone", None).await;
    let run = RunSpec::new("default", "alone").task("only", &[]).lasting("1s");
    let run = with_pvc(run, "$(params.claim)").opted_in("true");
    let run = run.spec("params", json!([{"name": "claim", "value": "alone"}]));
    create(&bed, &run).await;
    until_event(&bed, &run, "PlaceholderRefused").await;
    bed.configure(&[("hold-deadline", Some("5s"))]).await.unwrap();
    bed.until_succeeded(&run, SOON).await.unwrap();
    let reported = reasons(&bed.client().await.unwrap(), &run).await;
    assert!(
        reported.contains(&"HoldDeadlineExceeded".to_owned()),
        "{reported:?}"
    );
}

/// Without a status, a quota rejects nothing: the placeholder would be created, and Tekton's assistant rejected later.
#[e2e_test]
async fn a_quota_whose_status_is_not_written_yet_counts_the_statefulsets_that_exist() {
    let bed = fresh(2).await;
    let run = run_with_claim(&bed, "alone").await;
    bed.pause(Part::ControllerManager).unwrap();
    let metadata = |name: &str| json!({"name": name, "namespace": "default"});
    let labels = json!({"app": "database"});
    let database = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata("database"),
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "testbed.invalid/main"}]},
        }},
    });
    let two = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata("tight"), "spec": {"hard": {SETS: "2"}},
    });
    let client = bed.client().await.unwrap();
    apply_all(&client, &[database, two]).await.unwrap();
    create(&bed, &run).await;
    until_event(&bed, &run, "PlaceholderRefused").await;
    bed.resume(Part::ControllerManager).unwrap();
    until_enforced(&bed, &Api::namespaced(client, "default")).await;
    bed.configure(&[("hold-deadline", Some("5s"))]).await.unwrap();
    bed.until_succeeded(&run, SOON).await.unwrap();
}

/// Each run needs two StatefulSets. The first run starts at once, and the others when there is room again.
#[e2e_test]
async fn concurrent_runs_with_a_quota_for_one_and_a_half_of_them_run_one_after_another() {
    let bed = fresh(4).await;
    quota(&bed, "default", SETS, "3").await;
    let runs = ["one", "two", "three"].map(|name| run_with_claim(&bed, name));
    let runs: Vec<_> = join_all(runs)
        .await
        .into_iter()
        .map(|run| run.ending("hang"))
        .collect();
    join_all(runs.iter().map(|run| create(&bed, run))).await;
    let client = bed.client().await.unwrap();
    // The number of runs that waited, and the notes of all runs.
    let waiting = async || {
        let reported = join_all(runs.iter().map(|run| notes(&client, run))).await;
        let is_refusal = |(reason, _): &(String, String)| reason == "PlaceholderRefused";
        let waiting = reported.iter().filter(|notes| notes.iter().any(is_refusal));
        (waiting.count(), reported)
    };
    bed.until("two runs to wait", SOON, async || match waiting().await {
        (2, _) => Ok(()),
        other => Err(other),
    })
    .await
    .unwrap();
    for run in &runs {
        let_end(&bed, run).await;
    }
    for run in &runs {
        bed.until_succeeded(run, SOON).await.unwrap();
    }
    let (waited, reported) = waiting().await;
    assert_eq!(waited, 2, "{reported:#?}");
    until_no_placeholder(&bed, "default").await;
}

/// Without the labels, both runs would run at the same time.
#[e2e_test]
async fn at_the_end_of_its_hold_a_run_gets_the_quota_that_the_placeholder_of_another_run_uses() {
    let bed = fresh(4).await;
    bed.configure(&[("hold-deadline", Some("5s"))]).await.unwrap();
    quota(&bed, "default", SETS, "2").await;
    let long = run_with_claim(&bed, "long").await.ending("hang");
    create(&bed, &long).await;
    until_event(&bed, &long, "Released").await;
    let other = run_with_claim(&bed, "other").await;
    create(&bed, &other).await;
    until_event(&bed, &other, "MadeRoom").await;
    bed.until_succeeded(&other, SOON).await.unwrap();
    until_event(&bed, &long, "PlaceholderRefused").await;
    let_succeed(&bed, &long).await;
    until_no_placeholder(&bed, "default").await;
}

/// The older run has a placeholder without a node when both holds end. The quota has room for Tekton's assistants only.
#[e2e_test]
async fn two_runs_whose_holds_end_together_get_the_quota_that_a_placeholder_without_a_node_uses() {
    let bed = fresh(0).await;
    bed.configure(&[("hold-deadline", Some("5s"))]).await.unwrap();
    quota(&bed, "default", SETS, "2").await;
    let runs = join_all(["one", "two"].map(|name| run_with_claim(&bed, name))).await;
    join_all(runs.iter().map(|run| create(&bed, run))).await;
    for run in &runs {
        until_event(&bed, run, "Released").await;
    }
    bed.add_nodes(&Nodes::new("late", 2)).await.unwrap();
    for run in &runs {
        bed.until_succeeded(run, SOON).await.unwrap();
    }
}

async fn until_statefulsets(bed: &Testbed, number: usize) {
    let sets = sets(&bed.client().await.unwrap(), "default");
    bed.until(format!("{number} StatefulSets"), SOON, async || {
        let listed = sets.list(&ListParams::default()).await;
        match listed.map_err(|error| error.to_string())?.items.len() {
            found if found == number => Ok(()),
            found => Err(found.to_string()),
        }
    })
    .await
    .unwrap();
}

/// The run without the label takes the place of the other run's assistant while the placeholder has no node.
#[e2e_test]
async fn a_run_whose_node_is_found_waits_until_the_quota_has_room_for_its_assistant() {
    let bed = fresh(0).await;
    quota(&bed, "default", SETS, "2").await;
    let labelled = run_with_claim(&bed, "labelled").await;
    create(&bed, &labelled).await;
    until_statefulsets(&bed, 1).await;
    let other = unlabelled_run_with_claim(&bed, "unlabelled").await.ending("hang");
    create(&bed, &other).await;
    until_statefulsets(&bed, 2).await;
    bed.add_nodes(&Nodes::new("late", 2)).await.unwrap();
    until_event(&bed, &labelled, "PlaceholderRefused").await;
    let_succeed(&bed, &other).await;
    bed.until_succeeded(&labelled, SOON).await.unwrap();
    let reported = reasons(&bed.client().await.unwrap(), &labelled).await;
    assert!(!reported.contains(&"MadeRoom".to_owned()), "{reported:?}");
}
