//! Whole runs, from creation to done: without a word, with Tekton's own modes, with pod-affinity.

use crate::Effort;
use crate::aim::Aim;
use crate::cluster::{self, OURS, Requests, VERBS};
use crate::report::Report;
use crate::scenario::{Figures, Scenario};
use crate::stats::number;
use crate::turn::{Promise, TOTAL, Turn};
use crate::watch;
use crate::ways;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::time::Duration;
use testbed::runs::RunSpec;
use testbed::{Admission, Limits, Nodes, Options, Part, Testbed};

pub(crate) const DISABLED: &str = "Tekton, disabled";
pub(crate) const ISOLATE: &str = "Tekton, isolate-pipelinerun";
pub(crate) const COMPLETED: &str = "pod-affinity, colocateCompleted";
pub(crate) const BY_POLICIES: &str = "pod-affinity by policies, colocateCompleted";
const CPU: &str = "all CPU, ms a run";
const OUR_CPU: &str = "our CPU, ms a run";
const REQUESTS: &str = "all requests, a run";
const MANY: [usize; 3] = [20, 80, 320];
/// Longest wait for all runs of one measurement.
const ALL_DONE: Duration = Duration::from_mins(90);

#[derive(Clone, Copy)]
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    pub(crate) coschedule: &'static str,
    pub(crate) label: Option<&'static str>,
    promise: Promise,
    pub(crate) way: Admission,
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

const METHOD: &str = "Runs of four tasks in three levels are created at once, with enough nodes for all of them. \
The variants have another random order in each round. pod-affinity is installed in every variant, with two replicas of each \
process. It has nothing to do in the variants without its label. Policies and webhook are both installed, each for its own \
namespaces. CPU is what the kernel accounts to the processes between the creation of the first run and the end of the last \
one: it says more than the time, which depends on what else the machine does. Requests are counted by the API server, without \
leases and watches, but with those of the measuring program (one POST for each run). Memory is the highest value of the \
largest of our four processes.";

/// Everything that works for a run. The measuring program is none of them.
const PROCESSES: [(&str, &[Part]); 8] = [
    ("API server's CPU, ms a run", &[Part::ApiServer]),
    ("etcd's CPU, ms a run", &[Part::Etcd]),
    ("scheduler's CPU, ms a run", &[Part::Scheduler]),
    ("controller manager's CPU, ms a run", &[Part::ControllerManager]),
    ("Tekton controller's CPU, ms a run", &[Part::TektonController]),
    ("Tekton webhook's CPU, ms a run", &[Part::TektonWebhook]),
    ("KWOK's CPU, ms a run", &[Part::Kwok]),
    (OUR_CPU, &OURS),
];

/// So few that no part of the control plane is short of a processor: what holding a run costs its user.
pub(crate) async fn few(effort: &Effort) -> Result<Vec<Scenario>> {
    measure(effort, Limits::Raised, effort.pick(&[1, 5], &[2])).await
}

/// With the limits that Tekton and the scheduler put on themselves raised, so that neither hides what else costs time.
pub(crate) async fn with_raised_limits(effort: &Effort) -> Result<Vec<Scenario>> {
    measure(effort, Limits::Raised, effort.pick(&MANY, &[6])).await
}

/// As Tekton and the scheduler come: 320 runs take long with any choice.
pub(crate) async fn as_shipped(effort: &Effort) -> Result<Vec<Scenario>> {
    measure(effort, Limits::AsShipped, effort.pick(&MANY, &[6])).await
}

pub(crate) fn report(part: &'static str, title: &'static str, scenarios: Vec<Scenario>) -> Report {
    let aims = scenarios.iter().flat_map(aims).collect();
    let faster = scenarios
        .iter()
        .flat_map(|scenario| scenario.faster_than(COMPLETED, TOTAL))
        .collect();
    let notes = vec!["With colocateAlways, pipelineruns and disabled, runs share nodes: these variants do not isolate runs, and need fewer nodes.".into()];
    Report {
        part,
        title,
        method: METHOD,
        aims,
        scenarios,
        plotted: TOTAL,
        faster,
        notes,
    }
}

fn aims(scenario: &Scenario) -> Vec<Aim> {
    let aim = |figure: &'static str, of: &str, to: &str, at_most| {
        let what = format!("{}: {figure}, {of} to {to}", scenario.title);
        Aim::at_most(what, at_most, scenario.ratio(of, to, figure))
    };
    let our_cpu = Aim::at_most(
        format!("{}: {OUR_CPU}, {COMPLETED}", scenario.title),
        10.0,
        scenario.spread(COMPLETED, OUR_CPU),
    );
    let aims = [
        aim(CPU, COMPLETED, ISOLATE, 0.95),
        aim(CPU, COMPLETED, DISABLED, 1.15),
        aim(REQUESTS, COMPLETED, ISOLATE, 0.85),
        our_cpu,
        aim(TOTAL, COMPLETED, ISOLATE, 1.05),
        aim(TOTAL, COMPLETED, DISABLED, 1.10),
        aim(TOTAL, BY_POLICIES, COMPLETED, 1.0),
    ];
    aims.into_iter().flatten().collect()
}

async fn measure(effort: &Effort, limits: Limits, sizes: &[usize]) -> Result<Vec<Scenario>> {
    let sizes: Vec<_> = sizes.iter().copied().filter(|size| effort.wants(*size)).collect();
    if sizes.is_empty() {
        bail!("nothing is left to measure: --at-most is below the fewest runs at once of this part");
    }
    let bed = Testbed::start(Options {
        limits,
        ..effort.options()
    })
    .await?;
    let most = sizes.iter().max().copied().unwrap_or_default();
    bed.add_nodes(&Nodes::new("node", most + most / 5 + 2)).await?;
    ways::install(&bed).await?;
    let mut scenarios = Vec::new();
    for size in sizes {
        // The larger ones with shipped limits take ten minutes and more for each variant.
        let rounds = if limits == Limits::AsShipped && size > 50 {
            1
        } else {
            effort.rounds
        };
        scenarios.push(one_size(effort, &bed, size, rounds).await?);
    }
    Ok(scenarios)
}

async fn one_size(effort: &Effort, bed: &Testbed, size: usize, rounds: u32) -> Result<Scenario> {
    let ratios = [CPU, REQUESTS, TOTAL].map(|figure| [(figure, ISOLATE), (figure, DISABLED)]);
    let title = if size == 1 {
        "one run".to_owned()
    } else {
        format!("{size} runs")
    };
    let mut scenario = Scenario::new(title, ratios.as_flattened());
    let mut in_force = String::new();
    for round in 0..rounds {
        let mut order = VARIANTS;
        fastrand::shuffle(&mut order);
        for variant in order {
            if in_force != variant.coschedule {
                bed.feature_flags(&[("coschedule", variant.coschedule)]).await?;
                variant.coschedule.clone_into(&mut in_force);
            }
            let namespace = format!("size-{size}-{round}-{}", slug(variant.name));
            let namespace = ways::namespace(bed, &namespace, variant.way).await?;
            cluster::warm_up(bed, &namespace, variant.label).await?;
            let lasting = effort.pick("3s", "500ms");
            let figures = turn(bed, &namespace, variant, size, lasting).await;
            let figures = figures.with_context(|| format!("{size} runs, {}", variant.name))?;
            eprintln!(
                "   {size} runs, round {}: {}: {:.1} s",
                round + 1,
                variant.name,
                figures[0].1
            );
            scenario.add(variant.name, figures)?;
        }
    }
    Ok(scenario)
}

pub(crate) fn slug(name: &str) -> String {
    let kept = name.chars().filter(char::is_ascii_alphanumeric);
    kept.collect::<String>().to_lowercase()
}

/// One turn of one variant, and everything cleared away after it.
async fn turn(
    bed: &Testbed,
    namespace: &str,
    variant: Variant,
    size: usize,
    lasting: &str,
) -> Result<Figures> {
    let client = bed.client().await?;
    let specs: Vec<_> = (0..size)
        .map(|index| spec(namespace, index, variant, lasting))
        .collect();
    let ((pods, _watching_pods), (runs, _watching_runs)) = (
        watch::pods(&client, namespace).await?,
        watch::runs(&client, namespace).await?,
    );
    let used = Used::so_far(bed).await?;
    let asked = cluster::create_runs(&client, namespace, &specs).await?;
    let done = || {
        runs.look()
            .values()
            .filter(|run| run.done.is_some() || run.failed.is_some())
            .count()
    };
    cluster::all_are(bed, "runs done", size, ALL_DONE, done).await?;
    let used = used.until_now(bed, size).await?;
    let asked: BTreeMap<_, _> = specs
        .iter()
        .map(|spec| spec.name().to_owned())
        .zip(asked)
        .collect();
    let figures = Turn {
        promise: variant.promise,
        asked,
        pods: pods.look().clone(),
        runs: runs.look().clone(),
    }
    .figures()?;
    cluster::clear_runs(bed, namespace).await?;
    Ok(figures.into_iter().chain(used).collect())
}

pub(crate) fn spec(namespace: &str, index: usize, variant: Variant, lasting: &str) -> RunSpec {
    let spec = RunSpec::diamond(namespace, &format!("run-{index}")).lasting(lasting);
    match variant.label {
        Some(value) => spec.opted_in(value),
        None => spec,
    }
}

/// What was used before a turn.
struct Used {
    requests: Requests,
    /// Seconds, in the order of [`PROCESSES`].
    cpu: Vec<f64>,
}

impl Used {
    async fn so_far(bed: &Testbed) -> Result<Self> {
        let cpu = PROCESSES.iter().map(|(_, parts)| cluster::cpu(bed, parts));
        Ok(Self {
            cpu: cpu.collect::<Result<_>>()?,
            requests: Requests::so_far(&bed.client().await?).await?,
        })
    }

    async fn until_now(&self, bed: &Testbed, size: usize) -> Result<Figures> {
        let now = Self::so_far(bed).await?;
        let a_run = |value: f64| value / number(size);
        let spent = now.cpu.iter().zip(&self.cpu);
        let cpu: Vec<_> = spent.map(|(now, before)| a_run((now - before) * 1e3)).collect();
        let verbs = VERBS.map(|(verb, name)| (name, a_run(now.requests.since(&self.requests, verb))));
        let mut figures = vec![
            (CPU, cpu.iter().sum()),
            (REQUESTS, verbs.iter().map(|(_, count)| count).sum()),
        ];
        figures.extend(PROCESSES.iter().map(|(name, _)| *name).zip(cpu));
        figures.push(("our memory, MB", cluster::memory(bed, &OURS)?));
        figures.extend(verbs);
        Ok(figures)
    }
}
