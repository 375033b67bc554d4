//! What makes up the cost of a run: each request, and the API server's processor time by purpose.

use crate::Effort;
use crate::asked::Window;
use crate::cluster;
use crate::profile::{self, Profile, Rule};
use crate::report::Report;
use crate::scenario::Scenario;
use crate::scene::{BY_POLICIES, COMPLETED, DISABLED, ISOLATE, Scene, in_random_order};
use crate::stats::number;
use crate::through_api;
use crate::ways;
use anyhow::{Context, Result, bail};
use futures::try_join;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use testbed::{Audit, Limits, Nodes, Options, Part, Testbed};

const ALL: &str = "all";
/// Longer than this many runs take, and what follows their end.
const WINDOW: Duration = Duration::from_secs(40);
const WINDOW_OF_FEW: Duration = Duration::from_secs(20);
/// Pods a second. The profile looks at every tick of the clock: with a rate that divides those, always at the same part of a request.
const RATE: u32 = 47;

const METHOD: &str = "Runs of four tasks in three levels are created at once, client limits raised, and everything that the \
API server is asked about their namespace is counted from its audit record, from their creation until forty seconds later: \
with everything that follows the end of a run, and without the deletion of the runs. Leases, watches and nodes are left out. \
The API server's CPU in the same time is from its own profile, which looks a hundred times a second; each stack counts for the \
first purpose that one of its functions tells. For pods, the same is done while they are created at a constant rate, with the \
scheduler and KWOK stopped. Writing the audit record costs the API server time too, and has its own row.";

/// A stack may have several purposes: the first counts.
const RULES: [Rule; 15] = [
    ("writing the audit record", &["pkg/audit.", "plugin/pkg/audit"]),
    (POLICIES, &["admission/plugin/policy"]),
    ("webhooks", &["admission/plugin/webhook"]),
    (
        "watches, telling of changes",
        &["handlers.(*WatchServer)", "handlers.serveWatch"],
    ),
    (CREATE, &["createHandler.func"]),
    ("update", &["handlers.UpdateResource"]),
    (
        "patch and apply",
        &["handlers.PatchResource", "handlers.(*patcher)"],
    ),
    (
        "delete",
        &["handlers.DeleteResource", "handlers.DeleteCollection"],
    ),
    ("get and list", &["getResourceHandler", "handlers.ListResource"]),
    ("watch cache", &["storage/cacher", "storage/etcd3"]),
    (
        "connections to etcd",
        &["google.golang.org/grpc", "go.etcd.io/etcd"],
    ),
    (
        "garbage collection",
        &["runtime.gcBgMarkWorker", "runtime.bgsweep", "runtime.bgscavenge"],
    ),
    (
        "authentication, authorization, fairness",
        &["pkg/endpoints/filters", "pkg/server/filters"],
    ),
    (
        "connections to clients",
        &["net/http", "golang.org/x/net/http2", "crypto/tls"],
    ),
    (
        "threads without work",
        &["runtime.schedule", "runtime.findRunnable"],
    ),
];
const POLICIES: &str = "policies";
const CREATE: &str = "create";
const REST: &str = "the rest";
/// What policies do in their time.
const OF_POLICIES: [Rule; 4] = [
    ("policies: evaluate CEL", &["google/cel-go"]),
    ("policies: make an object a map for CEL", &["ToUnstructured"]),
    ("policies: JSON and the patch", &["json"]),
    ("policies: conversion between versions", &["Convert"]),
];
/// What the creation of an object does in its time.
const OF_CREATION: [Rule; 3] = [
    (
        "create: managed fields",
        &["managedfields", "structured-merge-diff"],
    ),
    ("create: validation", &["validation"]),
    ("create: storage", &["registry/generic/registry.(*Store)"]),
];

pub(crate) async fn measure(effort: &Effort) -> Result<Vec<Scenario>> {
    let bed = Testbed::start(Options {
        limits: Limits::Raised,
        audit: Audit::Everybody,
        ..effort.options()
    })
    .await?;
    ways::install(&bed).await?;
    let size = effort.pick(20, 2);
    bed.add_nodes(&Nodes::new("node", size + size / 5 + 2)).await?;
    let (requests, cpu) = of_runs(effort, &bed, size).await?;
    Ok(vec![requests, cpu, of_pods(effort, &bed).await?])
}

pub(crate) fn report(scenarios: Vec<Scenario>) -> Report {
    Report {
        part: "costs",
        title: "What makes up the cost",
        method: METHOD,
        aims: Vec::new(),
        scenarios,
        plotted: ALL,
        faster: Vec::new(),
        notes: vec!["A row that starts with the name of another one and a colon is a part of it.".into()],
    }
}

/// Rows by name, with what they say of a run or a pod.
type Rows = BTreeMap<String, f64>;

/// What was taken of one variant after the other; not every one has every row.
#[derive(Default)]
struct Table(Vec<(&'static str, Rows)>);

impl Table {
    fn add(&mut self, variant: &'static str, rows: Rows) {
        self.0.push((variant, rows));
    }

    /// With zero where a variant has no such row.
    fn told(self, title: String, ratios: &[(&str, &str)]) -> Result<Scenario> {
        let mut scenario = Scenario::new(title, ratios);
        let rows = self.0.iter().flat_map(|(_, rows)| rows.keys());
        let names: BTreeSet<_> = rows.cloned().collect();
        for (variant, rows) in self.0 {
            let figures = names
                .iter()
                .map(|name| (name.as_str(), rows.get(name).copied().unwrap_or_default()));
            scenario.add(variant, figures)?;
        }
        Ok(scenario)
    }
}

/// Requests, and CPU by purpose.
async fn of_runs(effort: &Effort, bed: &Testbed, size: usize) -> Result<(Scenario, Scenario)> {
    let (mut windows, mut requests, mut cpu) = (Vec::new(), Table::default(), Table::default());
    for round in 0..effort.rounds {
        for variant in in_random_order(&[DISABLED, COMPLETED, BY_POLICIES, ISOLATE]) {
            let scene = Scene::set(effort, bed, &format!("costs-{round}"), variant, size).await?;
            let (window, profile) = turn(bed, &scene, effort.pick(WINDOW, WINDOW_OF_FEW))
                .await
                .with_context(|| variant.name)?;
            scene.clear().await?;
            windows.push((variant.name, window));
            cpu.add(variant.name, purposes(&profile, number(size)));
            eprintln!("   round {}: {}", round + 1, variant.name);
        }
    }
    let record = bed.audit()?;
    for (variant, window) in windows {
        requests.add(variant, requests_a_run(&window.count(&record)?, size));
    }
    let ratios = [(ALL, ISOLATE), (ALL, DISABLED)];
    Ok((
        requests.told(format!("requests of one run, of {size} at once"), &ratios)?,
        cpu.told(
            format!("API server's CPU for one run, of {size} at once, ms"),
            &ratios,
        )?,
    ))
}

/// What was asked and profiled from the creation of runs until all that follows their end.
async fn turn(bed: &Testbed, scene: &Scene<'_>, lasting: Duration) -> Result<(Window, Profile)> {
    let client = bed.client().await?;
    let from = Timestamp::now();
    let (packed, turn) = try_join!(
        profile::of_api_server(&client, lasting),
        scene.play(Duration::ZERO)
    )?;
    let window = Window {
        namespace: scene.namespace.clone(),
        from,
        to: Timestamp::now(),
    };
    turn.all_is_well()?;
    if turn.lasted()? > lasting {
        bail!("the runs took longer than the API server was looked at");
    }
    Ok((window, Profile::unpacked(&packed)?))
}

/// All, those of each client, and those of each kind.
fn requests_a_run(counts: &BTreeMap<&'static str, BTreeMap<String, usize>>, size: usize) -> Rows {
    let mut rows = Rows::new();
    for (client, kinds) in counts {
        for (kind, count) in kinds {
            let count = number(*count) / number(size);
            for row in [ALL.to_owned(), (*client).to_owned(), format!("{client}: {kind}")] {
                *rows.entry(row).or_default() += count;
            }
        }
    }
    rows
}

async fn of_pods(effort: &Effort, bed: &Testbed) -> Result<Scenario> {
    let (count, mut table) = (RATE * effort.pick(20, 2), Table::default());
    for part in [Part::Scheduler, Part::Kwok] {
        bed.stop(part)?;
    }
    for variant in through_api::VARIANTS {
        ways::namespace(bed, &through_api::namespace(variant.way), variant.way).await?;
    }
    for round in 0..effort.rounds {
        let mut order = through_api::VARIANTS;
        fastrand::shuffle(&mut order);
        for variant in order {
            let client = bed.client().await?;
            let lasting = Duration::from_secs((count / RATE + 1).into());
            let (packed, _latencies) = try_join!(
                profile::of_api_server(&client, lasting),
                through_api::create(bed, variant, RATE, count),
            )?;
            cluster::clear_pods(bed, &through_api::namespace(variant.way)).await?;
            table.add(
                variant.name,
                purposes(&Profile::unpacked(&packed)?, f64::from(count)),
            );
            eprintln!("   round {}: pods {}", round + 1, variant.name);
        }
    }
    let title = format!("API server's CPU for one pod, {RATE} a second, ms");
    table.told(title, &[(ALL, through_api::WITHOUT)])
}

/// Milliseconds of one of so many runs or pods.
fn purposes(profile: &Profile, count: f64) -> Rows {
    let (policies, creation) = (profile.of(&RULES, POLICIES), profile.of(&RULES, CREATE));
    let purposes = profile.by(&RULES);
    let told: f64 = purposes.values().sum();
    let parts = policies
        .by(&OF_POLICIES)
        .into_iter()
        .chain(creation.by(&OF_CREATION));
    let sums = [
        (ALL, profile.milliseconds()),
        (REST, profile.milliseconds() - told),
    ];
    let rows = purposes.into_iter().chain(parts).chain(sums);
    rows.map(|(purpose, milliseconds)| (purpose.to_owned(), milliseconds / count))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_a_variant_lacks_is_zero_there() {
        let mut table = Table::default();
        table.add("a", Rows::from([("x".to_owned(), 1.0)]));
        table.add("b", Rows::from([("y".to_owned(), 2.0)]));
        let told = table.told("t".to_owned(), &[]).unwrap();
        assert_eq!(
            (told.rounds("a", "x"), told.rounds("a", "y")),
            (&[1.0][..], &[0.0][..])
        );
    }

    #[test]
    fn requests_are_summed_by_client_and_over_all() {
        let kinds = |kind: &str, count| BTreeMap::from([(kind.to_owned(), count)]);
        let counts = BTreeMap::from([
            ("KWOK", kinds("patch pods", 4)),
            ("scheduler", kinds("create pods", 2)),
        ]);
        let rows = requests_a_run(&counts, 2);
        assert_eq!(
            (rows["all"], rows["KWOK"], rows["scheduler: create pods"]),
            (3.0, 2.0, 1.0)
        );
    }
}
