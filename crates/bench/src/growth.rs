//! The controller with many runs that run at the same time, and how soon it handles one more run.

use crate::cluster;
use crate::controller::{self, AT_REST, FIRST_WRITE, MEMORY, until_released};
use crate::part::{BenchPart, Effort};
use crate::scenario::{Figures, Scenario};
use crate::stats::quantile;
use crate::variants::CONTROLLER;
use crate::watch;
use anyhow::{Context, Result};
use std::time::{Duration, Instant};
use testbed::Testbed;
use testbed::runs::RunSpec;
use tokio::time::sleep_until;

const REACTION: &str = "creation to placeholder p50, s";
const REACTION_P99: &str = "creation to placeholder p99, s";
/// In one namespace, so that lists are not too long.
const RUNS_PER_NAMESPACE: usize = 1000;
/// The runs whose placeholders are timed, and the time between two of them.
const NEW: usize = 100;
const INTERVAL: Duration = Duration::from_millis(100);
const ALL_CREATED: Duration = Duration::from_mins(2);

pub(crate) const PART: BenchPart = BenchPart {
    name: "growth",
    title: "Many runs at the same time",
    method: "all runs are labelled colocateAlways, five for each node, and each run has its placeholder there. Tekton's controller is \
        stopped, so that the runs never end. Start-up: from the start of a process that becomes the leader to its first write, for a \
        run that was created while no controller ran. Then a hundred more runs are created, ten a second. Creation to placeholder: \
        from the request that creates a run to the event of a watch that shows its StatefulSet.",
    in_quick: true,
    measure: |runtime, effort| runtime.block_on(measure(effort)),
    figures: &[FIRST_WRITE, MEMORY, AT_REST, REACTION, REACTION_P99],
    ratios: &[],
    aims: &[
        (CONTROLLER, MEMORY, None, 150.0),
        (CONTROLLER, REACTION_P99, None, 1.0),
    ],
    chart: None,
};

async fn measure(effort: &Effort) -> Result<Vec<Scenario>> {
    let (runs, nodes) = effort.pick((10_000, 2000), (20, 6));
    let bed = controller::start(effort, nodes).await?;
    populate(&bed, runs).await?;
    let title = format!("{runs} running runs on {nodes} nodes");
    let measured = Scenario::measure(
        title,
        effort.rounds,
        &[CONTROLLER],
        str::to_owned,
        async |round, _| {
            let mut figures = controller::at_rest(effort, &bed, round).await?;
            figures.extend(reaction(effort, &bed, round).await?);
            Ok(figures)
        },
    );
    Ok(vec![measured.await?])
}

async fn populate(bed: &Testbed, runs: usize) -> Result<()> {
    for (step, from) in (0..runs).step_by(RUNS_PER_NAMESPACE).enumerate() {
        let namespace = bed.namespace(&format!("many-{step}")).await?;
        let specs = specs(&namespace, RUNS_PER_NAMESPACE.min(runs - from));
        until_released(bed, &namespace, &specs).await?;
        eprintln!("   {} of {runs} runs", from + specs.len());
    }
    Ok(())
}

fn specs(namespace: &str, count: usize) -> Vec<RunSpec> {
    let spec = |index| RunSpec::diamond(namespace, &format!("run-{index}")).opted_in("colocateAlways");
    (0..count).map(spec).collect()
}

async fn reaction(effort: &Effort, bed: &Testbed, round: u32) -> Result<Figures> {
    let (client, namespace) = (bed.client().await?, bed.namespace(&format!("new-{round}")).await?);
    let watch = watch::statefulsets(&client, &namespace).await?;
    let (mut created, mut next) = (Vec::new(), Instant::now());
    for spec in specs(&namespace, effort.pick(NEW, 5)) {
        sleep_until(next.into()).await;
        let now = Instant::now();
        let run = spec.create(&client).await.context("creating a run")?;
        created.push((controller::placeholder(&run)?, now));
        next += INTERVAL;
    }
    let seen = || watch.records().len();
    cluster::until_all(bed, "placeholders", created.len(), ALL_CREATED, seen).await?;
    let seen = watch.records().clone();
    let times = created
        .iter()
        .filter_map(|(name, created)| Some(*seen.get(name)? - *created));
    let times: Vec<_> = times.map(|time| time.as_secs_f64()).collect();
    cluster::delete_runs(bed, &namespace).await?;
    let of = |share| quantile(&times, share).context("no placeholder was created");
    Ok(vec![(REACTION, of(0.5)?), (REACTION_P99, of(0.99)?)])
}
