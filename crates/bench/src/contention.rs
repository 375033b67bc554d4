//! More runs than nodes: how long nodes stand idle between two runs, and whether runs start in the order of their creation.

use crate::Effort;
use crate::report::Report;
use crate::scenario::{Figures, Scenario};
use crate::scene::{COMPLETED, DISABLED, ISOLATE, Scene, Variant, in_random_order};
use crate::stats::{number, quantile};
use crate::turn::{Stay, TOTAL, Turn};
use crate::ways;
use anyhow::{Context, Result};
use std::time::{Duration, Instant};
use testbed::{Limits, Nodes, Options, Testbed};

const GAP: &str = "node idle between two runs p50, s";
const INVERTED: &str = "pairs of runs that started in the wrong order, %";
/// Nodes, and the runs that want them.
const SIZES: [(usize, usize); 3] = [(3, 24), (30, 90), (100, 300)];
const QUICK: [(usize, usize); 1] = [(2, 6)];
/// In seconds, of a scheduler that soon tries a pod again: as long as the shortest.
const SHORT_BACKOFF: u32 = 1;
/// Between the creation of two runs, so that they have an order.
const APART: Duration = Duration::from_millis(100);

const METHOD: &str = "More runs than nodes, of four tasks in three levels, are created a tenth of a second apart, with client \
limits raised. A node is idle from the end of the last task pod of a run to the binding of the first one of the next run, if none \
of another run is there. Two runs started in the wrong order if the first task pod of the older one was bound later. Without a \
mode (disabled), runs share nodes and none has to wait. With podMaxBackoffSeconds: 1 in the scheduler's configuration (10 as \
shipped), a pod that found no node is tried again a second after the last attempt at the latest, once something has changed.";

/// A variant, and how soon the scheduler tries a pod again.
#[derive(Clone, Copy)]
struct Way {
    variant: Variant,
    longest_backoff: Option<u32>,
}

impl Way {
    fn name(self) -> String {
        let name = self.variant.name;
        match self.longest_backoff {
            None => name.to_owned(),
            Some(seconds) => format!("{name}, podMaxBackoffSeconds {seconds}"),
        }
    }
}

/// Each with the scheduler as shipped, and those in which runs wait also with a short backoff; in random order.
fn ways() -> Vec<Way> {
    let with = |longest_backoff| {
        move |variant| Way {
            variant,
            longest_backoff,
        }
    };
    let as_shipped = in_random_order(&[DISABLED, COMPLETED, ISOLATE]);
    let soon = in_random_order(&[COMPLETED, ISOLATE]);
    let as_shipped = as_shipped.into_iter().map(with(None));
    let mut ways: Vec<_> = as_shipped
        .chain(soon.into_iter().map(with(Some(SHORT_BACKOFF))))
        .collect();
    fastrand::shuffle(&mut ways);
    ways
}

pub(crate) async fn measure(effort: &Effort) -> Result<Vec<Scenario>> {
    let sizes = effort.those_wanted(effort.pick(&SIZES[..], &QUICK), |(_, runs)| *runs)?;
    let bed = Testbed::start(Options {
        limits: Limits::Raised,
        ..effort.options()
    })
    .await?;
    ways::install(&bed).await?;
    let (mut scenarios, mut there) = (Vec::new(), 0);
    for (nodes, runs) in sizes {
        bed.add_nodes(&Nodes::new(&format!("of-{nodes}"), nodes - there))
            .await?;
        there = nodes;
        scenarios.push(one_size(effort, &bed, nodes, runs).await?);
    }
    Ok(scenarios)
}

pub(crate) fn report(scenarios: Vec<Scenario>) -> Report {
    let faster = scenarios
        .iter()
        .flat_map(|scenario| scenario.faster_than(COMPLETED, GAP));
    Report {
        part: "contention",
        title: "More runs than nodes",
        method: METHOD,
        aims: Vec::new(),
        faster: faster.collect(),
        scenarios,
        plotted: TOTAL,
        notes: Vec::new(),
    }
}

async fn one_size(effort: &Effort, bed: &Testbed, nodes: usize, runs: usize) -> Result<Scenario> {
    let ratios = [(TOTAL, ISOLATE), (GAP, ISOLATE), (TOTAL, DISABLED)];
    let mut scenario = Scenario::new(format!("{runs} runs on {nodes} nodes"), &ratios);
    for round in 0..effort.rounds {
        for way in ways() {
            let name = way.name();
            bed.restart_scheduler(way.longest_backoff).await?;
            let turn = turn(effort, bed, way, &format!("on-{nodes}-{round}"), runs).await;
            let turn = turn.with_context(|| format!("{nodes} nodes, {name}"))?;
            scenario.add(&name, figures(&turn, nodes)?)?;
            eprintln!(
                "   {nodes} nodes, round {}: {name}: {:.1?}",
                round + 1,
                turn.lasted()?
            );
        }
    }
    Ok(scenario)
}

async fn turn(effort: &Effort, bed: &Testbed, way: Way, name: &str, runs: usize) -> Result<Turn> {
    let backoff = way
        .longest_backoff
        .map_or_else(|| "as-shipped".to_owned(), |seconds| seconds.to_string());
    let scene = Scene::set(effort, bed, &format!("{name}-{backoff}"), way.variant, runs).await?;
    let turn = scene.play(APART).await?;
    scene.clear().await?;
    Ok(turn)
}

fn figures(turn: &Turn, nodes: usize) -> Result<Figures> {
    turn.all_is_well()?;
    let stays = turn.stays();
    let gaps: Vec<_> = stays.iter().flat_map(|on_node| gaps(on_node)).collect();
    let spans: f64 = stays.iter().map(|on_node| span(on_node)).sum();
    let busy = spans - gaps.iter().sum::<f64>();
    let lasted = turn.lasted()?.as_secs_f64();
    let of = |share| quantile(&gaps, share).unwrap_or_default();
    Ok(vec![
        (TOTAL, lasted),
        (GAP, of(0.5)),
        ("node idle between two runs p99, s", of(0.99)),
        (
            "node time in which a run's task pods are there, %",
            busy / (lasted * number(nodes)) * 100.0,
        ),
        (INVERTED, inverted(&turn.starts()) * 100.0),
    ])
}

/// Seconds between a run and the next one on a node, where none is there.
fn gaps(on_node: &[Stay]) -> Vec<f64> {
    let mut sorted = on_node.to_vec();
    sorted.sort();
    let mut free_since = None::<Instant>;
    let mut gaps = Vec::new();
    for (from, to) in sorted {
        if let Some(gap) = free_since.and_then(|since| from.checked_duration_since(since)) {
            gaps.push(gap.as_secs_f64());
        }
        free_since = free_since.max(Some(to));
    }
    gaps
}

/// From the first run's begin on a node to the last one's end.
fn span(on_node: &[Stay]) -> f64 {
    let begin = on_node.iter().map(|stay| stay.0).min();
    let end = on_node.iter().map(|stay| stay.1).max();
    begin
        .zip(end)
        .map_or(0.0, |(begin, end)| (end - begin).as_secs_f64())
}

/// The share of pairs of which the older one started later.
fn inverted(starts: &[Instant]) -> f64 {
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
    fn a_node_is_idle_only_while_no_run_is_there() {
        let start = Instant::now();
        let stay = |from, to| (at(start, from), at(start, to));
        // The second one ends before the first one does.
        let on_node = [stay(12, 14), stay(0, 10), stay(2, 5), stay(14, 15)];
        assert_eq!(gaps(&on_node), [2.0, 0.0]);
        assert!((span(&on_node) - 15.0).abs() < 1e-9);
    }

    #[test]
    fn of_three_runs_with_the_last_one_first_two_pairs_are_in_the_wrong_order() {
        let start = Instant::now();
        let starts = [2, 3, 1].map(|second| at(start, second));
        assert!((inverted(&starts) - 2.0 / 3.0).abs() < 1e-9);
        assert!(inverted(&starts[..1]) < 1e-9);
    }
}
