//! What the webhook, or policies instead, add to the creation of a pod by the API server.

use crate::admission::{self, has_terms, pod};
use crate::cluster::{self, POD_AFFINITY};
use crate::machine::CpuTime;
use crate::part::{BenchPart, Effort};
use crate::scenario::{Figures, Scenario};
use crate::stats::quantile;
use crate::variants::{WITH_POLICIES, WITH_WEBHOOK, WITHOUT};
use anyhow::{Context, Result, bail};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use std::time::{Duration, Instant};
use testbed::Part;
use testbed::{Admission, Limits, Testbed};
use tokio::time::sleep_until;

const P50: &str = "p50, ms";
const P99: &str = "p99, ms";
const SERVER_CPU: &str = "CPU of the API server, ms per pod";
const OUR_CPU: &str = "CPU of pod-affinity, ms per pod";
const RATE: &str = "pods a second";
const BUSY: &str = "CPU of the machine, %";
const MEMORY: &str = "memory of a webhook replica, MB";
/// The highest rate uses less CPU, so that latencies are not those of a queue.
const MOST_BUSY: f64 = 80.0;

/// The name, the admission, and whether the pods belong to enrolled runs.
type PodVariant = (&'static str, Admission, bool);

const BY_WEBHOOK: PodVariant = (WITH_WEBHOOK, Admission::Webhook, true);
const VARIANTS: [PodVariant; 3] = [
    (WITHOUT, Admission::Webhook, false),
    BY_WEBHOOK,
    (WITH_POLICIES, Admission::Policies, true),
];

pub(crate) const PART: BenchPart = BenchPart {
    name: "api",
    title: "Pod creation",
    method: "pods of 10 KB are created at a constant rate, one variant after the other, in another random order in each round. The \
        webhook and the policies are both installed, each for its own namespaces. A pod without pod-affinity has another name of the \
        same length for its group label. The scheduler and KWOK are stopped. Latency counts from the time at which a request should \
        have been sent. The CPU of pod-affinity is that of all four processes, idle processes included. The highest rate is found \
        first, in steps of 20 pods a second: the last rate at which the machine uses less than 80 % of its CPU with the webhook. \
        Memory is the resident memory of the larger replica at the end.",
    in_quick: true,
    measure: |runtime, effort| runtime.block_on(measure(effort)),
    figures: &[P50, P99, SERVER_CPU, OUR_CPU, RATE, BUSY, MEMORY],
    ratios: &[(P50, WITHOUT), (P99, WITHOUT)],
    aims: &[
        (WITH_WEBHOOK, P99, Some(WITHOUT), 1.1),
        (WITH_POLICIES, P99, Some(WITHOUT), 1.1),
        (WITH_WEBHOOK, MEMORY, None, 16.0),
    ],
    chart: Some(P99),
};

async fn measure(effort: &Effort) -> Result<Vec<Scenario>> {
    let bed = Testbed::start(effort.options(Limits::TektonRaised)).await?;
    admission::install(&bed).await?;
    for (_, admission, _) in VARIANTS {
        admission::namespace(&bed, &namespace(admission), admission).await?;
    }
    for part in [Part::Scheduler, Part::Kwok] {
        bed.stop(part)?;
    }
    let mut scenarios = Vec::new();
    for rate in effort.pick(&[Some(20), Some(50), None][..], &[Some(20)]) {
        let (title, rate) = match *rate {
            Some(rate) => (format!("{rate} pods of 10 KB a second"), rate),
            None => (
                "pods of 10 KB at the highest rate".to_owned(),
                highest_rate(&bed).await?,
            ),
        };
        // With fewer than a thousand pods, a single stall would be the p99.
        let count = effort.pick(1000, rate * 3);
        // The first pods open connections and fill caches. Their figures are dropped.
        for variant in VARIANTS {
            create(&bed, variant, rate, count).await?;
        }
        let name = |(name, ..): PodVariant| name.to_owned();
        let measured = Scenario::measure(title, effort.rounds, &VARIANTS, name, async |_, variant| {
            create(&bed, variant, rate, count).await
        });
        scenarios.push(measured.await?);
    }
    Ok(scenarios)
}

/// The highest rate at which the machine has CPU to spare.
async fn highest_rate(bed: &Testbed) -> Result<u32> {
    let mut highest = 50;
    for rate in (60..=400).step_by(20) {
        let figures = create(bed, BY_WEBHOOK, rate, rate * 5).await?;
        let busy = figures.iter().find(|(name, _)| *name == BUSY);
        if busy.is_none_or(|(_, busy)| *busy >= MOST_BUSY) {
            break;
        }
        highest = rate;
    }
    Ok(highest)
}

fn namespace(admission: Admission) -> String {
    format!("pods-{admission:?}").to_lowercase()
}

/// Creates pods at this rate per second, and deletes them.
async fn create(bed: &Testbed, variant: PodVariant, rate: u32, count: u32) -> Result<Figures> {
    let (_, admission, is_enrolled) = variant;
    let namespace = namespace(admission);
    let api: Api<Pod> = Api::namespaced(bed.client().await?, &namespace);
    // Before the clock starts: to build a thousand objects takes a second, which is not the API server's.
    let pods = (0..count)
        .map(|index| pod(index, is_enrolled))
        .collect::<Result<Vec<_>>>()?;
    let cpu = || {
        anyhow::Ok((
            cluster::cpu(bed, &[Part::ApiServer])?,
            cluster::cpu(bed, &POD_AFFINITY)?,
            CpuTime::read()?,
        ))
    };
    let before = cpu()?;
    let start = Instant::now() + Duration::from_millis(100);
    let creations = (0..count).zip(&pods).map(|(index, pod)| {
        let due = start + Duration::from_secs(1) * index / rate;
        create_one(&api, pod, is_enrolled, due)
    });
    let times = try_join_all(creations).await?;
    let after = cpu()?;
    cluster::delete_pods(bed, &namespace).await?;
    let (resident, _) = cluster::highest_memory(bed, &[Part::Webhook(0), Part::Webhook(1)])?;
    let per_pod = |seconds: f64| seconds * 1e3 / f64::from(count);
    let of = |share| quantile(&times, share).context("no pod was created");
    Ok(vec![
        (P50, of(0.5)?),
        (P99, of(0.99)?),
        (SERVER_CPU, per_pod(after.0 - before.0)),
        (OUR_CPU, per_pod(after.1 - before.1)),
        (RATE, f64::from(rate)),
        (BUSY, after.2.percent_since(before.2)),
        (MEMORY, resident),
    ])
}

/// Returns the milliseconds from the time at which the request is due.
async fn create_one(api: &Api<Pod>, pod: &Pod, is_enrolled: bool, due: Instant) -> Result<f64> {
    sleep_until(due.into()).await;
    let created = api
        .create(&PostParams::default(), pod)
        .await
        .context("creating a pod")?;
    let time = due.elapsed();
    if has_terms(&created) != is_enrolled {
        bail!(
            "a pod has {} terms",
            if is_enrolled { "no" } else { "unexpected" }
        );
    }
    Ok(time.as_secs_f64() * 1e3)
}
