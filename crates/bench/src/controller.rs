//! The controller with many runs in the cluster, and with many new runs at once.

use crate::cluster::{self, CONCURRENT, Requests};
use crate::part::{BenchPart, Effort};
use crate::scenario::{Figures, Scenario};
use crate::stats::{number, quantile};
use crate::variants::{CONTROLLER, CREATES, PATCHES, RELEASE};
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
use testbed::Part;
use testbed::pace::AS_SHIPPED;
use testbed::runs::{self, RunSpec};
use testbed::{Limits, Nodes, Testbed};

const LEADER: Part = Part::Controller(0);
const OURS: [Part; 3] = [Part::Webhook(0), Part::Webhook(1), LEADER];
const OTHERS: [Part; 6] = [
    Part::Etcd,
    Part::ApiServer,
    Part::ControllerManager,
    Part::Scheduler,
    Part::Kwok,
    Part::TektonWebhook,
];
const EXISTING: &str = "existing";
pub(crate) const FIRST_WRITE: &str = "start to first write, s";
pub(crate) const MEMORY: &str = "memory, MB";
pub(crate) const AT_REST: &str = "CPU at rest, % of a core";
const WRITES: &str = "writes a second";
const RUNS: &str = "runs a second";
const OUR_SHARE: &str = "CPU of pod-affinity, % of all";
const OUR_CPU: &str = "CPU of pod-affinity, ms per run";
const ALL_RELEASED: Duration = Duration::from_mins(10);
/// Nodes are created in groups, because a single request for all of them would be too large.
const NODES_AT_ONCE: usize = 200;

pub(crate) const PART: BenchPart = BenchPart {
    name: "controller",
    title: "The controller under many runs",
    method: "Tekton's controller is stopped as soon as it is not needed, so that the figures cover only holds and releases. Existing \
        runs: 65 % succeeded, 15 % failed, 10 % without the label, 10 % cancelled; 2 % of all are still running, with their \
        placeholder. Start-up: from the start of the process to its first write, for a run that was created while no controller ran. \
        Hold to release: includes the work of the StatefulSet controller, the scheduler and KWOK for the placeholder, all on this \
        machine. API server alone: measured on the same machine immediately afterwards, with 32 concurrent requests and no other \
        load. The API server counts the writes.",
    in_quick: true,
    measure: |runtime, effort| runtime.block_on(measure(effort)),
    figures: &[
        FIRST_WRITE,
        MEMORY,
        AT_REST,
        WRITES,
        RUNS,
        "p50, s",
        "p99, s",
        OUR_SHARE,
        OUR_CPU,
    ],
    ratios: &[(WRITES, PATCHES)],
    aims: &[
        (CONTROLLER, MEMORY, None, 50.0),
        (CONTROLLER, AT_REST, None, 0.5),
        (RELEASE, OUR_SHARE, None, 25.0),
    ],
    chart: None,
};

async fn measure(effort: &Effort) -> Result<Vec<Scenario>> {
    let (existing, new) = effort.pick((10_000_usize, 1000), (60, 20));
    // 2 % of the existing runs still run.
    let running = existing.div_ceil(50);
    let bed = start(effort, running + new + 5).await?;
    populate(&bed, existing, running).await?;
    let title = format!("{existing} existing runs");
    let existing = Scenario::measure(
        title,
        effort.rounds,
        &[CONTROLLER],
        str::to_owned,
        async |round, _| at_rest(effort, &bed, round).await,
    );
    Ok(vec![existing.await?, burst(effort, &bed, new).await?])
}

/// A testbed with nodes, pod-affinity with its default settings, and no controller of Tekton.
pub(crate) async fn start(effort: &Effort, nodes: usize) -> Result<Testbed> {
    let bed = Testbed::start(effort.options(Limits::Raised)).await?;
    bed.install_pod_affinity_with(&[AS_SHIPPED]).await?;
    bed.stop(Part::TektonController)?;
    for (group, from) in (0..nodes).step_by(NODES_AT_ONCE).enumerate() {
        let nodes = Nodes::new(&format!("node-{group}"), NODES_AT_ONCE.min(nodes - from));
        bed.add_nodes(&nodes).await?;
    }
    Ok(bed)
}

/// The controller handles the running runs. The other runs are created in the state that they have long after their end.
async fn populate(bed: &Testbed, existing: usize, running: usize) -> Result<()> {
    let (client, namespace) = (bed.client().await?, bed.namespace(EXISTING).await?);
    let spec = |index: usize| RunSpec::diamond(EXISTING, &format!("run-{index}"));
    let labelled: Vec<_> = (0..running).map(|index| spec(index).opted_in("true")).collect();
    until_released(bed, &namespace, &labelled).await?;
    stop_controllers(bed)?;
    let ended = (running..existing).map(|index| create_ended(&client, spec(index), index));
    let ended = stream::iter(ended).buffer_unordered(CONCURRENT);
    ended.try_collect::<Vec<()>>().await?;
    bed.start_again(LEADER).await?;
    Ok(())
}

async fn create_ended(client: &Client, spec: RunSpec, index: usize) -> Result<()> {
    let is_labelled = !index.is_multiple_of(10);
    let spec = if is_labelled { spec.opted_in("true") } else { spec };
    let run = spec.create(client).await.context("creating a run")?;
    let (api, params) = (runs::runs(client, EXISTING), PatchParams::default());
    if is_labelled {
        let patched = api
            .patch(spec.name(), &params, &Patch::Merge(enrolment(&run)))
            .await;
        patched.context("enrolling a run")?;
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
    let patched = api.patch_status(spec.name(), &params, &status).await;
    patched.context("ending a run").map(drop)
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

/// The second controller is started once only, by the installation.
fn stop_controllers(bed: &Testbed) -> Result<()> {
    for controller in [LEADER, Part::Controller(1)] {
        if bed.pid(controller).is_some() {
            bed.stop(controller)?;
        }
    }
    Ok(())
}

/// Restarts the controller, and measures its start and the time afterwards, in which it has no work.
pub(crate) async fn at_rest(effort: &Effort, bed: &Testbed, round: u32) -> Result<Figures> {
    let client = bed.client().await?;
    stop_controllers(bed)?;
    let run = RunSpec::diamond("default", &format!("marker-{round}")).opted_in("true");
    let run = run.create(&client).await.context("creating a run")?;
    let placeholder = placeholder(&run)?;
    let sets: Api<StatefulSet> = Api::namespaced(client, "default");
    let started = Instant::now();
    bed.start_again(LEADER).await?;
    let written = bed.until("the placeholder", Duration::from_mins(2), async || {
        sets.get(&placeholder).await.map_err(|error| error.to_string())
    });
    written.await?;
    let first_write = started.elapsed().as_secs_f64();
    cluster::delete_runs(bed, "default").await?;
    // Work that the start has left does not count as rest.
    let window = effort.pick(Duration::from_mins(1), Duration::from_secs(3));
    tokio::time::sleep(window / 3).await;
    let at_rest = cluster::cpu_at_rest(bed, &[LEADER], window).await?;
    let (resident, peak) = cluster::memory(bed, LEADER)?;
    Ok(vec![
        (FIRST_WRITE, first_write),
        (MEMORY, resident),
        ("maximum memory, MB", peak),
        (AT_REST, at_rest * 100.0),
    ])
}

/// The name of a run's placeholder.
pub(crate) fn placeholder(run: &DynamicObject) -> Result<String> {
    let uid = run.uid().context("a run without a UID")?;
    Ok(PlaceholderName::of_uid(&uid).as_str().to_owned())
}

/// Many new runs, and then as many writes as the API server can do without pod-affinity.
async fn burst(effort: &Effort, bed: &Testbed, new: usize) -> Result<Scenario> {
    let mut scenario = Scenario::new(format!("{new} new runs at once"));
    for round in 0..effort.rounds {
        let client = bed.client().await?;
        let namespace = bed.namespace(&format!("burst-{round}")).await?;
        let spec = |index| RunSpec::diamond(&namespace, &format!("run-{index}")).opted_in("true");
        let specs: Vec<_> = (0..new).map(spec).collect();
        scenario.add(RELEASE, release(bed, &namespace, &specs).await?)?;
        scenario.add(PATCHES, patches(&client, &namespace, new).await?)?;
        scenario.add(CREATES, creates(&client, &namespace, new).await?)?;
        cluster::delete_runs(bed, &namespace).await?;
        eprintln!("   round {}: {new} runs released", round + 1);
    }
    Ok(scenario)
}

async fn release(bed: &Testbed, namespace: &str, specs: &[RunSpec]) -> Result<Figures> {
    let client = bed.client().await?;
    let cpu = || anyhow::Ok((cluster::cpu(bed, &OURS)?, cluster::cpu(bed, &OTHERS)?));
    let (requests, before) = (Requests::read(&client).await?, cpu()?);
    let (times, duration) = until_released(bed, namespace, specs).await?;
    let (now, after) = (Requests::read(&client).await?, cpu()?);
    let (our_cpu, others) = (after.0 - before.0, after.1 - before.1);
    let of = |share| quantile(&times, share).context("no run was released");
    let (seconds, count) = (duration.as_secs_f64(), number(specs.len()));
    Ok(vec![
        ("all released, s", seconds),
        (RUNS, count / seconds),
        (WRITES, now.writes_since(&requests) / seconds),
        ("p50, s", of(0.5)?),
        ("p99, s", of(0.99)?),
        (OUR_SHARE, our_cpu / (our_cpu + others) * 100.0),
        (OUR_CPU, our_cpu / count * 1e3),
        (MEMORY, cluster::memory(bed, LEADER)?.1),
    ])
}

/// Creates runs, and waits until all are released. Returns the seconds for which each run was held, and the duration of all.
pub(crate) async fn until_released(
    bed: &Testbed,
    namespace: &str,
    specs: &[RunSpec],
) -> Result<(Vec<f64>, Duration)> {
    let client = bed.client().await?;
    let watch = watch::runs(&client, namespace).await?;
    let start = Instant::now();
    let created = cluster::create_runs(&client, namespace, specs).await?;
    let released = || {
        watch
            .records()
            .values()
            .filter(|run| run.released.is_some())
            .count()
    };
    cluster::until_all(bed, "runs released", specs.len(), ALL_RELEASED, released).await?;
    let duration = start.elapsed();
    let created: BTreeMap<_, _> = specs.iter().map(RunSpec::name).zip(created).collect();
    let runs = watch.records();
    let held = runs
        .iter()
        .filter_map(|(name, run)| Some(run.released? - *created.get(name.as_str())?));
    Ok((held.map(|time| time.as_secs_f64()).collect(), duration))
}

/// The same kind of write as a release: a patch of a run, which passes Tekton's webhook.
async fn patches(client: &Client, namespace: &str, count: usize) -> Result<Figures> {
    let api = runs::runs(client, namespace);
    let patch = async |index| {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"measured": "yes"}}}));
        let name = format!("run-{index}");
        api.patch(&name, &PatchParams::default(), &patch).await.map(drop)
    };
    let start = Instant::now();
    let patched = stream::iter(0..count).map(patch).buffer_unordered(CONCURRENT);
    patched.try_collect::<Vec<()>>().await?;
    Ok(vec![(WRITES, number(count) / start.elapsed().as_secs_f64())])
}

async fn creates(client: &Client, namespace: &str, count: usize) -> Result<Figures> {
    let map = |index| {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(format!("map-{index}"));
        map
    };
    let maps = (0..count).map(map).collect();
    let start = Instant::now();
    cluster::create_all(&Api::namespaced(client.clone(), namespace), maps).await?;
    Ok(vec![(WRITES, number(count) / start.elapsed().as_secs_f64())])
}
