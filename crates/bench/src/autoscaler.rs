//! Runs that need nodes which only the autoscaler can add.

use crate::Effort;
use crate::aim::Aim;
use crate::cluster;
use crate::report::Report;
use crate::scenario::{Figures, Scenario};
use crate::stats::number;
use crate::watch::{self, Nodes as SeenNodes, SeenPod, SeenRun};
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use testbed::autoscaler::SCAN_INTERVAL;
use testbed::pace::AS_SHIPPED;
use testbed::runs::RunSpec;
use testbed::{NodeGroup, Nodes, Testbed};

const GROUP: &str = "pool";
const ONE_MORE: &str = "one more run";
const ADDED: &str = "nodes added";
const STEPS: &str = "steps";
/// Nodes that come within this time of one another come in one step.
const ONE_STEP: Duration = Duration::from_millis(1500);
const ALL_DONE: Duration = Duration::from_mins(5);

const METHOD: &str = "One run occupies the only node. Then runs with one task of one second are created, each of which \
needs a node, and the cluster autoscaler adds the nodes. Times count from the creation of the first of these runs. The \
autoscaler scans every two seconds here (its default is ten seconds), so that a new node takes at least one second on \
average, and two in the worst case.";

pub(crate) async fn measure(effort: &Effort) -> Result<Vec<Scenario>> {
    let bed = Testbed::start(effort.options()).await?;
    bed.add_nodes(&Nodes::new("fixed", 1)).await?;
    bed.start_autoscaler(&[NodeGroup::new(GROUP, 0, 60)]).await?;
    bed.install_pod_affinity_with(&[AS_SHIPPED]).await?;
    keep_the_node(&bed).await?;
    let many = many(effort);
    let mut scenario = Scenario::new("runs without a node", &[]);
    for round in 0..effort.rounds {
        for (variant, runs) in [(ONE_MORE.to_owned(), 1), (at_once(many), many)] {
            let namespace = bed.namespace(&format!("round-{round}-{runs}")).await?;
            let figures = turn(&bed, &namespace, runs)
                .await
                .with_context(|| variant.clone())?;
            eprintln!(
                "   round {}: {variant}: {:.1} s, {} nodes in {} steps",
                round + 1,
                figures[3].1,
                figures[5].1,
                figures[6].1
            );
            scenario.add(&variant, figures)?;
        }
    }
    Ok(vec![scenario])
}

fn many(effort: &Effort) -> usize {
    effort.pick(20, 4)
}

fn at_once(runs: usize) -> String {
    format!("{runs} runs at once")
}

pub(crate) fn report(effort: &Effort, scenarios: Vec<Scenario>) -> Report {
    let many = at_once(many(effort));
    let spread = |variant: &str, figure: &str| scenarios.first()?.spread(variant, figure);
    let aims = [
        Aim::at_most("one more run: nodes added", 1.0, spread(ONE_MORE, ADDED)),
        Aim::at_most(
            format!("{many}: nodes too many"),
            0.0,
            spread(&many, "nodes too many"),
        ),
        Aim::at_most(format!("{many}: steps"), 1.0, spread(&many, STEPS)),
    ];
    Report {
        part: "autoscaler",
        title: "Nodes from the autoscaler",
        method: METHOD,
        aims: aims.into_iter().flatten().collect(),
        scenarios,
        plotted: "all done, s",
        faster: Vec::new(),
        notes: Vec::new(),
    }
}

/// A run that never ends is on the only node, and nobody else may go there.
async fn keep_the_node(bed: &Testbed) -> Result<()> {
    let spec = RunSpec::new("default", "keeper")
        .task("only", &[])
        .ending("hang")
        .opted_in("true");
    let (pods, _watching) = watch::pods(&bed.client().await?, "default").await?;
    spec.create(&bed.client().await?)
        .await
        .context("creating the run that keeps the node")?;
    cluster::all_are(bed, "pods on the node", 2, ALL_DONE, || pods.look().len()).await
}

async fn turn(bed: &Testbed, namespace: &str, count: usize) -> Result<Figures> {
    let client = bed.client().await?;
    bed.until("the added nodes to go", ALL_DONE, async || {
        let left = bed
            .ready_nodes_of(GROUP)
            .await
            .map_err(|error| error.to_string())?;
        if left.is_empty() {
            Ok(())
        } else {
            Err(left.join(" "))
        }
    })
    .await?;
    let (nodes, _watching_nodes) = watch::nodes(&client).await?;
    let (pods, _watching_pods) = watch::pods(&client, namespace).await?;
    let (runs, _watching_runs) = watch::runs(&client, namespace).await?;
    let spec = |index| {
        RunSpec::new(namespace, &format!("run-{index}"))
            .task("only", &[])
            .opted_in("true")
    };
    let specs: Vec<_> = (0..count).map(spec).collect();
    let asked = cluster::create_runs(&client, namespace, &specs).await?;
    let done = || runs.look().values().filter(|run| run.done.is_some()).count();
    cluster::all_are(bed, "runs done", count, ALL_DONE, done).await?;
    let first = asked.into_iter().min().context("no run was created")?;
    let (pods, runs) = (pods.look().clone(), runs.look().clone());
    on_nodes_of_their_own(&pods, count)?;
    let figures = figures(first, &nodes, &pods, &runs, count)?;
    cluster::clear_runs(bed, namespace).await?;
    Ok(figures)
}

fn on_nodes_of_their_own(pods: &BTreeMap<String, SeenPod>, count: usize) -> Result<()> {
    let nodes: BTreeSet<_> = pods
        .values()
        .filter(|pod| pod.is_task)
        .map(|pod| &pod.node)
        .collect();
    if nodes.len() != count {
        bail!("{count} runs were on {} nodes", nodes.len());
    }
    Ok(())
}

fn figures(
    first: Instant,
    nodes: &SeenNodes,
    pods: &BTreeMap<String, SeenPod>,
    runs: &BTreeMap<String, SeenRun>,
    count: usize,
) -> Result<Figures> {
    let added: Vec<_> = nodes
        .look()
        .iter()
        .filter(|(name, at)| name.starts_with(GROUP) && **at > first)
        .map(|(_, at)| *at)
        .collect();
    let last = |times: &mut dyn Iterator<Item = Instant>| {
        times
            .max()
            .context("nothing came")
            .map(|at| (at - first).as_secs_f64())
    };
    let node = last(&mut added.iter().copied())?;
    let scan: f64 = SCAN_INTERVAL.trim_end_matches('s').parse()?;
    Ok(vec![
        ("nodes there, s", node),
        (
            "all released, s",
            last(&mut runs.values().filter_map(|run| run.released))?,
        ),
        (
            "first pods bound, s",
            last(&mut pods.values().filter(|pod| pod.is_task).map(|pod| pod.bound))?,
        ),
        (
            "all done, s",
            last(&mut runs.values().filter_map(|run| run.done))?,
        ),
        ("nodes there, scan intervals", node / scan),
        (ADDED, number(added.len())),
        (STEPS, number(steps(added.clone()))),
        ("nodes too many", number(added.len().saturating_sub(count))),
    ])
}

fn steps(mut times: Vec<Instant>) -> usize {
    times.sort();
    let gaps = times.windows(2).filter(|pair| pair[1] - pair[0] > ONE_STEP);
    usize::from(!times.is_empty()) + gaps.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_come_close_together_come_in_one_step() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        assert_eq!(steps(vec![at(900), at(0), at(3000)]), 2);
        assert_eq!(steps(vec![]), 0);
    }
}
