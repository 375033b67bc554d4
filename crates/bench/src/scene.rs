//! Runs of one variant in a namespace of their own, from their creation to their end.

use crate::Effort;
use crate::cluster;
use crate::turn::{Promise, Turn};
use crate::watch::{self, Pods, Runs, Watch};
use crate::ways;
use anyhow::Result;
use std::time::{Duration, Instant};
use testbed::runs::RunSpec;
use testbed::{Admission, Testbed};
use tokio::time::sleep_until;

pub(crate) const DISABLED: &str = "Tekton, disabled";
pub(crate) const ISOLATE: &str = "Tekton, isolate-pipelinerun";
pub(crate) const COMPLETED: &str = "pod-affinity, colocateCompleted";
pub(crate) const BY_POLICIES: &str = "pod-affinity by policies, colocateCompleted";
/// Longest wait for all runs of one measurement.
const ALL_DONE: Duration = Duration::from_mins(90);

/// What decides about the place of a run's pods.
#[derive(Clone, Copy)]
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    coschedule: &'static str,
    label: Option<&'static str>,
    promise: Promise,
    way: Admission,
}

pub(crate) const VARIANTS: [Variant; 7] = [
    variant(DISABLED, "disabled", None, Promise::Nothing),
    variant(
        "pod-affinity, colocateAlways",
        "disabled",
        Some("colocateAlways"),
        Promise::OneNode,
    ),
    variant(
        COMPLETED,
        "disabled",
        Some("colocateCompleted"),
        Promise::ANodeOfItsOwn,
    ),
    Variant {
        way: Admission::Policies,
        ..variant(
            BY_POLICIES,
            "disabled",
            Some("colocateCompleted"),
            Promise::ANodeOfItsOwn,
        )
    },
    variant(
        "pod-affinity, isolateAlways",
        "disabled",
        Some("isolateAlways"),
        Promise::ANodeOfItsOwn,
    ),
    variant(ISOLATE, "isolate-pipelinerun", None, Promise::ANodeOfItsOwn),
    variant("Tekton, pipelineruns", "pipelineruns", None, Promise::OneNode),
];

const fn variant(
    name: &'static str,
    coschedule: &'static str,
    label: Option<&'static str>,
    promise: Promise,
) -> Variant {
    Variant {
        name,
        coschedule,
        label,
        promise,
        way: Admission::Webhook,
    }
}

/// The variants with these names, as they come.
pub(crate) fn in_random_order(names: &[&str]) -> Vec<Variant> {
    let mut order = VARIANTS.to_vec();
    order.retain(|variant| names.contains(&variant.name));
    fastrand::shuffle(&mut order);
    order
}

/// Runs that are to be, and eyes on them.
pub(crate) struct Scene<'a> {
    bed: &'a Testbed,
    pub(crate) namespace: String,
    variant: Variant,
    specs: Vec<RunSpec>,
    pods: Pods,
    runs: Runs,
    _watches: [Watch; 2],
}

impl<'a> Scene<'a> {
    /// Prepares so many runs in a namespace in which one like them has run already.
    pub(crate) async fn set(
        effort: &Effort,
        bed: &'a Testbed,
        namespace: &str,
        variant: Variant,
        size: usize,
    ) -> Result<Self> {
        let namespace = format!("{namespace}-{}", slug(variant.name));
        let namespace = ways::namespace(bed, &namespace, variant.way).await?;
        cluster::coschedule(bed, variant.coschedule).await?;
        cluster::warm_up(bed, &namespace, variant.label).await?;
        let lasting = effort.pick("3s", "500ms");
        let specs = (0..size).map(|index| spec(&namespace, index, variant, lasting));
        let client = bed.client().await?;
        let (pods, watching_pods) = watch::pods(&client, &namespace).await?;
        let (runs, watching_runs) = watch::runs(&client, &namespace).await?;
        Ok(Self {
            bed,
            variant,
            specs: specs.collect(),
            pods,
            runs,
            namespace,
            _watches: [watching_pods, watching_runs],
        })
    }

    /// Creates the runs, one after the other with so much time between, or all at once, and waits for their end.
    pub(crate) async fn play(&self, apart: Duration) -> Result<Turn> {
        let client = self.bed.client().await?;
        let asked = if apart.is_zero() {
            cluster::create_runs(&client, &self.namespace, &self.specs).await?
        } else {
            self.create_apart(apart).await?
        };
        let done = || {
            let runs = self.runs.look();
            runs.values()
                .filter(|run| run.done.is_some() || run.failed.is_some())
                .count()
        };
        cluster::all_are(self.bed, "runs done", self.specs.len(), ALL_DONE, done).await?;
        let names = self.specs.iter().map(|spec| spec.name().to_owned());
        Ok(Turn {
            promise: self.variant.promise,
            asked: names.zip(asked).collect(),
            pods: self.pods.look().clone(),
            runs: self.runs.look().clone(),
        })
    }

    async fn create_apart(&self, apart: Duration) -> Result<Vec<Instant>> {
        let client = self.bed.client().await?;
        let (mut asked, mut next) = (Vec::new(), Instant::now());
        for spec in &self.specs {
            sleep_until(next.into()).await;
            asked.push(Instant::now());
            spec.create(&client).await?;
            next += apart;
        }
        Ok(asked)
    }

    /// Deletes the runs, and waits until their pods are gone.
    pub(crate) async fn clear(self) -> Result<()> {
        cluster::clear_runs(self.bed, &self.namespace).await
    }
}

fn slug(name: &str) -> String {
    let kept = name.chars().filter(char::is_ascii_alphanumeric);
    kept.collect::<String>().to_lowercase()
}

fn spec(namespace: &str, index: usize, variant: Variant, lasting: &str) -> RunSpec {
    let spec = RunSpec::diamond(namespace, &format!("run-{index}")).lasting(lasting);
    match variant.label {
        Some(value) => spec.opted_in(value),
        None => spec,
    }
}
