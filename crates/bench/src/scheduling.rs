//! The scheduler alone: pods are created while the scheduler is stopped, then it is started. No other process changes the pods.

mod shapes;
mod sizes;

use crate::cluster::{self, cpu_of, sum};
use crate::part::{BenchPart, Effort};
use crate::scenario::{Figures, Scenario};
use crate::stats::number;
use crate::variants::{CLUSTER, ISOLATE, NO_TERMS};
use crate::watch::{self, PodRecord, Recorder};
use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::Api;
use serde_json::json;
use shapes::{TASKS, TermsShape, placeholder_name, unrelated};
use sizes::{QUICK, SIZES, SchedulerVariant};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use testbed::Part;
use testbed::{Limits, Options, Testbed};

const TOGETHER: &str = "queued together, s";
const HELD: &str = "tasks after placeholders, s";
const UNRELATED: &str = "unrelated pods, s";
const CPU: &str = "CPU of the scheduler, s";
const HELD_CPU: &str = "tasks after placeholders, CPU of the scheduler, s";
const FAILED: &str = "failed attempts";
const RUNS: &str = "runs";
const OTHERS: &str = "others";
/// The scheduler tries a pod that found no node again after at most ten seconds. After a longer silence, it has given up.
const SILENCE: Duration = Duration::from_secs(40);

pub(crate) const PART: BenchPart = BenchPart {
    name: "scheduling",
    title: "Scheduling alone",
    method: "each run is a placeholder (with Tekton's modes: an assistant) and four task pods. The pods are created while the scheduler \
        is stopped. Then the scheduler is started, and the time from its first binding to its last binding is measured. Queued \
        together: all pods at once, the placeholders first. Tasks after placeholders: the placeholders are bound before the tasks are \
        created, as with held runs. Unrelated pods: as many pods without terms as there are runs, in addition to the bound pods. Fast \
        path: the scheduler's feature gate InterPodAffinityHostnameFastPath, alpha in Kubernetes 1.37 and off by default.",
    in_quick: true,
    measure: |runtime, effort| runtime.block_on(measure(effort)),
    figures: &[TOGETHER, HELD, UNRELATED, CPU, FAILED],
    ratios: &[
        (TOGETHER, ISOLATE),
        (HELD, ISOLATE),
        (TOGETHER, NO_TERMS),
        (HELD, NO_TERMS),
        (UNRELATED, NO_TERMS),
        (TOGETHER, CLUSTER),
        (HELD, CLUSTER),
    ],
    aims: &[
        (CLUSTER, TOGETHER, Some(ISOLATE), 0.6),
        (CLUSTER, HELD, Some(ISOLATE), 0.7),
        (CLUSTER, TOGETHER, Some(NO_TERMS), 2.2),
    ],
    chart: Some(TOGETHER),
};

async fn measure(effort: &Effort) -> Result<Vec<Scenario>> {
    let sizes = effort.allowed(effort.pick(&SIZES[..], &QUICK), |size| size.runs)?;
    let options = Options {
        tekton: false,
        taint_new_nodes: false,
        ..effort.options(Limits::Raised)
    };
    let bed = Testbed::start(options).await?;
    for namespace in [RUNS, OTHERS] {
        bed.namespace(namespace).await?;
    }
    for part in [Part::Scheduler, Part::ControllerManager, Part::Kwok] {
        bed.stop(part)?;
    }
    let (mut scenarios, mut nodes) = (Vec::new(), 0);
    for size in sizes {
        add_nodes(&bed, nodes, size.nodes).await?;
        nodes = size.nodes;
        let title = format!("{} nodes, {} runs", size.nodes, size.runs);
        let variants = size.variants(bed.versions().kubernetes);
        let measured = Scenario::measure(
            title,
            effort.rounds,
            &variants,
            SchedulerVariant::name,
            async |_, variant| one_round(&bed, variant, size.runs).await,
        );
        scenarios.push(measured.await?);
    }
    Ok(scenarios)
}

/// Creates nodes that are Ready. The processes that would change them are stopped.
async fn add_nodes(bed: &Testbed, from: usize, to: usize) -> Result<()> {
    let size = json!({"cpu": "8", "memory": "32Gi", "pods": "110"});
    let node = |index: usize| {
        let name = format!("node-{index}");
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
            "status": {
                "capacity": size, "allocatable": size,
                "conditions": [{"type": "Ready", "status": "True", "reason": "Created", "message": ""}],
            },
        }))
    };
    let nodes = (from..to).map(node).collect::<Result<Vec<Node>, _>>()?;
    cluster::create_all(&Api::all(bed.client().await?), nodes).await?;
    Ok(())
}

async fn one_round(bed: &Testbed, variant: SchedulerVariant, runs: usize) -> Result<Figures> {
    let mut figures = Figures::new();
    if !variant.shape.has_node_name() {
        figures.extend(all_at_once(bed, variant, runs).await?);
    }
    let placeholders = placeholders(variant, runs);
    let placeholders = schedule(bed, variant, RUNS, placeholders.collect())
        .await?
        .check(variant.shape)?;
    let tasks = tasks(variant, runs, &placeholders.nodes);
    let held = schedule(bed, variant, RUNS, tasks.collect())
        .await?
        .check(variant.shape)?;
    delete(bed).await?;
    figures.extend([(HELD, held.seconds), (HELD_CPU, held.cpu)]);
    Ok(figures)
}

async fn all_at_once(bed: &Testbed, variant: SchedulerVariant, runs: usize) -> Result<Figures> {
    let nodes = BTreeMap::new();
    let all = placeholders(variant, runs).chain(tasks(variant, runs, &nodes));
    let together = schedule(bed, variant, RUNS, all.collect())
        .await?
        .check(variant.shape)?;
    let others = (0..runs).map(unrelated).collect();
    let unrelated = schedule(bed, variant, OTHERS, others)
        .await?
        .check(TermsShape::None)?;
    delete(bed).await?;
    Ok(vec![
        (TOGETHER, together.seconds),
        (UNRELATED, unrelated.seconds),
        (CPU, together.cpu),
        ("attempts", together.attempts),
        (FAILED, together.failed_attempts),
        ("runs on a shared node", number(together.shared)),
    ])
}

fn placeholders(variant: SchedulerVariant, runs: usize) -> impl Iterator<Item = Pod> {
    (0..runs).map(move |run| variant.shape.placeholder(run))
}

/// The tasks of all runs. `nodes` has the node of each pod that is bound, by the name of the pod.
fn tasks(
    variant: SchedulerVariant,
    runs: usize,
    nodes: &BTreeMap<String, String>,
) -> impl Iterator<Item = Pod> {
    (0..runs).flat_map(move |run| {
        let node = nodes.get(&placeholder_name(run)).map(String::as_str);
        (0..TASKS).map(move |task| variant.shape.task(run, task, node))
    })
}

async fn delete(bed: &Testbed) -> Result<()> {
    cluster::delete_pods(bed, RUNS).await?;
    cluster::delete_pods(bed, OTHERS).await
}

/// What the scheduler needed to bind pods, and what it did not achieve.
struct Scheduled {
    seconds: f64,
    cpu: f64,
    attempts: f64,
    failed_attempts: f64,
    shared: usize,
    /// The nodes of all bound pods, by the name of the pod.
    nodes: BTreeMap<String, String>,
}

impl Scheduled {
    fn check(self, shape: TermsShape) -> Result<Self> {
        if shape != TermsShape::None && self.shared > 0 {
            bail!("{} runs do not have one node of their own", self.shared);
        }
        Ok(self)
    }
}

async fn schedule(
    bed: &Testbed,
    variant: SchedulerVariant,
    namespace: &str,
    pods: Vec<Pod>,
) -> Result<Scheduled> {
    let client = bed.client().await?;
    let names: BTreeSet<_> = pods.iter().filter_map(|pod| pod.metadata.name.clone()).collect();
    cluster::create_all(&Api::namespaced(client.clone(), namespace), pods).await?;
    let watch = watch::pods(&client, namespace).await?;
    let gates = variant.feature_gates();
    let args: Vec<_> = gates.iter().map(String::as_str).collect();
    bed.start_again_with(Part::Scheduler, &args).await?;
    let pid = cluster::pid(bed, Part::Scheduler)?;
    let cpu = until_first_binding(&watch, &names, pid).await?;
    let unbound = until_silence(&watch, &names).await;
    if unbound > 0 {
        bail!("{unbound} pods were not bound");
    }
    let cpu = cpu_of(pid)? - cpu;
    let metrics = bed.scheduler_metrics().await?;
    bed.kill(Part::Scheduler)?;
    let bound = watch.records();
    Ok(Scheduled {
        seconds: span(&bound, &names)?,
        cpu,
        attempts: sum(&metrics, "scheduler_schedule_attempts_total", |_| true),
        failed_attempts: cluster::failed_attempts(&metrics),
        shared: runs_on_shared_nodes(&bound),
        nodes: bound
            .iter()
            .map(|(name, pod)| (name.clone(), pod.node.clone()))
            .collect(),
    })
}

/// Returns the CPU time that the scheduler had used when it bound the first of these pods.
async fn until_first_binding(watch: &Recorder<PodRecord>, names: &BTreeSet<String>, pid: u32) -> Result<f64> {
    let start = Instant::now();
    while count(watch, names) == 0 {
        if start.elapsed() > SILENCE {
            bail!("the scheduler has bound no pod in {SILENCE:?}");
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    cpu_of(pid)
}

/// Waits until all pods are bound, or none for a long time. Returns the number of pods that are not bound.
async fn until_silence(watch: &Recorder<PodRecord>, names: &BTreeSet<String>) -> usize {
    let (mut last, mut changed) = (0, Instant::now());
    loop {
        let now = count(watch, names);
        if now != last {
            (last, changed) = (now, Instant::now());
        }
        if now == names.len() || changed.elapsed() > SILENCE {
            return names.len() - now;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn count(watch: &Recorder<PodRecord>, names: &BTreeSet<String>) -> usize {
    watch
        .records()
        .keys()
        .filter(|name| names.contains(*name))
        .count()
}

/// Seconds from the first to the last binding of these pods.
fn span(bound: &BTreeMap<String, PodRecord>, names: &BTreeSet<String>) -> Result<f64> {
    let times = || names.iter().filter_map(|name| Some(bound.get(name)?.bound));
    let (first, last) = times().min().zip(times().max()).context("no pod was bound")?;
    Ok((last - first).as_secs_f64())
}

/// The number of runs with pods on two nodes, or on a node with pods of another run.
fn runs_on_shared_nodes(bound: &BTreeMap<String, PodRecord>) -> usize {
    let (mut runs, mut nodes): (BTreeMap<_, BTreeSet<_>>, BTreeMap<_, BTreeSet<_>>) = Default::default();
    for pod in bound.values() {
        runs.entry(&pod.run).or_default().insert(&pod.node);
        nodes.entry(&pod.node).or_default().insert(&pod.run);
    }
    let shares = |on: &BTreeSet<&String>| on.len() > 1 || on.iter().any(|node| nodes[node].len() > 1);
    runs.values().filter(|on| shares(on)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(pods: &[(&str, &str)]) -> BTreeMap<String, PodRecord> {
        let pod = |(index, (run, node)): (usize, &(&str, &str))| {
            let pod = PodRecord {
                run: (*run).to_owned(),
                node: (*node).to_owned(),
                is_task: true,
                bound: Instant::now(),
                ended: None,
            };
            (index.to_string(), pod)
        };
        pods.iter().enumerate().map(pod).collect()
    }

    #[test]
    fn runs_that_share_a_node_or_use_two_nodes_are_counted() {
        let count = |pods: &[(&str, &str)]| runs_on_shared_nodes(&bound(pods));
        assert_eq!(count(&[("a", "1"), ("a", "1"), ("b", "2")]), 0);
        assert_eq!(count(&[("a", "1"), ("b", "1"), ("c", "2")]), 2);
        assert_eq!(count(&[("a", "1"), ("a", "2"), ("c", "3")]), 1);
    }
}
