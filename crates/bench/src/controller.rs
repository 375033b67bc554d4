//! The controller with many runs in the cluster, and with many new ones at once.

use crate::Effort;
use crate::aim::Aim;
use crate::cluster::{self, OURS, Requests};
use crate::process::{cpu_seconds, most_resident, resident};
use crate::report::Report;
use crate::scenario::{Figures, Scenario};
use crate::stats::{number, quantile};
use crate::watch;
use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use jiff::{Timestamp, Unit};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::{Client, ResourceExt};
use placement::keys;
use placement::names::PlaceholderName;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use testbed::pace::AS_SHIPPED;
use testbed::runs::{self, RunSpec};
use testbed::{Limits, Nodes, Options, Part, Testbed};

const LEADER: Part = Part::Controller(0);
const EXISTING: &str = "existing";
const RELEASE: &str = "hold to release";
const PATCHES: &str = "the API server alone: patches of runs";
const CREATES: &str = "the API server alone: new ConfigMaps";
const WRITES: &str = "writes a second";
pub(crate) const MEMORY: &str = "memory, MB";
const AT_REST: &str = "CPU at rest, % of a core";
/// Calls at the same time: as many as the controller makes.
const AT_ONCE: usize = 32;
const ALL_RELEASED: Duration = Duration::from_mins(10);
/// Nodes made at a time.
const NODES_A_STEP: usize = 200;

const METHOD: &str = "Tekton's controller is stopped as soon as it is not needed, so that the figures cover only holds \
and releases. Existing runs: 65 % succeeded, 15 % failed, 10 % without the label, 10 % cancelled; 2 % of all are still \
running, with their placeholder. Start-up: from the start of the process to its first write, for a run that was created \
while no controller ran. Hold to release: includes the work of the StatefulSet controller, the scheduler and KWOK for the \
placeholder, all on this machine. The API server alone: measured on the same machine immediately afterwards, with 32 \
concurrent requests and no other load. Writes are counted by the API server.";

pub(crate) async fn measure(effort: &Effort) -> Result<Vec<Scenario>> {
    let (existing, new) = effort.pick((10_000, 1000), (60, 20));
    let bed = Testbed::start(Options {
        limits: Limits::Raised,
        ..effort.options()
    })
    .await?;
    bed.install_pod_affinity_with(&[AS_SHIPPED]).await?;
    bed.stop(Part::TektonController)?;
    add_nodes(&bed, running(existing) + new + 5).await?;
    populate(&bed, existing).await?;
    let mut scenarios = vec![Scenario::new(format!("{existing} existing runs"), &[])];
    for round in 0..effort.rounds {
        let figures = at_rest(effort, &bed, round).await?;
        scenarios[0].add("controller", figures)?;
    }
    scenarios.push(burst(effort, &bed, new).await?);
    Ok(scenarios)
}

pub(crate) fn report(scenarios: Vec<Scenario>) -> Report {
    let at_rest = |figure: &str| scenarios[0].spread("controller", figure);
    let aims = [
        Aim::at_most("memory with all existing runs, MB", 50.0, at_rest(MEMORY)),
        Aim::at_most(AT_REST, 0.5, at_rest(AT_REST)),
        Aim::at_most(
            "our processes' share of all CPU during the burst, %",
            25.0,
            scenarios[1].spread(RELEASE, "our CPU, % of all"),
        ),
    ];
    Report {
        part: "controller",
        title: "The controller under many runs",
        method: METHOD,
        aims: aims.into_iter().flatten().collect(),
        scenarios,
        plotted: WRITES,
        faster: Vec::new(),
        notes: Vec::new(),
    }
}

pub(crate) async fn add_nodes(bed: &Testbed, count: usize) -> Result<()> {
    for (step, from) in (0..count).step_by(NODES_A_STEP).enumerate() {
        let nodes = Nodes::new(&format!("node-{step}"), NODES_A_STEP.min(count - from));
        bed.add_nodes(&nodes).await?;
    }
    Ok(())
}

/// How many of the existing runs still run.
fn running(existing: usize) -> usize {
    existing.div_ceil(50)
}

/// The running ones go the usual way; the others are made to what they would be long after.
async fn populate(bed: &Testbed, existing: usize) -> Result<()> {
    let (client, namespace) = (bed.client().await?, bed.namespace(EXISTING).await?);
    let spec = |index: usize| RunSpec::diamond(EXISTING, &format!("run-{index}"));
    let running: Vec<_> = (0..running(existing))
        .map(|index| spec(index).opted_in("true"))
        .collect();
    released(bed, &namespace, &running).await?;
    stop_controllers(bed)?;
    let ended = (running.len()..existing).map(|index| ended(&client, spec(index), index));
    stream::iter(ended)
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<()>>()
        .await?;
    bed.start_again(LEADER).await?;
    Ok(())
}

async fn ended(client: &Client, spec: RunSpec, index: usize) -> Result<()> {
    let labelled = !index.is_multiple_of(10);
    let spec = if labelled { spec.opted_in("true") } else { spec };
    let run = spec.create(client).await.context("creating a run")?;
    let (api, name, params) = (runs::runs(client, EXISTING), spec.name(), PatchParams::default());
    if labelled {
        let enrolled = Patch::Merge(enrolment(&run));
        api.patch(name, &params, &enrolled)
            .await
            .context("enrolling a run")?;
    }
    let (status, reason) = match index % 20 {
        1 | 11 => ("False", "Cancelled"),
        2 | 3 | 12 => ("False", "Failed"),
        _ => ("True", "Succeeded"),
    };
    let condition = json!({
        "type": "Succeeded", "status": status, "reason": reason, "message": "",
        "lastTransitionTime": Timestamp::now().round(Unit::Second)?,
    });
    let status = Patch::Merge(json!({"status": {"conditions": [condition]}}));
    api.patch_status(name, &params, &status)
        .await
        .context("ending a run")?;
    Ok(())
}

fn enrolment(run: &DynamicObject) -> Value {
    let labels = json!({
        keys::GROUP: run.uid(), keys::STRATEGY: "colocateCompleted", keys::ISOLATION: "cluster-all",
    });
    json!({
        "metadata": {"labels": labels, "annotations": {keys::NODE: "node-0-0"}},
        "spec": {"status": null},
    })
}

fn stop_controllers(bed: &Testbed) -> Result<()> {
    for replica in [0, 1] {
        // After the first time only one of them runs.
        if bed.pid(Part::Controller(replica)).is_some() {
            bed.stop(Part::Controller(replica))?;
        }
    }
    Ok(())
}

/// A fresh start, and then nothing to do.
pub(crate) async fn at_rest(effort: &Effort, bed: &Testbed, round: u32) -> Result<Figures> {
    let client = bed.client().await?;
    stop_controllers(bed)?;
    let run = RunSpec::diamond("default", &format!("marker-{round}")).opted_in("true");
    let run = run.create(&client).await.context("creating the marker run")?;
    let placeholder = PlaceholderName::of_uid(&run.uid().context("a run without a UID")?);
    let sets: Api<StatefulSet> = Api::namespaced(client, "default");
    let started = Instant::now();
    bed.start_again(LEADER).await?;
    bed.until(
        "the first write of the controller",
        Duration::from_mins(2),
        async || {
            sets.get(placeholder.as_str())
                .await
                .map_err(|error| error.to_string())
        },
    )
    .await?;
    let first_write = started.elapsed().as_secs_f64();
    cluster::clear_runs(bed, "default").await?;
    let pid = bed.pid(LEADER).context("the controller does not run")?;
    // What the start left to do must not count as rest.
    let window = effort.pick(Duration::from_mins(1), Duration::from_secs(3));
    tokio::time::sleep(window / 3).await;
    let (cpu, resting) = (cpu_seconds(pid)?, Instant::now());
    tokio::time::sleep(window).await;
    let at_rest = (cpu_seconds(pid)? - cpu) / resting.elapsed().as_secs_f64();
    eprintln!("   start-up {first_write:.2} s, {:.1} MB", resident(pid)?);
    Ok(vec![
        ("start to first write, s", first_write),
        (MEMORY, resident(pid)?),
        ("memory at most, MB", most_resident(pid)?),
        (AT_REST, at_rest * 100.0),
    ])
}

async fn burst(effort: &Effort, bed: &Testbed, new: usize) -> Result<Scenario> {
    let mut scenario = Scenario::new(format!("{new} new runs at once"), &[(WRITES, PATCHES)]);
    for round in 0..effort.rounds {
        let namespace = bed.namespace(&format!("burst-{round}")).await?;
        let specs: Vec<_> = (0..new)
            .map(|index| RunSpec::diamond(&namespace, &format!("run-{index}")).opted_in("true"))
            .collect();
        let figures = release(bed, &namespace, &specs).await?;
        eprintln!("   round {}: {new} released in {:.1} s", round + 1, figures[0].1);
        scenario.add(RELEASE, figures)?;
        let client = bed.client().await?;
        scenario.add(PATCHES, patches(&client, &namespace, new).await?)?;
        scenario.add(CREATES, creates(&client, &namespace, new).await?)?;
        cluster::clear_runs(bed, &namespace).await?;
    }
    Ok(scenario)
}

async fn release(bed: &Testbed, namespace: &str, specs: &[RunSpec]) -> Result<Figures> {
    let client = bed.client().await?;
    let ours = [Part::Webhook(0), Part::Webhook(1), LEADER];
    let others = [
        Part::Etcd,
        Part::ApiServer,
        Part::ControllerManager,
        Part::Scheduler,
        Part::Kwok,
        Part::TektonWebhook,
    ];
    let used = |parts: &[Part]| cluster::cpu(bed, parts);
    let (requests, our_cpu, all_cpu) = (
        Requests::so_far(&client).await?,
        used(&ours)?,
        used(&others)? + used(&ours)?,
    );
    let (times, took) = released(bed, namespace, specs).await?;
    let writes = Requests::so_far(&client).await?.writes_since(&requests);
    let (our_cpu, all_cpu) = (used(&ours)? - our_cpu, used(&others)? + used(&ours)? - all_cpu);
    let of = |share| quantile(&times, share).context("no run was released");
    let seconds = took.as_secs_f64();
    Ok(vec![
        ("all released, s", seconds),
        ("runs a second", number(specs.len()) / seconds),
        (WRITES, writes / seconds),
        ("p50, s", of(0.5)?),
        ("p99, s", of(0.99)?),
        ("our CPU, % of all", our_cpu / all_cpu * 100.0),
        ("our CPU, ms a run", our_cpu / number(specs.len()) * 1e3),
        (MEMORY, cluster::memory(bed, &OURS[2..3])?),
    ])
}

/// Creates runs, and waits until all are released; for how long each was held, and all together.
pub(crate) async fn released(
    bed: &Testbed,
    namespace: &str,
    specs: &[RunSpec],
) -> Result<(Vec<f64>, Duration)> {
    let client = bed.client().await?;
    let (seen, _watching) = watch::runs(&client, namespace).await?;
    let begun = Instant::now();
    let asked = cluster::create_runs(&client, namespace, specs).await?;
    let done = || seen.look().values().filter(|run| run.released.is_some()).count();
    cluster::all_are(bed, "runs released", specs.len(), ALL_RELEASED, done).await?;
    let took = begun.elapsed();
    let asked: BTreeMap<_, _> = specs.iter().map(RunSpec::name).zip(asked).collect();
    let held = seen
        .look()
        .iter()
        .filter_map(|(name, run)| Some(run.released? - *asked.get(name.as_str())?))
        .collect::<Vec<_>>();
    Ok((held.iter().map(Duration::as_secs_f64).collect(), took))
}

/// The same kind of write as a release: a patch of a run, past Tekton's webhook.
async fn patches(client: &Client, namespace: &str, count: usize) -> Result<Figures> {
    let api = runs::runs(client, namespace);
    let patch = |index: usize| {
        let (api, name) = (&api, format!("run-{index}"));
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"measured": "yes"}}}));
        async move { api.patch(&name, &PatchParams::default(), &patch).await.map(drop) }
    };
    let begun = Instant::now();
    stream::iter((0..count).map(patch))
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(vec![(WRITES, number(count) / begun.elapsed().as_secs_f64())])
}

async fn creates(client: &Client, namespace: &str, count: usize) -> Result<Figures> {
    let map = |index| {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(format!("map-{index}"));
        map
    };
    let begun = Instant::now();
    cluster::create_all(
        &Api::namespaced(client.clone(), namespace),
        (0..count).map(map).collect(),
    )
    .await?;
    Ok(vec![(WRITES, number(count) / begun.elapsed().as_secs_f64())])
}
