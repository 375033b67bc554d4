//! More runs than nodes: how long nodes are idle between two runs, and whether runs start in the order of their creation.

use crate::admission;
use crate::batch::{self, Batch, RunVariant};
use crate::outcome::{BatchOutcome, NodeStay, TOTAL};
use crate::part::{BenchPart, Effort};
use crate::scenario::{Figures, Scenario};
use crate::stats::{number, quantile};
use crate::variants::{COMPLETED, DISABLED, ISOLATE};
use anyhow::Result;
use std::time::{Duration, Instant};
use testbed::{Limits, Nodes, Testbed};

const IDLE: &str = "node idle between two runs p50, s";
const IDLE_P99: &str = "node idle between two runs p99, s";
const BUSY: &str = "node time with task pods, %";
const WRONG_ORDER: &str = "pairs of runs that started in the wrong order, %";
/// Nodes, and the number of runs.
const SIZES: [(usize, usize); 3] = [(3, 24), (30, 90), (100, 300)];
const QUICK: [(usize, usize); 1] = [(2, 6)];
/// In seconds: the shortest that the scheduler accepts.
const SHORT_BACKOFF: u32 = 1;
/// The time between the creation of two runs gives the runs an order.
const INTERVAL: Duration = Duration::from_millis(100);

pub(crate) const PART: BenchPart = BenchPart {
    name: "contention",
    title: "More runs than nodes",
    method: "runs of four tasks in three levels are created at intervals of a tenth of a second, with client limits raised. A node \
        is idle from the end of the last task pod of a run to the binding of the first task pod of the next run, if no other run is \
        on the node. Two runs started in the wrong order if the first task pod of the older run was bound later. With the mode \
        disabled, runs share nodes, and no run waits. With podMaxBackoffSeconds: 1 in the scheduler's configuration (backoff 1 s; \
        10 as shipped), the scheduler tries a pod that found no node again after a second at the latest, once something has changed.",
    in_quick: true,
    measure: |runtime, effort| runtime.block_on(measure(effort)),
    figures: &[TOTAL, IDLE, IDLE_P99, BUSY, WRONG_ORDER],
    ratios: &[
        (TOTAL, ISOLATE),
        (IDLE, ISOLATE),
        (TOTAL, DISABLED),
        (IDLE, COMPLETED),
    ],
    aims: &[],
    chart: Some(TOTAL),
};

/// A variant, and the longest back-off of the scheduler in seconds.
type WithBackoff = (RunVariant, Option<u32>);

/// All variants with the scheduler as shipped. The variants in which runs wait also with a short back-off.
fn with_backoffs() -> Vec<WithBackoff> {
    let as_shipped = batch::variants(&[DISABLED, COMPLETED, ISOLATE]).into_iter();
    let short = batch::variants(&[COMPLETED, ISOLATE]).into_iter();
    let as_shipped = as_shipped.map(|variant| (variant, None));
    as_shipped
        .chain(short.map(|variant| (variant, Some(SHORT_BACKOFF))))
        .collect()
}

fn name((variant, backoff): WithBackoff) -> String {
    let option = backoff.map_or_else(String::new, |seconds| format!(", backoff {seconds} s"));
    format!("{}{option}", variant.name)
}

async fn measure(effort: &Effort) -> Result<Vec<Scenario>> {
    let sizes = effort.allowed(effort.pick(&SIZES[..], &QUICK), |(_, runs)| *runs)?;
    let bed = Testbed::start(effort.options(Limits::Raised)).await?;
    admission::install(&bed).await?;
    let (mut scenarios, mut existing) = (Vec::new(), 0);
    for (nodes, runs) in sizes {
        bed.add_nodes(&Nodes::new(&format!("of-{nodes}"), nodes - existing))
            .await?;
        existing = nodes;
        let variants = with_backoffs();
        let title = format!("{runs} runs on {nodes} nodes");
        let measured = Scenario::measure(
            title,
            effort.rounds,
            &variants,
            name,
            async |round, (variant, backoff)| {
                bed.restart_scheduler(backoff).await?;
                let namespace = format!("on-{nodes}-{round}-{}", backoff.unwrap_or_default());
                let batch = Batch::prepare(effort, &bed, &namespace, variant, runs).await?;
                let outcome = batch.run(INTERVAL).await?;
                batch.delete().await?;
                figures(&outcome, nodes)
            },
        );
        scenarios.push(measured.await?);
    }
    Ok(scenarios)
}

fn figures(outcome: &BatchOutcome, nodes: usize) -> Result<Figures> {
    outcome.check()?;
    let stays = outcome.stays();
    let idle: Vec<_> = stays.iter().flat_map(|on_node| idle_times(on_node)).collect();
    let spans: f64 = stays.iter().map(|on_node| span(on_node)).sum();
    let busy = spans - idle.iter().sum::<f64>();
    let duration = outcome.duration()?.as_secs_f64();
    let of = |share| quantile(&idle, share).unwrap_or_default();
    Ok(vec![
        (TOTAL, duration),
        (IDLE, of(0.5)),
        (IDLE_P99, of(0.99)),
        (BUSY, busy / (duration * number(nodes)) * 100.0),
        (WRONG_ORDER, wrong_order(&outcome.starts()) * 100.0),
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

/// The share of the pairs in which the older run started later than the younger run.
fn wrong_order(starts: &[Instant]) -> f64 {
    let pairs = starts.iter().enumerate().flat_map(|(index, older)| {
        let younger = &starts[index + 1..];
        younger.iter().map(move |younger| older > younger)
    });
    let (wrong, all) = pairs.fold((0, 0), |(wrong, all), is_wrong| {
        (wrong + usize::from(is_wrong), all + 1)
    });
    number(wrong) / number(all.max(1))
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

    #[test]
    fn if_the_last_of_three_runs_starts_first_two_pairs_are_in_the_wrong_order() {
        let start = Instant::now();
        let starts = [2, 3, 1].map(|second| at(start, second));
        assert!((wrong_order(&starts) - 2.0 / 3.0).abs() < 1e-9);
        assert!(wrong_order(&starts[..1]) < 1e-9);
    }
}
