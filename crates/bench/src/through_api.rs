//! What the webhook adds to the creation of a pod through the real API server.

use crate::Effort;
use crate::cluster;
use crate::load::milliseconds;
use crate::report::{Aim, Report};
use crate::scenario::{Figures, Scenario};
use crate::stats::quantile;
use crate::webhook::reviews;
use anyhow::{Context, Result, bail};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use placement::keys;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testbed::pace::AS_SHIPPED;
use testbed::{Part, Testbed};
use tokio::time::sleep_until;

const WITHOUT: &str = "not sent to the webhook";
const WITH: &str = "through the webhook";
const P99: &str = "p99, ms";

const METHOD: &str = "Pods are created at a constant rate, in turns one that the webhook is for and one whose group label has another \
name of the same length, so that both kinds meet the same API server in the same moment. Scheduler and KWOK are \
stopped. Latency counts from the moment in which a request should have been sent.";

pub(crate) async fn measure(effort: &Effort) -> Result<Vec<Scenario>> {
    let bed = Testbed::start(effort.options()).await?;
    bed.install_pod_affinity_with(&[AS_SHIPPED]).await?;
    let namespace = bed.namespace("pods").await?;
    for part in [Part::Scheduler, Part::Kwok] {
        bed.stop(part)?;
    }
    let mut scenarios = Vec::new();
    for rate in effort.pick(&[20, 50, 100][..], &[20]) {
        scenarios.push(one_rate(effort, &bed, &namespace, *rate).await?);
    }
    Ok(scenarios)
}

pub(crate) fn report(scenarios: Vec<Scenario>) -> Report {
    let aims = scenarios.iter().filter_map(|scenario| {
        let what = format!("{}: p99 with the webhook to without", scenario.title);
        Aim::at_most(what, 1.10, scenario.ratio(WITH, WITHOUT, P99))
    });
    Report {
        part: "api",
        title: "Pod creation through the API server",
        method: METHOD,
        aims: aims.collect(),
        scenarios,
        plotted: P99,
        faster: Vec::new(),
        notes: Vec::new(),
    }
}

async fn one_rate(effort: &Effort, bed: &Testbed, namespace: &str, rate: u32) -> Result<Scenario> {
    let ratios = [("p50, ms", WITHOUT), (P99, WITHOUT)];
    let mut scenario = Scenario::new(format!("{rate} pods of 10 KB a second"), &ratios);
    // A thousand of each kind at least, or one stall would be the p99.
    let count = effort.pick(2000, rate * 3);
    // The first round warms up connections and is thrown away.
    for round in 0..=effort.rounds {
        let (without, with) = create(bed, namespace, rate, count).await?;
        cluster::clear_pods(bed, namespace).await?;
        if round > 0 {
            scenario.add(WITHOUT, without)?;
            scenario.add(WITH, with)?;
        }
    }
    Ok(scenario)
}

async fn create(bed: &Testbed, namespace: &str, rate: u32, count: u32) -> Result<(Figures, Figures)> {
    let api: Api<Pod> = Api::namespaced(bed.client().await?, namespace);
    // Made before the clock starts: thousands take a second, which is none of the API server's.
    let pods = (0..count).map(|index| serde_json::from_value(pod(index, is_ours(index))));
    let pods = pods.collect::<Result<Vec<Pod>, _>>()?;
    let start = Instant::now() + Duration::from_millis(100);
    let creations = (0..count).zip(&pods).map(|(index, pod)| {
        let meant = start + Duration::from_secs(1) * index / rate;
        one(&api, index, pod, meant)
    });
    let times = try_join_all(creations).await?;
    let of = |kind: usize| figures(&times.iter().skip(kind).step_by(2).copied().collect::<Vec<_>>());
    Ok((of(0)?, of(1)?))
}

/// Every second one is for the webhook.
fn is_ours(index: u32) -> bool {
    index % 2 == 1
}

async fn one(api: &Api<Pod>, index: u32, pod: &Pod, meant: Instant) -> Result<f64> {
    sleep_until(meant.into()).await;
    let created = api
        .create(&PostParams::default(), pod)
        .await
        .context("creating a pod")?;
    let took = meant.elapsed();
    let has_terms = created.spec.is_some_and(|spec| spec.affinity.is_some());
    if has_terms != is_ours(index) {
        bail!("pod {index} {} terms", if has_terms { "got" } else { "got no" });
    }
    Ok(milliseconds(took))
}

fn pod(index: u32, is_ours: bool) -> Value {
    let mut pod = reviews::pod(10_000);
    pod["metadata"]["name"] = json!(format!("pod-{index}"));
    pod["metadata"]["namespace"] = Value::Null;
    if !is_ours && let Some(labels) = pod["metadata"]["labels"].as_object_mut() {
        let value = labels.remove(keys::GROUP);
        labels.insert(keys::GROUP.replace("group", "grape"), value.unwrap_or_default());
    }
    pod
}

fn figures(times: &[f64]) -> Result<Figures> {
    let of = |share| quantile(times, share).context("no pod was created");
    Ok(vec![("p50, ms", of(0.5)?), (P99, of(0.99)?)])
}
