//! Whole runs from creation to end: without placement, with Tekton's own modes, and with pod-affinity.

use crate::admission;
use crate::batch::{self, Batch, RunVariant, VARIANTS, Workload};
use crate::cluster::{self, POD_AFFINITY, Requests, VERBS};
use crate::outcome::{FIRST_POD, TOTAL};
use crate::part::{BenchPart, Effort};
use crate::scenario::{Figures, Scenario};
use crate::stats::number;
use crate::variants::{BY_POLICIES, COMPLETED, DISABLED, ISOLATE};
use anyhow::{Context, Error, Result};
use std::time::Duration;
use testbed::product::Installed;
use testbed::{Limits, Nodes, Part, Testbed, probe};

const CPU: &str = "CPU of all processes, ms per run";
const SERVER_CPU: &str = "CPU of the API server, ms per run";
const ETCD_CPU: &str = "CPU of etcd, ms per run";
const SCHEDULER_CPU: &str = "CPU of the scheduler, ms per run";
const MANAGER_CPU: &str = "CPU of the controller manager, ms per run";
const TEKTON_CPU: &str = "CPU of Tekton's controller, ms per run";
const TEKTON_WEBHOOK_CPU: &str = "CPU of Tekton's webhook, ms per run";
const KWOK_CPU: &str = "CPU of KWOK, ms per run";
const OUR_CPU: &str = "CPU of pod-affinity, ms per run";
const OUR_CPU_AT_REST: &str = "CPU of pod-affinity at rest in the same time, ms per run";
const OUR_MEMORY: &str = "memory of pod-affinity, MB";
const REQUESTS: &str = "requests per run";
const RECONCILIATIONS: &str = "reconciliations of pod-affinity per run";
/// Long enough: at rest, the processes use about two milliseconds in a second, and the kernel counts in steps of ten.
const REST: Duration = Duration::from_secs(30);
/// The number of runs in a rehearsal, if a scenario has as many.
const REHEARSED: usize = 20;
const RECONCILIATION_COUNT: &str = "pod_affinity_reconcile_seconds_count";
/// The variants of many runs, whose measurement takes long.
const MAIN: [&str; 4] = [DISABLED, ISOLATE, COMPLETED, BY_POLICIES];

const METHOD: &str = "runs of four tasks in three levels are created at the same time, with enough nodes for all of them. \
pod-affinity is installed in every variant, with two replicas of each process. It has nothing to do in the variants without its \
label. Policies and webhook are both installed, each for its own namespaces. CPU is the CPU time of the processes between the \
creation of the first run and the end of the last run. The API server counts the requests; leases and watches are left out, the \
requests of the measuring program (one POST for each run) are not. Memory is the highest value of the largest of the four \
processes of pod-affinity. At rest: what these processes used in thirty seconds without runs, for the time of the measured \
runs. Before the first round, up to twenty runs of each variant rehearse. With colocateAlways, pipelineruns and disabled, runs share \
nodes: these variants need fewer nodes.";

/// All processes that work for a run. The measuring program is not one of them.
const PROCESSES: [(&str, &[Part]); 8] = [
    (SERVER_CPU, &[Part::ApiServer]),
    (ETCD_CPU, &[Part::Etcd]),
    (SCHEDULER_CPU, &[Part::Scheduler]),
    (MANAGER_CPU, &[Part::ControllerManager]),
    (TEKTON_CPU, &[Part::TektonController]),
    (TEKTON_WEBHOOK_CPU, &[Part::TektonWebhook]),
    (KWOK_CPU, &[Part::Kwok]),
    (OUR_CPU, &POD_AFFINITY),
];

/// So few runs that the control plane has CPU to spare: the delay of a single run.
pub(crate) const FEW: BenchPart = BenchPart {
    name: "runs-few",
    title: "Few runs, client limits raised",
    in_quick: false,
    measure: |runtime, effort| {
        runtime.block_on(measure(
            effort,
            Limits::Raised,
            effort.pick(&[1, 5], &[2]),
            &VARIANTS,
        ))
    },
    ..MANY_RUNS
};

/// The client limits of Tekton and of the scheduler are raised, so that the limits do not hide the cost of the rest.
pub(crate) const MANY_RUNS: BenchPart = BenchPart {
    name: "runs",
    title: "Whole runs, client limits raised",
    method: METHOD,
    in_quick: true,
    measure: |runtime, effort| {
        let sizes = effort.pick(&[20, 80, 320][..], &[6]);
        runtime.block_on(measure(effort, Limits::Raised, sizes, &batch::variants(&MAIN)))
    },
    figures: &[
        TOTAL,
        FIRST_POD,
        CPU,
        OUR_CPU,
        OUR_CPU_AT_REST,
        SERVER_CPU,
        ETCD_CPU,
        SCHEDULER_CPU,
        MANAGER_CPU,
        TEKTON_CPU,
        TEKTON_WEBHOOK_CPU,
        KWOK_CPU,
        RECONCILIATIONS,
        REQUESTS,
        OUR_MEMORY,
    ],
    ratios: &[
        (CPU, ISOLATE),
        (CPU, DISABLED),
        (REQUESTS, ISOLATE),
        (REQUESTS, DISABLED),
        (TOTAL, ISOLATE),
        (TOTAL, DISABLED),
        (TOTAL, COMPLETED),
    ],
    aims: &[
        (COMPLETED, CPU, Some(ISOLATE), 1.0),
        (COMPLETED, CPU, Some(DISABLED), 1.15),
        (COMPLETED, REQUESTS, Some(ISOLATE), 0.85),
        (COMPLETED, OUR_CPU, None, 9.0),
        (COMPLETED, TOTAL, Some(ISOLATE), 1.05),
        (COMPLETED, TOTAL, Some(DISABLED), 1.10),
        (BY_POLICIES, TOTAL, Some(COMPLETED), 1.0),
    ],
    chart: Some(TOTAL),
};

pub(crate) const AS_SHIPPED: BenchPart = BenchPart {
    name: "runs-as-shipped",
    title: "Whole runs, client limits as shipped",
    in_quick: false,
    measure: |runtime, effort| {
        let sizes = effort.pick(&[20, 80][..], &[6]);
        runtime.block_on(measure(effort, Limits::AsShipped, sizes, &batch::variants(&MAIN)))
    },
    ..MANY_RUNS
};

async fn measure(
    effort: &Effort,
    limits: Limits,
    sizes: &[usize],
    variants: &[RunVariant],
) -> Result<Vec<Scenario>> {
    let sizes = effort.allowed(sizes, |size| *size)?;
    let bed = Testbed::start(effort.options(limits)).await?;
    let most = sizes.iter().max().copied().unwrap_or_default();
    bed.add_nodes(&Nodes::new("node", most + most / 5 + 2)).await?;
    let installed = admission::install(&bed).await?;
    let rehearsed = Workload::diamonds(effort, most.min(REHEARSED));
    Batch::rehearse(&bed, variants, rehearsed).await?;
    let rest = effort.pick(REST, Duration::from_secs(1));
    let at_rest = cluster::cpu_at_rest(&bed, &POD_AFFINITY, rest).await?;
    let mut scenarios = Vec::new();
    for size in sizes {
        let title = if size == 1 {
            "one run".to_owned()
        } else {
            format!("{size} runs")
        };
        let name = |variant: RunVariant| variant.name.to_owned();
        let measured = Scenario::measure(title, effort.rounds, variants, name, async |round, variant| {
            let workload = Workload::diamonds(effort, size);
            let batch = Batch::prepare(&bed, &format!("size-{size}-{round}"), variant, workload).await?;
            figures(&bed, &installed, batch, size, at_rest).await
        });
        scenarios.push(measured.await?);
    }
    Ok(scenarios)
}

async fn figures(
    bed: &Testbed,
    installed: &Installed,
    batch: Batch<'_>,
    size: usize,
    at_rest: f64,
) -> Result<Figures> {
    let before = Counters::read(bed, installed).await?;
    let outcome = batch.run().await?;
    let usage = before.until_now(bed, installed, size).await?;
    batch.delete().await?;
    let at_rest = at_rest * 1e3 * outcome.duration()?.as_secs_f64() / number(size);
    let mut figures = outcome.figures()?;
    figures.push((OUR_CPU_AT_REST, at_rest));
    figures.extend(usage);
    Ok(figures)
}

/// The CPU time and the requests since the start of the processes.
struct Counters {
    requests: Requests,
    /// Seconds, in the order of [`PROCESSES`].
    cpu: Vec<f64>,
    reconciliations: f64,
}

impl Counters {
    async fn read(bed: &Testbed, installed: &Installed) -> Result<Self> {
        let cpu = PROCESSES.iter().map(|(_, parts)| cluster::cpu(bed, parts));
        let mut reconciliations = 0.0;
        for admin in &installed.controller_admin {
            let metrics = probe::get(*admin, "/metrics").await.map_err(Error::msg)?;
            reconciliations += cluster::sample(&metrics, RECONCILIATION_COUNT)
                .with_context(|| format!("the controller has no metric {RECONCILIATION_COUNT}"))?;
        }
        Ok(Self {
            reconciliations,
            cpu: cpu.collect::<Result<_>>()?,
            requests: Requests::read(&bed.client().await?).await?,
        })
    }

    async fn until_now(&self, bed: &Testbed, installed: &Installed, size: usize) -> Result<Figures> {
        let now = Self::read(bed, installed).await?;
        let per_run = |value: f64| value / number(size);
        let pairs = now.cpu.iter().zip(&self.cpu);
        let cpu: Vec<_> = pairs.map(|(now, before)| per_run((now - before) * 1e3)).collect();
        let verbs = VERBS.map(|(verb, name)| (name, per_run(now.requests.since(&self.requests, verb))));
        let (_, peak) = cluster::highest_memory(bed, &POD_AFFINITY)?;
        let mut figures = vec![
            (CPU, cpu.iter().sum()),
            (REQUESTS, verbs.iter().map(|(_, count)| count).sum()),
            (
                RECONCILIATIONS,
                per_run(now.reconciliations - self.reconciliations),
            ),
            (OUR_MEMORY, peak),
        ];
        figures.extend(PROCESSES.iter().map(|(name, _)| *name).zip(cpu));
        figures.extend(verbs);
        Ok(figures)
    }
}
