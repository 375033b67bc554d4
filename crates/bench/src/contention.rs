//! More runs than nodes: how long nodes are idle between two runs, and whether runs start in the order of their creation.

use crate::admission;
use crate::batch::{self, Batch, RunVariant, Tasks, Workload};
use crate::cluster;
use crate::outcome::{BatchOutcome, NodeStay, TOTAL};
use crate::part::{BenchPart, Effort};
use crate::scenario::{Figures, Scenario};
use crate::stats::{number, quantile};
use crate::variants::{COMPLETED, DISABLED, ISOLATE};
use anyhow::{Context, Result};
use std::time::{Duration, Instant};
use testbed::order::Order;
use testbed::runs::RunSpec;
use testbed::{Limits, Nodes, Testbed};

const IDLE: &str = "node idle between two runs p50, s";
const IDLE_P99: &str = "node idle between two runs p99, s";
const BUSY: &str = "node time with task pods, %";
const WRONG_ORDER: &str = "pairs of runs that started in the wrong order, %";
const OVERTAKES: &str = "younger runs that started before a run, maximum";
const LONGEST_WAIT: &str = "creation to first pod bound, maximum, s";
const WAIT_RATIO: &str = "maximum compared with the same starts in order";
const FAILED: &str = "attempts of the scheduler without a node, per run";
/// Longer than the controller waits for the answer of an autoscaler.
const SILENCE: Duration = Duration::from_secs(35);

/// Runs that are created one after the other.
#[derive(Clone, Copy)]
struct Crowd {
    nodes: usize,
    workload: Workload,
    /// The number of runs that exist before the others.
    backlog: usize,
    /// The time between the creations of two later runs gives them an order.
    interval: Duration,
}

/// Sorted by the number of nodes.
const SIZES: [Crowd; 5] = [
    burst(3, 24, "3s"),
    stream(3, 81),
    burst(30, 90, "3s"),
    burst(30, 300, "3s"),
    burst(100, 300, "3s"),
];
const QUICK: [Crowd; 2] = [burst(2, 6, "500ms"), stream(2, 12)];

pub(crate) const PART: BenchPart = BenchPart {
    name: "contention",
    title: "More runs than nodes",
    method: "client limits raised, and no autoscaler, which the controller knows already. In a burst, runs of four tasks in three \
        levels are created at intervals of a tenth of a second. In a stream, six runs of a task of two seconds exist before \
        another such run is created every 0.8 seconds. A node is idle from the end of the last task pod of a run to the binding of \
        the first task pod of the next run, if no other run is on the node. A run starts when its first task pod is bound. With \
        the mode disabled, runs share nodes, and no run waits.",
    in_quick: true,
    measure: |runtime, effort| runtime.block_on(measure(effort)),
    figures: &[
        TOTAL,
        IDLE,
        IDLE_P99,
        BUSY,
        WRONG_ORDER,
        OVERTAKES,
        LONGEST_WAIT,
        WAIT_RATIO,
        FAILED,
    ],
    ratios: &[
        (TOTAL, ISOLATE),
        (IDLE, ISOLATE),
        (TOTAL, DISABLED),
        (FAILED, ISOLATE),
    ],
    aims: &[
        (COMPLETED, WRONG_ORDER, None, 2.0),
        (COMPLETED, WAIT_RATIO, None, 1.3),
    ],
    chart: Some(TOTAL),
};

const fn burst(nodes: usize, runs: usize, lasting: &'static str) -> Crowd {
    Crowd {
        nodes,
        workload: Workload {
            runs,
            tasks: Tasks::Diamond,
            lasting,
        },
        backlog: 0,
        interval: Duration::from_millis(100),
    }
}

const fn stream(nodes: usize, runs: usize) -> Crowd {
    Crowd {
        nodes,
        workload: Workload {
            runs,
            tasks: Tasks::One,
            lasting: "2s",
        },
        backlog: 6,
        interval: Duration::from_millis(800),
    }
}

impl Crowd {
    fn title(&self) -> String {
        let runs = self.workload.runs;
        let kind = if self.backlog == 0 { "burst" } else { "stream" };
        format!("{kind} of {runs} runs on {} nodes", self.nodes)
    }
}

async fn measure(effort: &Effort) -> Result<Vec<Scenario>> {
    let crowds = effort.allowed(effort.pick(&SIZES[..], &QUICK), |crowd| crowd.workload.runs)?;
    let bed = Testbed::start(effort.options(Limits::Raised)).await?;
    admission::install(&bed).await?;
    let silent = wait_for_an_autoscaler(&bed).await?;
    let (mut scenarios, mut existing) = (Vec::new(), 0);
    for crowd in crowds {
        let Crowd { nodes, backlog, .. } = crowd;
        bed.add_nodes(&Nodes::new(&format!("of-{nodes}"), nodes - existing))
            .await?;
        if existing == 0 {
            bed.until_succeeded(&silent, Duration::from_mins(2)).await?;
        }
        existing = nodes;
        let variants = batch::variants(&[DISABLED, COMPLETED, ISOLATE]);
        let name = |variant: RunVariant| variant.name.to_owned();
        let measured = Scenario::measure(
            crowd.title(),
            effort.rounds,
            &variants,
            name,
            async |round, variant| {
                let namespace = format!("{}-{round}", crowd.title().replace(' ', "-"));
                let batch = Batch::prepare(&bed, &namespace, variant, crowd.workload).await?;
                let failed = cluster::failed_attempts(&bed.scheduler_metrics().await?);
                let outcome = batch.run_in_order(backlog, crowd.interval).await?;
                let failed = cluster::failed_attempts(&bed.scheduler_metrics().await?) - failed;
                batch.delete().await?;
                figures(&outcome, nodes, failed)
            },
        );
        scenarios.push(measured.await?);
    }
    Ok(scenarios)
}

/// Creates a run before there is a node. The controller learns that no autoscaler answers, as on any fixed pool.
async fn wait_for_an_autoscaler(bed: &Testbed) -> Result<RunSpec> {
    let namespace = bed.namespace("silent").await?;
    let run = RunSpec::new(&namespace, "waiting")
        .task("only", &[])
        .opted_in("true");
    run.create(&bed.client().await?).await?;
    tokio::time::sleep(SILENCE).await;
    Ok(run)
}

fn figures(outcome: &BatchOutcome, nodes: usize, failed: f64) -> Result<Figures> {
    outcome.check()?;
    let stays = outcome.stays();
    let idle: Vec<_> = stays.iter().flat_map(|on_node| idle_times(on_node)).collect();
    let spans: f64 = stays.iter().map(|on_node| span(on_node)).sum();
    let busy = spans - idle.iter().sum::<f64>();
    let duration = outcome.duration()?.as_secs_f64();
    let of = |share| quantile(&idle, share).unwrap_or_default();
    let starts = outcome.starts();
    let order = Order::new(&starts).context("no run started")?;
    Ok(vec![
        (TOTAL, duration),
        (IDLE, of(0.5)),
        (IDLE_P99, of(0.99)),
        (BUSY, busy / (duration * number(nodes)) * 100.0),
        (WRONG_ORDER, order.wrong_pairs),
        (OVERTAKES, number(order.most_overtakes)),
        (LONGEST_WAIT, order.longest_wait.as_secs_f64()),
        (WAIT_RATIO, order.wait_ratio()),
        (FAILED, failed / number(starts.len())),
    ])
}

/// The seconds in which a node has no run, between two runs. Runs that overlap leave no such time.
fn idle_times(on_node: &[NodeStay]) -> Vec<f64> {
    let mut sorted = on_node.to_vec();
    sorted.sort();
    let mut free_since = None::<Instant>;
    let mut times = Vec::new();
    for (from, to) in sorted {
        let idle = free_since.and_then(|since| from.checked_duration_since(since));
        times.extend(idle.map(|time| time.as_secs_f64()));
        free_since = free_since.max(Some(to));
    }
    times
}

/// From the begin of the first run on a node to the end of the last run there.
fn span(on_node: &[NodeStay]) -> f64 {
    let begin = on_node.iter().map(|stay| stay.0).min();
    let end = on_node.iter().map(|stay| stay.1).max();
    begin
        .zip(end)
        .map_or(0.0, |(begin, end)| (end - begin).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn a_node_is_idle_only_while_it_has_no_run() {
        let start = Instant::now();
        let stay = |from, to| (at(start, from), at(start, to));
        // The run from 2 to 5 ends before the run from 0 to 10.
        let on_node = [stay(12, 14), stay(0, 10), stay(2, 5), stay(14, 15)];
        assert_eq!(idle_times(&on_node), [2.0, 0.0]);
        assert!((span(&on_node) - 15.0).abs() < 1e-9);
    }
}
