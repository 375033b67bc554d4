//! Caps on the number of labelled runs.

use crate::support::SOON;
use crate::support::cli::until_output_contains;
use crate::support::controller::{configure, until_reconciled};
use crate::support::events::until_event;
use crate::support::placeholders::{placeholder_name, sets};
use crate::support::runs::{bound_task, create, let_end};
use crate::support::testbeds::fresh;
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams};
use placement::keys;
use std::time::Duration;
use testbed::Testbed;
use testbed::runs::{self, RunSpec};

fn run(namespace: &str, name: &str) -> RunSpec {
    RunSpec::new(namespace, name)
        .task("only", &[])
        .lasting("1s")
        .opted_in("true")
}

async fn read(bed: &Testbed, run: &RunSpec) -> DynamicObject {
    let runs = runs::runs(&bed.client().await.unwrap(), run.namespace());
    runs.get(run.name()).await.unwrap()
}

fn is_held(run: &DynamicObject) -> bool {
    run.data["spec"]["status"].as_str() == Some(keys::PENDING)
}

#[e2e_test]
async fn a_run_over_a_cap_is_held_in_order_and_its_deadline_does_not_count() {
    let bed = fresh(6).await;
    let caps = [
        ("max-runs-per-namespace", Some("1")),
        ("max-runs-in-namespaces", Some("closed=0")),
        ("hold-deadline", Some("5s")),
    ];
    configure(&bed, &caps).await;
    let (team, other, closed) = (
        bed.namespace("team").await.unwrap(),
        bed.namespace("other").await.unwrap(),
        bed.namespace("closed").await.unwrap(),
    );
    let first = run(&team, "first").ending("hang");
    create(&bed, &first).await;
    bound_task(&bed, &first, "only").await;
    let waiting = [run(&team, "second"), run(&team, "third"), run(&closed, "never")];
    for run in &waiting {
        create(&bed, run).await;
        let reason = until_event(&bed, run, "OverCap").await;
        let key = if run.namespace() == closed {
            "max-runs-in-namespaces"
        } else {
            "max-runs-per-namespace"
        };
        assert!(reason.contains(key), "{reason}");
    }
    let elsewhere = run(&other, "elsewhere");
    create(&bed, &elsewhere).await;
    bed.until_succeeded(&elsewhere, SOON).await.unwrap();
    // The deadline of the hold.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let client = bed.client().await.unwrap();
    for run in &waiting {
        let run = until_reconciled(&bed, run).await;
        assert!(is_held(&run), "{run:?}");
        let set = sets(&client, run.metadata.namespace.as_deref().unwrap());
        assert!(
            set.get_opt(placeholder_name(&run).as_str())
                .await
                .unwrap()
                .is_none()
        );
    }
    let explain = format!("explain -n {team} third");
    until_output_contains(&bed, &explain, "1 older run").await;
    let_end(&bed, &first).await;
    bed.until_succeeded(&waiting[0], SOON).await.unwrap();
    bed.until_succeeded(&waiting[1], SOON).await.unwrap();
    assert!(
        is_held(&read(&bed, &waiting[2]).await),
        "its namespace has no room"
    );
    configure(&bed, &[("max-runs-in-namespaces", Some(""))]).await;
    bed.until_succeeded(&waiting[2], SOON).await.unwrap();
}

#[e2e_test]
async fn the_cap_of_the_cluster_limits_the_placeholders_of_all_namespaces() {
    const RUNS: usize = 8;
    let bed = fresh(RUNS).await;
    configure(&bed, &[("max-runs", Some("2"))]).await;
    let namespaces = [
        bed.namespace("one").await.unwrap(),
        bed.namespace("two").await.unwrap(),
    ];
    let runs: Vec<_> = (0..RUNS)
        .map(|number| run(&namespaces[number % 2], &format!("run-{number}")))
        .collect();
    for run in &runs {
        create(&bed, run).await;
    }
    let all = Api::<StatefulSet>::all(bed.client().await.unwrap());
    let mut most = 0;
    bed.until("all runs to succeed", SOON, async || {
        // One list: between two lists, a placeholder can make room for another.
        let sets = all.list(&ListParams::default()).await;
        let sets = sets.map_err(|error| error.to_string())?.items;
        let is_placeholder = |set: &&StatefulSet| {
            set.namespace().is_some_and(|of| namespaces.contains(&of))
                && set.metadata.deletion_timestamp.is_none()
        };
        let placeholders = sets.iter().filter(is_placeholder).count();
        most = most.max(placeholders);
        for run in &runs {
            let run = read(&bed, run).await;
            if runs::state(&run) != runs::State::Succeeded {
                return Err(format!("{placeholders} placeholders"));
            }
        }
        Ok(())
    })
    .await
    .unwrap();
    assert!((1..=2).contains(&most), "{most} placeholders at the same time");
}
