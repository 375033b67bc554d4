//! The scheduler alone: pods are created while it does not run, then it is started. Nothing else runs that would
//! touch them.

use crate::Effort;
use crate::aim::Aim;
use crate::cluster;
use crate::exposition::{label, sum};
use crate::process::cpu_seconds;
use crate::report::Report;
use crate::scenario::{Figures, Scenario};
use crate::shapes::{Shape, TASKS, stranger};
use crate::sizes::{QUICK, SIDE_BY_SIDE, SIZES, Size, Way};
use crate::stats::{exponent, number, short};
use crate::watch::{self, Pods, SeenPod};
use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::Api;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use testbed::{Limits, Options, Part, Testbed};

const TOGETHER: &str = "queued together, s";
const HELD: &str = "tasks after placeholders, s";
const STRANGERS: &str = "unrelated pods, s";
const RUNS: &str = "runs";
const OTHERS: &str = "strangers";
/// A pod that no node takes is tried again after at most ten seconds; whoever is silent for longer has given up.
const SILENCE: Duration = Duration::from_secs(40);

const METHOD: &str = "Each run is a placeholder (with Tekton's modes: an assistant) and four task pods. They are created \
while no scheduler runs. Then the scheduler is started, and the time from its first binding to its last is measured. \
Queued together: all pods at once, the placeholders first. Tasks after placeholders: the placeholders are bound before the \
tasks are created, as with held runs. Unrelated pods: as many pods without terms as there are runs, in addition to the \
bound pods. The fast path is the scheduler's feature gate InterPodAffinityHostnameFastPath, alpha in Kubernetes 1.37 and \
off by default.";

pub(crate) async fn measure(effort: &Effort) -> Result<Vec<Scenario>> {
    let options = Options {
        tekton: false,
        limits: Limits::Raised,
        taint_new_nodes: false,
        ..effort.options()
    };
    let bed = Testbed::start(options).await?;
    for namespace in [RUNS, OTHERS] {
        bed.namespace(namespace).await?;
    }
    for part in [Part::Scheduler, Part::ControllerManager, Part::Kwok] {
        bed.stop(part)?;
    }
    let (mut scenarios, mut nodes) = (Vec::new(), 0);
    for size in sizes(effort)? {
        grow(&bed, nodes, size.nodes).await?;
        nodes = size.nodes;
        scenarios.push(one_size(effort, &bed, size).await?);
    }
    Ok(scenarios)
}

fn sizes(effort: &Effort) -> Result<Vec<Size>> {
    effort.those_wanted(effort.pick(&SIZES[..], &QUICK), |size| size.runs)
}

/// Nodes that are Ready as they are created; nobody looks after them.
async fn grow(bed: &Testbed, from: usize, to: usize) -> Result<()> {
    let node = |index: usize| {
        let (name, room) = (
            format!("node-{index}"),
            json!({"cpu": "8", "memory": "32Gi", "pods": "110"}),
        );
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
            "status": {
                "capacity": room, "allocatable": room,
                "conditions": [{"type": "Ready", "status": "True", "reason": "Made", "message": ""}],
            },
        }))
    };
    let nodes = (from..to).map(node).collect::<Result<Vec<Node>, _>>()?;
    cluster::create_all(&Api::all(bed.client().await?), nodes).await?;
    Ok(())
}

async fn one_size(effort: &Effort, bed: &Testbed, size: Size) -> Result<Scenario> {
    let (none, in_tree) = (Shape::None.name(), Shape::InTree.name());
    let ratios = [
        (TOGETHER, in_tree),
        (HELD, in_tree),
        (TOGETHER, none),
        (HELD, none),
        (STRANGERS, none),
    ];
    let mut scenario = Scenario::new(format!("{} nodes, {} runs", size.nodes, size.runs), &ratios);
    for round in 0..effort.rounds {
        let mut order = size.ways(bed.versions().kubernetes);
        if round % 2 == 1 {
            order.reverse();
        }
        for way in order {
            let name = way.name();
            let figures = turn(bed, way, size.runs).await;
            let figures = figures.with_context(|| format!("{}, {name}", scenario.title))?;
            eprintln!(
                "   {}, round {}: {name}: {:.1} s",
                scenario.title,
                round + 1,
                figures[0].1
            );
            scenario.add(&name, figures)?;
        }
    }
    Ok(scenario)
}

async fn turn(bed: &Testbed, way: Way, runs: usize) -> Result<Figures> {
    let (placeholders, tasks) = pods(way.shape, runs);
    let all = placeholders.iter().chain(&tasks).cloned().collect();
    let together = schedule(bed, way, RUNS, all).await?;
    let strangers = (0..runs).map(stranger).collect();
    let strangers = schedule(bed, way.with(Shape::None), OTHERS, strangers).await?;
    clear(bed).await?;
    schedule(bed, way, RUNS, placeholders).await?;
    let held = schedule(bed, way, RUNS, tasks).await?;
    clear(bed).await?;
    Ok(vec![
        (TOGETHER, together.seconds),
        (HELD, held.seconds),
        (STRANGERS, strangers.seconds),
        ("scheduler's CPU, s", together.cpu),
        ("attempts", together.attempts),
        ("attempts in vain", together.in_vain),
        ("runs on a shared node", together.shared),
        ("pods without a node", together.left),
    ])
}

fn pods(shape: Shape, runs: usize) -> (Vec<Pod>, Vec<Pod>) {
    let tasks = (0..runs).flat_map(|run| (0..TASKS).map(move |task| shape.task(run, task)));
    (
        (0..runs).map(|run| shape.placeholder(run)).collect(),
        tasks.collect(),
    )
}

async fn clear(bed: &Testbed) -> Result<()> {
    cluster::clear_pods(bed, RUNS).await?;
    cluster::clear_pods(bed, OTHERS).await
}

/// What it took the scheduler to bind some pods.
struct Took {
    seconds: f64,
    cpu: f64,
    attempts: f64,
    in_vain: f64,
    shared: f64,
    left: f64,
}

async fn schedule(bed: &Testbed, way: Way, namespace: &str, pods: Vec<Pod>) -> Result<Took> {
    let client = bed.client().await?;
    let names: BTreeSet<_> = pods.iter().filter_map(|pod| pod.metadata.name.clone()).collect();
    cluster::create_all(&Api::namespaced(client.clone(), namespace), pods).await?;
    let (bound, _watching) = watch::pods(&client, namespace).await?;
    let gates = way.gates();
    let args: Vec<_> = gates.iter().map(String::as_str).collect();
    bed.start_again_with(Part::Scheduler, &args).await?;
    let pid = bed.pid(Part::Scheduler).context("the scheduler does not run")?;
    let cpu = first_binding(&bound, &names, pid).await?;
    let left = all_bound(&bound, &names).await;
    let cpu = cpu_seconds(pid)? - cpu;
    let metrics = bed.scheduler_metrics().await?;
    bed.kill(Part::Scheduler)?;
    let seen = bound.look();
    let shared = shared_nodes(&seen);
    if left > 0 && way.shape != Shape::ApartByPlaceholder {
        bail!("{left} of {} pods in {namespace} were not bound", names.len());
    }
    if way.shape.isolates() && shared > 0 {
        bail!("{shared} runs are not alone on one node");
    }
    let attempts = |in_vain: bool| {
        sum(&metrics, "scheduler_schedule_attempts_total", |labels| {
            !in_vain || label(labels, "result") != Some("scheduled")
        })
    };
    Ok(Took {
        seconds: span(&seen, &names)?,
        cpu,
        attempts: attempts(false),
        in_vain: attempts(true),
        shared: number(shared),
        left: number(left),
    })
}

/// The CPU time that the scheduler had used when it bound the first of these pods.
async fn first_binding(bound: &Pods, names: &BTreeSet<String>, pid: u32) -> Result<f64> {
    let begun = Instant::now();
    while count(bound, names) == 0 {
        if begun.elapsed() > SILENCE {
            bail!("the scheduler has bound nothing in {SILENCE:?}");
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    cpu_seconds(pid)
}

/// Returns how many were left when nothing was bound for long.
async fn all_bound(bound: &Pods, names: &BTreeSet<String>) -> usize {
    let (mut last, mut changed) = (0, Instant::now());
    loop {
        let now = count(bound, names);
        if now != last {
            (last, changed) = (now, Instant::now());
        }
        if now == names.len() || changed.elapsed() > SILENCE {
            return names.len() - now;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn count(bound: &Pods, names: &BTreeSet<String>) -> usize {
    bound.look().keys().filter(|name| names.contains(*name)).count()
}

fn span(seen: &BTreeMap<String, SeenPod>, names: &BTreeSet<String>) -> Result<f64> {
    let times = || {
        seen.iter()
            .filter(|(name, _)| names.contains(*name))
            .map(|(_, pod)| pod.bound)
    };
    let (first, last) = times().min().zip(times().max()).context("nothing was bound")?;
    Ok((last - first).as_secs_f64())
}

/// Runs with a pod on a node that is not theirs alone, or on two nodes.
fn shared_nodes(seen: &BTreeMap<String, SeenPod>) -> usize {
    let (mut runs, mut nodes): (BTreeMap<_, BTreeSet<_>>, BTreeMap<_, BTreeSet<_>>) = Default::default();
    for pod in seen.values() {
        runs.entry(&pod.run).or_default().insert(&pod.node);
        nodes.entry(&pod.node).or_default().insert(&pod.run);
    }
    let apart = |of: &BTreeSet<&String>| of.len() > 1 || of.iter().any(|node| nodes[node].len() > 1);
    runs.values().filter(|of| apart(of)).count()
}

pub(crate) fn report(effort: &Effort, scenarios: Vec<Scenario>) -> Report {
    let (ours, sizes) = (Shape::Ours.name(), sizes(effort).unwrap_or_default());
    let faster = [TOGETHER, HELD].iter().flat_map(|figure| {
        scenarios
            .iter()
            .flat_map(|scenario| scenario.faster_than(ours, figure))
    });
    Report {
        part: "scheduling",
        title: "Scheduling alone",
        method: METHOD,
        aims: scenarios.iter().flat_map(aims).collect(),
        faster: faster.collect(),
        notes: SIDE_BY_SIDE
            .iter()
            .flat_map(|shape| growth(*shape, &scenarios, &sizes))
            .collect(),
        scenarios,
        plotted: TOGETHER,
    }
}

fn aims(scenario: &Scenario) -> Vec<Aim> {
    let aim = |figure: &str, shape: Shape, at_most| {
        let what = format!("{}: {figure}, pod-affinity to {}", scenario.title, shape.name());
        let ratio = scenario.ratio(Shape::Ours.name(), shape.name(), figure);
        Aim::at_most(what, at_most, ratio)
    };
    let aims = [
        aim(TOGETHER, Shape::InTree, 0.6),
        aim(HELD, Shape::InTree, 0.95),
        aim(TOGETHER, Shape::None, 2.2),
    ];
    aims.into_iter().flatten().collect()
}

/// The exponents with which the time grows, where sizes differ in one thing only.
fn growth(shape: Shape, scenarios: &[Scenario], sizes: &[Size]) -> Vec<String> {
    let measured: Vec<_> = sizes
        .iter()
        .zip(scenarios)
        .filter_map(|(size, scenario)| Some((*size, scenario.spread(shape.name(), TOGETHER)?.median)))
        .collect();
    let fit = |what: &str, fixed: fn(&Size) -> bool, by: fn(&Size) -> usize| {
        let points = measured.iter().filter(|(size, _)| fixed(size));
        let points: Vec<_> = points
            .map(|(size, seconds)| (number(by(size)), *seconds))
            .collect();
        let exponent = exponent(&points)?;
        Some(format!(
            "{}: the time grows with {what} to the power of {}.",
            shape.name(),
            short(exponent)
        ))
    };
    let nodes = fit("nodes (80 runs)", |size| size.runs == 80, |size| size.nodes);
    let runs = fit("runs (1000 nodes)", |size| size.nodes == 1000, |size| size.runs);
    [nodes, runs].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizes::size;

    fn seen(pods: &[(&str, &str)]) -> BTreeMap<String, SeenPod> {
        let pod = |(index, (run, node)): (usize, &(&str, &str))| {
            let (run, node) = ((*run).to_owned(), (*node).to_owned());
            (
                index.to_string(),
                SeenPod {
                    run,
                    node,
                    is_task: true,
                    bound: Instant::now(),
                    ended: None,
                },
            )
        };
        pods.iter().enumerate().map(pod).collect()
    }

    #[test]
    fn runs_that_share_or_spread_are_counted() {
        assert_eq!(shared_nodes(&seen(&[("a", "1"), ("a", "1"), ("b", "2")])), 0);
        assert_eq!(shared_nodes(&seen(&[("a", "1"), ("b", "1"), ("c", "2")])), 2);
        assert_eq!(shared_nodes(&seen(&[("a", "1"), ("a", "2"), ("c", "3")])), 1);
    }

    #[test]
    fn growth_is_told_where_only_one_thing_differs() {
        let sizes = [size(100, 80), size(1000, 80), size(1000, 800)];
        let scenarios = [1.0, 10.0, 1000.0].map(|seconds| {
            let mut scenario = Scenario::new("", &[]);
            scenario
                .add(Shape::Ours.name(), vec![(TOGETHER, seconds)])
                .unwrap();
            scenario
        });
        let told = growth(Shape::Ours, &scenarios, &sizes).join(" ");
        assert!(
            told.contains("nodes (80 runs) to the power of 1.")
                && told.contains("runs (1000 nodes) to the power of 2."),
            "{told}"
        );
        assert!(growth(Shape::Ours, &scenarios[..1], &sizes[..1]).is_empty());
    }
}
