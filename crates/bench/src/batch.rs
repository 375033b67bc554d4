//! Runs of one variant in a namespace of their own, from creation to end.

use crate::admission;
use crate::cluster;
use crate::math_pipeline;
use crate::outcome::{BatchOutcome, Guarantee};
use crate::part::Effort;
use crate::variants::{ALWAYS, BY_POLICIES, COMPLETED, DISABLED, ISOLATE, ISOLATE_ALWAYS, PIPELINERUNS};
use crate::watch::{self, PodRecord, Recorder, RunRecord};
use anyhow::Result;
use std::time::{Duration, Instant};
use testbed::apply::apply_all;
use testbed::runs::RunSpec;
use testbed::{Admission, Testbed};
use tokio::time::sleep_until;

/// The longest wait for the end of all runs.
const ALL_DONE: Duration = Duration::from_mins(90);

/// What decides where the pods of a run are.
#[derive(Clone, Copy)]
pub(crate) struct RunVariant {
    pub(crate) name: &'static str,
    coschedule: &'static str,
    label: Option<&'static str>,
    guarantee: Guarantee,
    admission: Admission,
}

pub(crate) const VARIANTS: [RunVariant; 7] = [
    tekton(DISABLED, "disabled", Guarantee::None),
    tekton(PIPELINERUNS, "pipelineruns", Guarantee::OneNode),
    tekton(ISOLATE, "isolate-pipelinerun", Guarantee::OwnNode),
    pod_affinity(ALWAYS, "colocateAlways", Guarantee::OneNode),
    pod_affinity(COMPLETED, "colocateCompleted", Guarantee::OwnNode),
    RunVariant {
        admission: Admission::Policies,
        ..pod_affinity(BY_POLICIES, "colocateCompleted", Guarantee::OwnNode)
    },
    pod_affinity(ISOLATE_ALWAYS, "isolateAlways", Guarantee::OwnNode),
];

const fn tekton(name: &'static str, coschedule: &'static str, guarantee: Guarantee) -> RunVariant {
    RunVariant {
        name,
        coschedule,
        label: None,
        guarantee,
        admission: Admission::Webhook,
    }
}

const fn pod_affinity(name: &'static str, strategy: &'static str, guarantee: Guarantee) -> RunVariant {
    RunVariant {
        label: Some(strategy),
        ..tekton(name, "disabled", guarantee)
    }
}

/// The variants with these names.
pub(crate) fn variants(names: &[&str]) -> Vec<RunVariant> {
    let mut variants = VARIANTS.to_vec();
    variants.retain(|variant| names.contains(&variant.name));
    variants
}

/// What the runs of a batch do.
#[derive(Clone, Copy)]
pub(crate) struct Workload {
    pub(crate) runs: usize,
    pub(crate) tasks: Tasks,
    /// How long a task lasts.
    pub(crate) lasting: &'static str,
}

/// The tasks of a run.
#[derive(Clone, Copy)]
pub(crate) enum Tasks {
    One,
    /// Four tasks in three levels.
    Diamond,
    /// Four tasks at once, with parameters and results.
    Math,
}

impl Workload {
    /// Runs of four tasks in three levels.
    pub(crate) fn diamonds(effort: &Effort, runs: usize) -> Self {
        Self {
            runs,
            tasks: Tasks::Diamond,
            lasting: effort.pick("3s", "500ms"),
        }
    }

    fn spec(self, namespace: &str, name: &str, variant: RunVariant) -> RunSpec {
        let spec = match self.tasks {
            Tasks::One => RunSpec::new(namespace, name).task("only", &[]),
            Tasks::Diamond => RunSpec::diamond(namespace, name),
            Tasks::Math => math_pipeline::run(namespace, name),
        };
        let spec = spec.lasting(self.lasting);
        match variant.label {
            Some(strategy) => spec.opted_in(strategy),
            None => spec,
        }
    }
}

impl Tasks {
    fn count(self) -> usize {
        match self {
            Self::One => 1,
            Self::Diamond => 4,
            Self::Math => math_pipeline::TASKS.len(),
        }
    }
}

/// Runs that are prepared, and watches of their namespace.
pub(crate) struct Batch<'a> {
    bed: &'a Testbed,
    pub(crate) namespace: String,
    guarantee: Guarantee,
    tasks: usize,
    specs: Vec<RunSpec>,
    pods: Recorder<PodRecord>,
    runs: Recorder<RunRecord>,
}

impl<'a> Batch<'a> {
    /// Prepares the runs. First, a shorter run is created and ends, so that caches are warm.
    pub(crate) async fn prepare(
        bed: &'a Testbed,
        namespace: &str,
        variant: RunVariant,
        workload: Workload,
    ) -> Result<Self> {
        let kept = variant.name.chars().filter(char::is_ascii_alphanumeric);
        let namespace = format!("{namespace}-{}", kept.collect::<String>().to_lowercase());
        let namespace = admission::namespace(bed, &namespace, variant.admission).await?;
        let client = bed.client().await?;
        cluster::set_coschedule(bed, variant.coschedule).await?;
        if matches!(workload.tasks, Tasks::Math) {
            apply_all(&client, &math_pipeline::definitions(&namespace)).await?;
        }
        let short = Workload {
            lasting: "100ms",
            ..workload
        };
        let warm_up = short.spec(&namespace, "warm-up", variant);
        warm_up.create(&client).await?;
        bed.until_succeeded(&warm_up, Duration::from_mins(2)).await?;
        cluster::delete_runs(bed, &namespace).await?;
        let spec = |index| workload.spec(&namespace, &format!("run-{index}"), variant);
        let specs = (0..workload.runs).map(spec);
        Ok(Self {
            bed,
            guarantee: variant.guarantee,
            tasks: workload.tasks.count(),
            specs: specs.collect(),
            pods: watch::pods(&client, &namespace).await?,
            runs: watch::runs(&client, &namespace).await?,
            namespace,
        })
    }

    /// Runs all variants without a measurement. The first runs on a testbed open connections and fill caches, and the garbage
    /// collector reads the owner of each object until it watches Tekton's kinds.
    pub(crate) async fn rehearse(bed: &Testbed, variants: &[RunVariant], workload: Workload) -> Result<()> {
        for variant in variants {
            let batch = Batch::prepare(bed, "rehearsal", *variant, workload).await?;
            batch.run().await?;
            batch.delete().await?;
        }
        Ok(())
    }

    /// Creates all runs at once, and waits for their end.
    pub(crate) async fn run(&self) -> Result<BatchOutcome> {
        let client = self.bed.client().await?;
        let created = cluster::create_runs(&client, &self.namespace, &self.specs).await?;
        self.until_done(created).await
    }

    /// Creates this many runs one after the other, then the rest with this time between two of them, and waits for their end.
    pub(crate) async fn run_in_order(&self, backlog: usize, interval: Duration) -> Result<BatchOutcome> {
        let client = self.bed.client().await?;
        let (mut created, mut next) = (Vec::new(), Instant::now());
        for (number, spec) in (1..).zip(&self.specs) {
            sleep_until(next.into()).await;
            created.push(Instant::now());
            spec.create(&client).await?;
            if number >= backlog {
                next += interval;
            }
        }
        self.until_done(created).await
    }

    /// Creates the next run when fewer than this many runs are not done, and waits for their end.
    pub(crate) async fn run_at_most(&self, concurrent: usize) -> Result<BatchOutcome> {
        let client = self.bed.client().await?;
        let mut created = Vec::new();
        for spec in &self.specs {
            let active = || created.len() - self.done();
            let room = self
                .bed
                .until("the end of a run", ALL_DONE, async || match active() {
                    active if active < concurrent => Ok(()),
                    active => Err(format!("{active} runs are active")),
                });
            room.await?;
            created.push(Instant::now());
            spec.create(&client).await?;
        }
        self.until_done(created).await
    }

    fn done(&self) -> usize {
        let runs = self.runs.records();
        let done = |run: &&RunRecord| run.done.is_some() || run.failed.is_some();
        runs.values().filter(done).count()
    }

    async fn until_done(&self, created: Vec<Instant>) -> Result<BatchOutcome> {
        cluster::until_all(self.bed, "runs done", self.specs.len(), ALL_DONE, || self.done()).await?;
        let names = self.specs.iter().map(|spec| spec.name().to_owned());
        Ok(BatchOutcome {
            guarantee: self.guarantee,
            tasks_of_a_run: self.tasks,
            created: names.zip(created).collect(),
            pods: self.pods.records().clone(),
            runs: self.runs.records().clone(),
        })
    }

    /// Deletes the runs, and waits until their pods are gone.
    pub(crate) async fn delete(self) -> Result<()> {
        cluster::delete_runs(self.bed, &self.namespace).await
    }
}
