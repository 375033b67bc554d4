//! What the webhook, or policies instead, add to the creation of a pod through the real API server.

use crate::Effort;
use crate::aim::Aim;
use crate::cluster::{self, OURS};
use crate::load::milliseconds;
use crate::report::Report;
use crate::scenario::{Figures, Scenario};
use crate::stats::quantile;
use crate::ways::{self, has_terms, pod};
use anyhow::{Context, Result, bail};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use testbed::{Admission, Part, Testbed};
use tokio::time::sleep_until;

pub(crate) const WITHOUT: &str = "without pod-affinity";
const WEBHOOK: &str = "with the webhook";
const POLICIES: &str = "with policies";
const P99: &str = "p99, ms";

/// A kind of pods, and what decides about them.
#[derive(Clone, Copy)]
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    pub(crate) way: Admission,
    is_ours: bool,
}

pub(crate) const VARIANTS: [Variant; 3] = [
    Variant {
        name: WITHOUT,
        way: Admission::Webhook,
        is_ours: false,
    },
    Variant {
        name: WEBHOOK,
        way: Admission::Webhook,
        is_ours: true,
    },
    Variant {
        name: POLICIES,
        way: Admission::Policies,
        is_ours: true,
    },
];

const METHOD: &str = "Pods are created at a constant rate, one variant after the other, in another random order in each \
round. The webhook and the policies are both installed, each for its own namespaces. A pod without pod-affinity has another \
name of the same length for its group label. The scheduler and KWOK are stopped. Latency counts from the time at which a \
request should have been sent. Our CPU is that of all four processes, idle ones included.";

pub(crate) async fn measure(effort: &Effort) -> Result<Vec<Scenario>> {
    let bed = Testbed::start(effort.options()).await?;
    ways::install(&bed).await?;
    for variant in VARIANTS {
        ways::namespace(&bed, &namespace(variant.way), variant.way).await?;
    }
    for part in [Part::Scheduler, Part::Kwok] {
        bed.stop(part)?;
    }
    let mut scenarios = Vec::new();
    for rate in effort.pick(&[20, 50, 100][..], &[20]) {
        scenarios.push(one_rate(effort, &bed, *rate).await?);
    }
    Ok(scenarios)
}

pub(crate) fn namespace(way: Admission) -> String {
    format!("pods-{way:?}").to_lowercase()
}

pub(crate) fn report(scenarios: Vec<Scenario>) -> Report {
    let aim = |scenario: &Scenario, variant: &str| {
        let what = format!("{}: p99 {variant} to {WITHOUT}", scenario.title);
        Aim::at_most(what, 1.10, scenario.ratio(variant, WITHOUT, P99))
    };
    let aims = scenarios
        .iter()
        .flat_map(|scenario| [WEBHOOK, POLICIES].map(|variant| aim(scenario, variant)));
    Report {
        part: "api",
        title: "Pod creation through the API server",
        method: METHOD,
        aims: aims.flatten().collect(),
        scenarios,
        plotted: P99,
        faster: Vec::new(),
        notes: Vec::new(),
    }
}

async fn one_rate(effort: &Effort, bed: &Testbed, rate: u32) -> Result<Scenario> {
    let ratios = [("p50, ms", WITHOUT), (P99, WITHOUT)];
    let mut scenario = Scenario::new(format!("{rate} pods of 10 KB a second"), &ratios);
    // A thousand of each kind at least, or one stall would be the p99.
    let count = effort.pick(1000, rate * 3);
    // The first round warms up connections and is thrown away.
    for round in 0..=effort.rounds {
        let taken = one_round(bed, rate, count).await?;
        if round > 0 {
            for (index, figures) in taken {
                scenario.add(VARIANTS[index].name, figures)?;
            }
        }
    }
    Ok(scenario)
}

/// By the place of each variant.
async fn one_round(bed: &Testbed, rate: u32, count: u32) -> Result<BTreeMap<usize, Figures>> {
    let mut order: Vec<_> = VARIANTS.into_iter().enumerate().collect();
    fastrand::shuffle(&mut order);
    let mut taken = BTreeMap::new();
    for (index, variant) in order {
        let figures = create(bed, variant, rate, count).await;
        taken.insert(index, figures.with_context(|| variant.name)?);
        cluster::clear_pods(bed, &namespace(variant.way)).await?;
    }
    Ok(taken)
}

pub(crate) async fn create(bed: &Testbed, variant: Variant, rate: u32, count: u32) -> Result<Figures> {
    let api: Api<Pod> = Api::namespaced(bed.client().await?, &namespace(variant.way));
    // Made before the clock starts: thousands take a second, which is none of the API server's.
    let pods = (0..count).map(|index| serde_json::from_value(pod(index, variant.is_ours)));
    let pods = pods.collect::<Result<Vec<Pod>, _>>()?;
    let cpu = || anyhow::Ok([cluster::cpu(bed, &[Part::ApiServer])?, cluster::cpu(bed, &OURS)?]);
    let before = cpu()?;
    let start = Instant::now() + Duration::from_millis(100);
    let creations = (0..count).zip(&pods).map(|(index, pod)| {
        let meant = start + Duration::from_secs(1) * index / rate;
        one(&api, variant, pod, meant)
    });
    let times = try_join_all(creations).await?;
    let [api_server, ours] = cpu()?;
    let a_pod = |seconds: f64| seconds * 1e3 / f64::from(count);
    let of = |share| quantile(&times, share).context("no pod was created");
    Ok(vec![
        ("p50, ms", of(0.5)?),
        (P99, of(0.99)?),
        ("API server's CPU, ms a pod", a_pod(api_server - before[0])),
        ("our CPU, ms a pod", a_pod(ours - before[1])),
    ])
}

async fn one(api: &Api<Pod>, variant: Variant, pod: &Pod, meant: Instant) -> Result<f64> {
    sleep_until(meant.into()).await;
    let created = api
        .create(&PostParams::default(), pod)
        .await
        .context("creating a pod")?;
    let took = meant.elapsed();
    if has_terms(&created) != variant.is_ours {
        bail!("a pod {} terms", if variant.is_ours { "got no" } else { "got" });
    }
    Ok(milliseconds(took))
}
