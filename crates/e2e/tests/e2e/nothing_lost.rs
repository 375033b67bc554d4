//! Whatever of ours dies or restarts, no admission call is lost that could have been saved, and no run.
//!
//! The front of the testbed stands for the Service: it learns of readiness a fifth of a second late. It leaves out
//! the node, which cannot be lost here, and the lag of real endpoints, which is longer; `--drain-delay` is for that.

use crate::beds::{SOON, create, fresh, nodes_of, until_no_placeholder};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use placement::keys;
use serde_json::json;
use std::time::Duration;
use testbed::runs::RunSpec;
use testbed::{Part, Testbed};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Pod creations a second through the API server.
const RATE: u32 = 50;

/// Creates pods of an enrolled run in dry run, each of which goes through the webhook, and counts what came of it.
fn load(pods: Api<Pod>, calls: u32) -> JoinHandle<Vec<String>> {
    tokio::spawn(async move {
        let mut ticks = interval(Duration::from_secs(1) / RATE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut under_way = Vec::new();
        for number in 0..calls {
            ticks.tick().await;
            let pods = pods.clone();
            under_way.push(tokio::spawn(async move { call(&pods, number).await }));
        }
        let mut lost = Vec::new();
        for call in under_way {
            lost.extend(call.await.unwrap().err());
        }
        lost
    })
}

async fn call(pods: &Api<Pod>, number: u32) -> Result<(), String> {
    let pod = json!({
        "metadata": {"name": format!("call-{number}"), "labels": {keys::GROUP: "load"}},
        "spec": {"containers": [{"name": "main", "image": "testbed.invalid/main"}]},
    });
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let created = pods.create(&dry_run, &serde_json::from_value(pod).unwrap()).await;
    let created = created.map_err(|error| error.to_string())?;
    created
        .spec
        .and_then(|spec| spec.affinity)
        .map(drop)
        .ok_or_else(|| "admitted without terms".to_owned())
}

fn pods(client: kube::Client) -> Api<Pod> {
    Api::namespaced(client, "default")
}

async fn until_ready(bed: &Testbed, admin: u16) {
    bed.until("the replica to be ready", SOON, async || {
        testbed::probe::get(admin, "/readyz").await
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rolling_restarts_of_the_webhook_lose_no_call() {
    let bed = testbed::Testbed::start(testbed::Options::default())
        .await
        .unwrap();
    bed.add_nodes(&testbed::Nodes::new("node", 1)).await.unwrap();
    let installed = bed.install_pod_affinity().await.unwrap();
    let calls = 40 * RATE;
    let load = load(pods(bed.client().await.unwrap()), calls);
    let start = Instant::now();
    for round in 0..2 {
        for replica in 0..2 {
            bed.stop(Part::Webhook(replica)).unwrap();
            bed.start_again(Part::Webhook(replica)).await.unwrap();
            until_ready(&bed, installed.webhook_admin[usize::from(replica)]).await;
        }
        println!(
            "round {round} of rolling restarts ended after {:.1?}",
            start.elapsed()
        );
    }
    let lost = load.await.unwrap();
    println!("{} of {calls} calls lost in four restarts", lost.len());
    assert!(lost.is_empty(), "{lost:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_go_through_while_the_leader_is_killed_again_and_again() {
    const RUNS: usize = 30;
    let bed = fresh(RUNS).await;
    let runs: Vec<_> = (0..RUNS)
        .map(|number| {
            RunSpec::diamond("default", &format!("run-{number}"))
                .opted_in("true")
                .lasting("1s")
        })
        .collect();
    for (number, run) in runs.iter().enumerate() {
        create(&bed, run).await;
        if number % 10 == 5 {
            // One of the two leads; which, does not matter: over the test both are killed.
            let replica = u8::from(number % 20 == 5);
            bed.kill(Part::Controller(replica)).unwrap();
            bed.start_again(Part::Controller(replica)).await.unwrap();
        }
    }
    for run in &runs {
        bed.until_succeeded(run, SOON * 2).await.unwrap();
        assert_eq!(nodes_of(&bed, run).await.len(), 1, "{}", run.name());
    }
    until_no_placeholder(&bed, "default").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_api_server_loses_no_run() {
    let bed = fresh(4).await;
    let runs: Vec<_> = (0..4)
        .map(|number| {
            RunSpec::diamond("default", &format!("run-{number}"))
                .opted_in("true")
                .lasting("2s")
        })
        .collect();
    for run in &runs {
        create(&bed, run).await;
    }
    bed.kill(Part::ApiServer).unwrap();
    bed.start_again(Part::ApiServer).await.unwrap();
    for run in &runs {
        bed.until_succeeded(run, SOON * 2).await.unwrap();
        assert_eq!(nodes_of(&bed, run).await.len(), 1, "{}", run.name());
    }
    until_no_placeholder(&bed, "default").await;
}
