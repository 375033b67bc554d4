//! The shipped client limits of Tekton, the scheduler and kube-controller-manager. If a placeholder cost kube-controller-manager
//! too many requests, holds would be long. Tekton's controller has two workers for all TaskRuns.

use crate::support::auditor::Auditor;
use crate::support::load::Counted;
use crate::support::pool;
use crate::support::runs::{bound_task, create, let_end};
use crate::support::testbeds::kill_webhooks;
use futures::future::join_all;
use std::time::{Duration, Instant};
use testbed::runs::{RunSpec, task_runs};
use testbed::{Limits, Nodes, Options, Testbed};

const RUNS: usize = 30;
const DEADLINE: Duration = Duration::from_secs(90);

#[e2e_test(second)]
async fn thirty_runs_at_once_are_not_held_for_long_with_client_limits_as_shipped() {
    let bed = pool::start_exactly(Options {
        limits: Limits::AsShipped,
        ..Options::default()
    })
    .await;
    bed.install_pod_affinity().await.unwrap();
    bed.add_nodes(&Nodes::new("node", RUNS)).await.unwrap();
    let auditor = Auditor::start(&bed).await;
    let runs: Vec<_> = (0..RUNS)
        .map(|number| RunSpec::new("default", &format!("run-{number}")))
        .map(|run| run.task("only", &[]).opted_in("true"))
        .collect();
    let begun = Instant::now();
    join_all(runs.iter().map(|run| create(&bed, run))).await;
    for run in &runs {
        bed.until_succeeded(run, DEADLINE).await.unwrap();
    }
    let (took, hold) = (begun.elapsed(), auditor.longest_hold());
    println!("{RUNS} runs took {took:.1?}, the longest hold {hold:.1?}");
    // A quarter on an idle machine. Both are longer on a slower machine.
    assert!(hold < took / 2, "a run was held for {hold:?}");
    auditor.assert_no_violation();
}

/// Tekton tries a pod three times within 30 s, and its worker sleeps meanwhile and for 40 s after the last try.
const BLOCKED: Duration = Duration::from_secs(45);

/// Creates two runs whose second tasks get no answer of a webhook, and returns how long an unlabelled run takes meanwhile.
async fn beside_two_lost_calls(limits: Limits) -> Duration {
    let bed = pool::start_exactly(Options {
        limits,
        ..Options::default()
    })
    .await;
    bed.install_pod_affinity().await.unwrap();
    bed.add_nodes(&Nodes::new("node", 3)).await.unwrap();
    let flag = [("enable-wait-exponential-backoff", "true")];
    bed.feature_flags(&flag).await.unwrap();
    lose_two_calls(&bed).await;
    let since = Instant::now();
    let unlabelled = RunSpec::new("default", "unlabelled").task("only", &[]);
    create(&bed, &unlabelled).await;
    bed.until_succeeded(&unlabelled, DEADLINE).await.unwrap();
    let took = since.elapsed();
    until_reported(&bed, "left-b", "timed out waiting for the condition").await;
    took
}

/// Waits until the TaskRun has failed with this message of Tekton, which does not name the cause.
async fn until_reported(bed: &Testbed, task_run: &str, message: &str) {
    let task_runs = task_runs(&bed.client().await.unwrap(), "default");
    bed.until(format!("{task_run} to fail: {message}"), DEADLINE, async || {
        let found = task_runs.get(task_run).await.map_err(|error| error.to_string())?;
        let reported = found.data["status"]["conditions"][0]["message"].as_str();
        match reported.unwrap_or_default() {
            text if text.contains(message) => Ok(()),
            text => Err(text.to_owned()),
        }
    })
    .await
    .unwrap();
}

async fn lose_two_calls(bed: &Testbed) {
    let client = bed.client().await.unwrap();
    let runs = ["left", "right"].map(|name| {
        let run = RunSpec::new("default", name).task("a", &[]).task("b", &["a"]);
        run.opted_in("true").ending("hang")
    });
    for run in &runs {
        create(bed, run).await;
        bound_task(bed, run, "a").await;
    }
    let before = Counted::now(&client).await;
    kill_webhooks(bed);
    for run in &runs {
        let_end(bed, run).await;
    }
    bed.until("two calls to be lost", DEADLINE, async || {
        match Counted::now(&client).await.since(before).rejections {
            lost if lost >= 2 => Ok(()),
            lost => Err(format!("{lost} are lost")),
        }
    })
    .await
    .unwrap();
}

#[e2e_test(webhook, second)]
async fn with_the_backoff_flag_two_lost_calls_delay_all_runs_unless_tekton_has_more_threads() {
    let shipped = beside_two_lost_calls(Limits::AsShipped).await;
    let more = beside_two_lost_calls(Limits::default()).await;
    println!("an unlabelled run beside two lost calls took {shipped:.1?}, and {more:.1?} with more threads");
    assert!(shipped > BLOCKED, "{shipped:?}");
    assert!(more < BLOCKED / 2, "{more:?}");
}
