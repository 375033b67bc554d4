//! The CPU time that the reduced settings of a testbed save: the same runs and the same idle time with both kinds of
//! settings.

use crate::support::SOON;
use crate::support::pool;
use futures::{StreamExt, stream};
use std::time::Duration;
use testbed::runs::RunSpec;
use testbed::{CpuTimes, Nodes, Options, Settings, Testbed};

/// Number of measured runs, and of earlier runs that fill caches.
const RUNS: usize = 40;
const FIRST: usize = 8;
const AT_ONCE: usize = 8;
const IDLE: Duration = Duration::from_secs(20);

async fn run(bed: &Testbed, numbers: std::ops::Range<usize>) {
    let client = bed.client().await.unwrap();
    let runs = numbers.map(|number| RunSpec::diamond("default", &format!("run-{number}")));
    let ended = stream::iter(runs).map(async |run| {
        run.create(&client).await.unwrap();
        bed.until_succeeded(&run, SOON).await.unwrap();
    });
    ended.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await;
}

/// Prints the CPU time since `before` by part, and returns the sum.
fn since(bed: &Testbed, before: &CpuTimes, what: &str) -> Duration {
    let now = bed.cpu_times();
    let computed = now
        .iter()
        .map(|(part, time)| (part, time.saturating_sub(before[part])));
    let computed: Vec<_> = computed.filter(|(_, time)| !time.is_zero()).collect();
    let all = computed.iter().map(|(_, time)| *time).sum();
    println!("{what}: {all:.2?}");
    for (part, time) in computed {
        println!("  {time:.2?} {part}");
    }
    all
}

/// CPU time of the runs, and of an idle testbed.
async fn measure(settings: Settings) -> (Duration, Duration) {
    let bed = pool::start_exactly(Options {
        settings,
        ..Options::default()
    })
    .await;
    bed.add_nodes(&Nodes::new("node", 20)).await.unwrap();
    run(&bed, 0..FIRST).await;
    let before = bed.cpu_times();
    run(&bed, FIRST..FIRST + RUNS).await;
    let runs = since(&bed, &before, &format!("{settings:?}, {RUNS} runs"));
    let before = bed.cpu_times();
    tokio::time::sleep(IDLE).await;
    (
        runs,
        since(&bed, &before, &format!("{settings:?}, {IDLE:?} without work")),
    )
}

#[e2e_test(nightly)]
async fn reduced_settings_cost_less_than_shipped_ones() {
    let (shipped, reduced) = (measure(Settings::Shipped).await, measure(Settings::Reduced).await);
    assert!(
        reduced.0 < shipped.0 && reduced.1 < shipped.1,
        "{reduced:?} {shipped:?}"
    );
}
