//! Whole runs, from creation to done: without a word, with Tekton's own modes, with pod-affinity.

use crate::Effort;
use crate::aim::Aim;
use crate::cluster::{self, OURS, Requests, VERBS};
use crate::report::Report;
use crate::scenario::{Figures, Scenario};
use crate::scene::{BY_POLICIES, COMPLETED, DISABLED, ISOLATE, Scene, VARIANTS};
use crate::stats::number;
use crate::turn::TOTAL;
use crate::ways;
use anyhow::{Context, Result};
use std::time::Duration;
use testbed::{Limits, Nodes, Options, Part, Testbed};

const CPU: &str = "all CPU, ms a run";
const OUR_CPU: &str = "our CPU, ms a run";
const REQUESTS: &str = "all requests, a run";
const MANY: [usize; 3] = [20, 80, 320];
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
    let sizes = effort.those_wanted(sizes, |size| *size)?;
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
    for round in 0..rounds {
        let mut order = VARIANTS;
        fastrand::shuffle(&mut order);
        for variant in order {
            let scene = Scene::set(effort, bed, &format!("size-{size}-{round}"), variant, size).await?;
            let figures = turn(bed, scene, size).await;
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

/// One turn of one variant, and everything cleared away after it.
async fn turn(bed: &Testbed, scene: Scene<'_>, size: usize) -> Result<Figures> {
    let used = Used::so_far(bed).await?;
    let turn = scene.play(Duration::ZERO).await?;
    let used = used.until_now(bed, size).await?;
    scene.clear().await?;
    Ok(turn.figures()?.into_iter().chain(used).collect())
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
