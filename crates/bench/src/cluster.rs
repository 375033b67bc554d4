//! Operations on a testbed that several parts need.

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams, PropagationPolicy};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::{Duration, Instant};
use testbed::runs::{self, RunSpec};
use testbed::{Part, Testbed, probe, tekton, usage};

/// Concurrent requests when many objects are created. The controller has the same limit.
pub(crate) const CONCURRENT: usize = 32;
/// The longest wait until a namespace is empty.
const EMPTY: Duration = Duration::from_mins(10);
/// Verbs of requests, and the figures for them.
pub(crate) const VERBS: [(&str, &str); 7] = [
    ("GET", "GET requests per run"),
    ("LIST", "LIST requests per run"),
    ("POST", "POST requests per run"),
    ("PUT", "PUT requests per run"),
    ("PATCH", "PATCH requests per run"),
    ("APPLY", "APPLY requests per run"),
    ("DELETE", "DELETE requests per run"),
];
/// The processes of pod-affinity.
pub(crate) const POD_AFFINITY: [Part; 4] = [
    Part::Webhook(0),
    Part::Webhook(1),
    Part::Controller(0),
    Part::Controller(1),
];

/// The API server's counter of requests by verb. Requests for leases are left out: their number depends on time and nodes.
pub(crate) struct Requests(BTreeMap<&'static str, f64>);

impl Requests {
    pub(crate) async fn read(client: &Client) -> Result<Self> {
        let metrics = probe::metrics(client, "the API server").await?;
        let count = |verb: &str| {
            let verb = format!("verb=\"{verb}\"");
            let is_counted = |labels: &str| labels.contains(&verb) && !labels.contains("resource=\"leases\"");
            sum(&metrics, "apiserver_request_total", is_counted)
        };
        Ok(Self(VERBS.iter().map(|(verb, _)| (*verb, count(verb))).collect()))
    }

    pub(crate) fn since(&self, before: &Self, verb: &str) -> f64 {
        self.0[verb] - before.0[verb]
    }

    pub(crate) fn writes_since(&self, before: &Self) -> f64 {
        let verbs = self.0.keys().filter(|verb| !["GET", "LIST"].contains(verb));
        verbs.map(|verb| self.since(before, verb)).sum()
    }
}

/// The sum of the samples of a metric in Prometheus' text format whose labels meet a condition.
pub(crate) fn sum(text: &str, metric: &str, is_counted: impl Fn(&str) -> bool) -> f64 {
    let samples = text
        .lines()
        .filter_map(|line| line.strip_prefix(metric)?.strip_prefix('{'));
    let values = samples.filter_map(|sample| {
        let (labels, value) = sample.rsplit_once("} ")?;
        is_counted(labels).then(|| value.parse::<f64>().ok())?
    });
    values.fold(0.0, |sum, value| sum + value)
}

/// The value of a metric without labels in Prometheus' text format.
pub(crate) fn sample(text: &str, metric: &str) -> Option<f64> {
    let mut values = text
        .lines()
        .filter_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
    values.next()?.parse().ok()
}

/// The attempts of the scheduler that found no node, or failed, from its metrics.
pub(crate) fn failed_attempts(metrics: &str) -> f64 {
    let has_failed = |labels: &str| !labels.contains("result=\"scheduled\"");
    sum(metrics, "scheduler_schedule_attempts_total", has_failed)
}

/// The CPU seconds of these parts together, since their start.
pub(crate) fn cpu(bed: &Testbed, parts: &[Part]) -> Result<f64> {
    let seconds = parts.iter().map(|part| cpu_of(pid(bed, *part)?));
    seconds.sum()
}

/// The CPU seconds of these parts in a second, without work for them.
pub(crate) async fn cpu_at_rest(bed: &Testbed, parts: &[Part], time: Duration) -> Result<f64> {
    let (before, rest) = (cpu(bed, parts)?, Instant::now());
    tokio::time::sleep(time).await;
    Ok((cpu(bed, parts)? - before) / rest.elapsed().as_secs_f64())
}

pub(crate) fn cpu_of(pid: u32) -> Result<f64> {
    Ok(usage::cpu_time(pid)?.as_secs_f64())
}

/// Megabytes that are resident now, and the most megabytes that were ever resident.
pub(crate) fn memory(bed: &Testbed, part: Part) -> Result<(f64, f64)> {
    let memory = usage::memory(pid(bed, part)?)?;
    Ok((megabytes(memory.resident), megabytes(memory.peak)))
}

/// The highest values of [`memory`] among these parts.
pub(crate) fn highest_memory(bed: &Testbed, parts: &[Part]) -> Result<(f64, f64)> {
    parts.iter().try_fold((0.0, 0.0), |highest: (f64, f64), part| {
        let (resident, peak) = memory(bed, *part)?;
        Ok((highest.0.max(resident), highest.1.max(peak)))
    })
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

pub(crate) fn pid(bed: &Testbed, part: Part) -> Result<u32> {
    bed.pid(part).with_context(|| format!("{part} does not run"))
}

/// Sets Tekton's coschedule mode, which restarts Tekton. Does nothing if the mode is set already.
pub(crate) async fn set_coschedule(bed: &Testbed, mode: &str) -> Result<()> {
    let flags: Api<ConfigMap> = Api::namespaced(bed.client().await?, tekton::NAMESPACE);
    let found = flags
        .get("feature-flags")
        .await
        .context("reading Tekton's feature flags")?;
    let now = found.data.unwrap_or_default().remove("coschedule");
    if now.as_deref() != Some(mode) {
        bed.feature_flags(&[("coschedule", mode)]).await?;
    }
    Ok(())
}

/// Creates objects, many at the same time. Returns when each request was sent, in the order of the objects.
pub(crate) async fn create_all<K>(api: &Api<K>, objects: Vec<K>) -> Result<Vec<Instant>>
where
    K: Clone + Serialize + DeserializeOwned + Debug,
{
    let create = async |object: K| {
        let sent = Instant::now();
        let created = api.create(&PostParams::default(), &object).await;
        created.context("creating an object")?;
        anyhow::Ok(sent)
    };
    let created = stream::iter(objects).map(create).buffered(CONCURRENT);
    created.try_collect().await
}

/// Creates runs, like [`create_all`].
pub(crate) async fn create_runs(client: &Client, namespace: &str, specs: &[RunSpec]) -> Result<Vec<Instant>> {
    let objects = specs
        .iter()
        .map(|spec| serde_json::from_value(spec.manifest.clone()));
    let objects = objects.collect::<Result<Vec<DynamicObject>, _>>()?;
    create_all(&runs::runs(client, namespace), objects).await
}

/// Deletes all runs of a namespace, and waits until the namespace has no run and no pod.
pub(crate) async fn delete_runs(bed: &Testbed, namespace: &str) -> Result<()> {
    let client = bed.client().await?;
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    delete_all(bed, &runs::runs(&client, namespace), &params).await?;
    until_empty(bed, &Api::<Pod>::namespaced(client, namespace)).await
}

/// Deletes all pods of a namespace without a grace period.
pub(crate) async fn delete_pods(bed: &Testbed, namespace: &str) -> Result<()> {
    let api: Api<Pod> = Api::namespaced(bed.client().await?, namespace);
    delete_all(bed, &api, &DeleteParams::default().grace_period(0)).await
}

/// Deletes the Events that a namespace has now. More may follow, because their clients send them later.
pub(crate) async fn delete_events(bed: &Testbed, namespace: &str) -> Result<()> {
    let api: Api<Event> = Api::namespaced(bed.client().await?, namespace);
    delete_present(&api, &DeleteParams::default()).await
}

async fn delete_all<K>(bed: &Testbed, api: &Api<K>, params: &DeleteParams) -> Result<()>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    delete_present(api, params).await?;
    until_empty(bed, api).await
}

async fn delete_present<K>(api: &Api<K>, params: &DeleteParams) -> Result<()>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let deleted = api.delete_collection(params, &ListParams::default()).await;
    deleted
        .map(drop)
        .with_context(|| format!("deleting {}", api.resource_url()))
}

async fn until_empty<K>(bed: &Testbed, api: &Api<K>) -> Result<()>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let what = format!("{} to be empty", api.resource_url());
    let one = ListParams::default().limit(1);
    let empty = bed.until(what, EMPTY, async || match api.list(&one).await {
        Ok(left) if left.items.is_empty() => Ok(()),
        Ok(_) => Err("objects are left".to_owned()),
        Err(error) => Err(error.to_string()),
    });
    Ok(empty.await?)
}

/// Waits until `seen` returns this count. More than the count means that the measurement is broken.
pub(crate) async fn until_all(
    bed: &Testbed,
    what: &str,
    count: usize,
    deadline: Duration,
    mut seen: impl FnMut() -> usize,
) -> Result<()> {
    let all = bed.until(format!("{count} {what}"), deadline, async || match seen() {
        seen if seen < count => Err(format!("there are {seen}")),
        seen => Ok(seen),
    });
    let seen = all.await?;
    if seen > count {
        bail!("there are {seen} {what} instead of {count}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_one_metric_are_summed_by_label() {
        let text = "# HELP x\nx{verb=\"GET\",code=\"200\"} 3\nx{verb=\"LIST\",code=\"200\"} 4\nx_more{verb=\"GET\"} 9\n";
        let of = |condition: &'static str| sum(text, "x", |labels| labels.contains(condition)).to_string();
        assert_eq!(
            (of("verb=\"GET\""), of("code=\"200\"")),
            ("3".to_owned(), "7".to_owned())
        );
        let plain = "# TYPE y gauge\ny_more 1\ny 2.5e+06\n";
        assert_eq!((sample(plain, "y"), sample(plain, "z")), (Some(2.5e6), None));
    }
}
