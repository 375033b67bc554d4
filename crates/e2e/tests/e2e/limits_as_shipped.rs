//! Many runs at once with the shipped client limits of Tekton, the scheduler and kube-controller-manager: if a placeholder
//! cost kube-controller-manager too many requests, holds would be long.

use crate::support::auditor::Auditor;
use crate::support::pool;
use crate::support::runs::create;
use futures::future::join_all;
use std::time::{Duration, Instant};
use testbed::runs::RunSpec;
use testbed::{Limits, Nodes, Options};

const RUNS: usize = 30;
/// Five times the duration on two cores.
const DEADLINE: Duration = Duration::from_secs(90);
/// Four times the measured hold.
const LONGEST_HOLD: Duration = Duration::from_secs(15);

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
        let left = DEADLINE.saturating_sub(begun.elapsed());
        bed.until_succeeded(run, left).await.unwrap();
    }
    let hold = auditor.longest_hold();
    println!(
        "{RUNS} runs took {:.1?}, the longest hold {hold:.1?}",
        begun.elapsed()
    );
    assert!(hold < LONGEST_HOLD, "a run was held for {hold:?}");
    auditor.assert_no_violation();
}
