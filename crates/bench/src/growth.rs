//! The controller with many runs that run at the same time, and how soon it reacts to one more.

use crate::Effort;
use crate::aim::Aim;
use crate::controller::{add_nodes, at_rest, released};
use crate::report::Report;
use crate::scenario::{Figures, Scenario};
use crate::stats::quantile;
use crate::watch::{self, Notes, Watch};
use crate::{cluster, controller};
use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::api::Api;
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use placement::names::PlaceholderName;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use testbed::pace::AS_SHIPPED;
use testbed::runs::RunSpec;
use testbed::{Limits, Options, Part, Testbed};
use tokio::time::sleep_until;

const CONTROLLER: &str = "controller";
const REACTION: &str = "creation to placeholder p99, s";
/// In one namespace, so that no list of a test is too long.
const RUNS_A_NAMESPACE: usize = 1000;
/// New runs whose placeholders are waited for, and the time between two of them.
const NEW: usize = 100;
const APART: Duration = Duration::from_millis(100);
const ALL_THERE: Duration = Duration::from_mins(2);

const METHOD: &str = "All runs are labelled colocateAlways, five for each node, and each has its placeholder there. Tekton's \
controller is stopped, so that they run for good. Start-up: from the start of a process that becomes the leader to its first write, \
for a run that was created while no controller ran. Then a hundred more runs are created, ten a second. Creation to placeholder: \
from the request that creates a run to the event of a watch that shows its StatefulSet.";

pub(crate) async fn measure(effort: &Effort) -> Result<Vec<Scenario>> {
    let (runs, nodes) = effort.pick((10_000, 2000), (20, 6));
    let bed = Testbed::start(Options {
        limits: Limits::Raised,
        ..effort.options()
    })
    .await?;
    bed.install_pod_affinity_with(&[AS_SHIPPED]).await?;
    bed.stop(Part::TektonController)?;
    add_nodes(&bed, nodes).await?;
    populate(&bed, runs).await?;
    let mut scenario = Scenario::new(format!("{runs} running runs on {nodes} nodes"), &[]);
    for round in 0..effort.rounds {
        let mut figures = at_rest(effort, &bed, round).await?;
        figures.extend(reaction(effort, &bed, round).await?);
        scenario.add(CONTROLLER, figures)?;
    }
    Ok(vec![scenario])
}

pub(crate) fn report(scenarios: Vec<Scenario>) -> Report {
    let of = |figure: &str| scenarios[0].spread(CONTROLLER, figure);
    let aims = [
        Aim::at_most("memory with all runs, MB", 150.0, of(controller::MEMORY)),
        Aim::at_most(REACTION, 1.0, of(REACTION)),
    ];
    Report {
        part: "growth",
        title: "Many runs at the same time",
        method: METHOD,
        aims: aims.into_iter().flatten().collect(),
        scenarios,
        plotted: controller::MEMORY,
        faster: Vec::new(),
        notes: Vec::new(),
    }
}

async fn populate(bed: &Testbed, runs: usize) -> Result<()> {
    for (step, from) in (0..runs).step_by(RUNS_A_NAMESPACE).enumerate() {
        let namespace = bed.namespace(&format!("many-{step}")).await?;
        let specs = specs(&namespace, RUNS_A_NAMESPACE.min(runs - from));
        let (_times, took) = released(bed, &namespace, &specs).await?;
        eprintln!(
            "   {} of {runs} run, the last ones after {took:.0?}",
            from + specs.len()
        );
    }
    Ok(())
}

fn specs(namespace: &str, count: usize) -> Vec<RunSpec> {
    let spec = |index| RunSpec::diamond(namespace, &format!("run-{index}")).opted_in("colocateAlways");
    (0..count).map(spec).collect()
}

async fn reaction(effort: &Effort, bed: &Testbed, round: u32) -> Result<Figures> {
    let (client, namespace) = (bed.client().await?, bed.namespace(&format!("new-{round}")).await?);
    let (placeholders, _watching) = placeholders(&client, &namespace).await?;
    let (mut asked, mut next) = (Vec::new(), Instant::now());
    for spec in specs(&namespace, effort.pick(NEW, 5)) {
        sleep_until(next.into()).await;
        let now = Instant::now();
        let run = spec.create(&client).await.context("creating a run")?;
        asked.push((
            PlaceholderName::of_uid(&run.uid().context("a run without a UID")?),
            now,
        ));
        next += APART;
    }
    let there = || placeholders.look().len();
    cluster::all_are(bed, "placeholders there", asked.len(), ALL_THERE, there).await?;
    let seen = placeholders.look().clone();
    let times = asked.iter().filter_map(|(name, asked)| {
        let seen = seen.get(name.as_str())?;
        Some(seen.duration_since(*asked).as_secs_f64())
    });
    let times: Vec<_> = times.collect();
    cluster::clear_runs(bed, &namespace).await?;
    let of = |share| quantile(&times, share).context("no placeholder was seen");
    Ok(vec![
        ("creation to placeholder p50, s", of(0.5)?),
        (REACTION, of(0.99)?),
    ])
}

async fn placeholders(client: &Client, namespace: &str) -> Result<(Notes<BTreeMap<String, Instant>>, Watch)> {
    let notes = Notes::<BTreeMap<String, Instant>>::default();
    let noted = notes.clone();
    let sets: Api<StatefulSet> = Api::namespaced(client.clone(), namespace);
    let watch = watch::watch(sets, watcher::Config::default(), move |set: StatefulSet, now| {
        noted.look().entry(set.name_any()).or_insert(now);
    });
    Ok((notes, watch.await?))
}
