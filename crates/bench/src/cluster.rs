//! What several parts do with a testbed.

use crate::exposition::{label, sum};
use crate::process::{cpu_seconds, most_resident};
use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams, PropagationPolicy};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::{Duration, Instant};
use testbed::runs::{self, RunSpec};
use testbed::{Part, Testbed, tekton};

/// Calls to the API server at the same time when objects are made in numbers.
const AT_ONCE: usize = 32;
/// Longest wait for a namespace to be empty again.
const EMPTY: Duration = Duration::from_mins(10);
/// Verbs that are told one by one.
pub(crate) const VERBS: [(&str, &str); 7] = [
    ("GET", "GET a run"),
    ("LIST", "LIST a run"),
    ("POST", "POST a run"),
    ("PUT", "PUT a run"),
    ("PATCH", "PATCH a run"),
    ("APPLY", "APPLY a run"),
    ("DELETE", "DELETE a run"),
];
/// Verbs that change something.
const WRITES: [&str; 5] = ["POST", "PUT", "PATCH", "APPLY", "DELETE"];
/// Our own processes.
pub(crate) const OURS: [Part; 4] = [
    Part::Webhook(0),
    Part::Webhook(1),
    Part::Controller(0),
    Part::Controller(1),
];

/// The API server's own count of requests. Leases are left out: they come with time and nodes, whatever is measured.
#[derive(Clone, Debug)]
pub(crate) struct Requests(BTreeMap<&'static str, f64>);

impl Requests {
    pub(crate) async fn so_far(client: &Client) -> Result<Self> {
        let text = metrics(client).await?;
        let of = |verb: &str| {
            sum(&text, "apiserver_request_total", |labels| {
                label(labels, "verb") == Some(verb) && label(labels, "resource") != Some("leases")
            })
        };
        Ok(Self(VERBS.iter().map(|(verb, _)| (*verb, of(verb))).collect()))
    }

    pub(crate) fn since(&self, before: &Self, verb: &str) -> f64 {
        self.0[verb] - before.0[verb]
    }

    pub(crate) fn writes_since(&self, before: &Self) -> f64 {
        WRITES.iter().map(|verb| self.since(before, verb)).sum()
    }
}

async fn metrics(client: &Client) -> Result<String> {
    let request = http::Request::get("/metrics").body(Vec::new())?;
    client
        .request_text(request)
        .await
        .context("reading the API server's metrics")
}

/// CPU seconds of some parts together.
pub(crate) fn cpu(bed: &Testbed, parts: &[Part]) -> Result<f64> {
    each(bed, parts, cpu_seconds).map(|seconds| seconds.iter().sum())
}

/// The largest of some parts, at its largest, in megabytes.
pub(crate) fn memory(bed: &Testbed, parts: &[Part]) -> Result<f64> {
    each(bed, parts, most_resident).map(|megabytes| megabytes.into_iter().fold(0.0, f64::max))
}

fn each(bed: &Testbed, parts: &[Part], look: fn(u32) -> Result<f64>) -> Result<Vec<f64>> {
    let look = |part: &Part| look(bed.pid(*part).with_context(|| format!("{part} does not run"))?);
    parts.iter().map(look).collect()
}

/// Has Tekton place pods like this. It starts again for it, unless it does so already.
pub(crate) async fn coschedule(bed: &Testbed, mode: &str) -> Result<()> {
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

/// Creates objects as fast as the API server takes them; when each was asked for, in their order.
pub(crate) async fn create_all<K>(api: &Api<K>, objects: Vec<K>) -> Result<Vec<Instant>>
where
    K: Clone + Serialize + DeserializeOwned + Debug,
{
    let create = |object: K| async move {
        let asked = Instant::now();
        api.create(&PostParams::default(), &object)
            .await
            .context("creating an object")?;
        anyhow::Ok(asked)
    };
    stream::iter(objects.into_iter().map(create))
        .buffered(AT_ONCE)
        .try_collect()
        .await
}

/// Creates runs likewise.
pub(crate) async fn create_runs(client: &Client, namespace: &str, specs: &[RunSpec]) -> Result<Vec<Instant>> {
    let objects = specs
        .iter()
        .map(|spec| serde_json::from_value(spec.manifest.clone()));
    create_all(
        &runs::runs(client, namespace),
        objects.collect::<Result<Vec<DynamicObject>, _>>()?,
    )
    .await
}

/// Deletes all runs of a namespace and waits until no pod is left in it.
pub(crate) async fn clear_runs(bed: &Testbed, namespace: &str) -> Result<()> {
    let client = bed.client().await?;
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    let api = runs::runs(&client, namespace);
    api.delete_collection(&params, &ListParams::default())
        .await
        .context("deleting the runs")?;
    none_left(bed, &api, "run", namespace).await?;
    none_left(bed, &Api::<Pod>::namespaced(client, namespace), "pod", namespace).await
}

/// Deletes all pods of a namespace at once.
pub(crate) async fn clear_pods(bed: &Testbed, namespace: &str) -> Result<()> {
    let api: Api<Pod> = Api::namespaced(bed.client().await?, namespace);
    let params = DeleteParams::default().grace_period(0);
    api.delete_collection(&params, &ListParams::default())
        .await
        .context("deleting the pods")?;
    none_left(bed, &api, "pod", namespace).await
}

async fn none_left<K>(bed: &Testbed, api: &Api<K>, what: &str, namespace: &str) -> Result<()>
where
    K: Clone + DeserializeOwned + Debug,
{
    bed.until(
        format!("no {what} to be left in {namespace}"),
        EMPTY,
        async || {
            let left = api
                .list(&ListParams::default().limit(1))
                .await
                .map_err(|error| error.to_string())?;
            if left.items.is_empty() {
                Ok(())
            } else {
                Err("there are some".to_owned())
            }
        },
    )
    .await?;
    Ok(())
}

/// One run from its creation to its end, so that nothing that follows is the first of its kind.
pub(crate) async fn warm_up(bed: &Testbed, namespace: &str, label: Option<&str>) -> Result<()> {
    let spec = RunSpec::diamond(namespace, "warm-up").lasting("100ms");
    let spec = label.map_or(spec.clone(), |value| spec.opted_in(value));
    spec.create(&bed.client().await?)
        .await
        .context("creating a run to warm up")?;
    bed.until_succeeded(&spec, Duration::from_mins(2)).await?;
    clear_runs(bed, namespace).await
}

/// Waits until a look says that all is there; tells what is missing if it takes too long.
pub(crate) async fn all_are(
    bed: &Testbed,
    what: &str,
    count: usize,
    deadline: Duration,
    mut so_far: impl FnMut() -> usize,
) -> Result<()> {
    let waited = bed.until(format!("{count} {what}"), deadline, async || {
        let seen = so_far();
        if seen >= count {
            Ok(())
        } else {
            Err(format!("{seen} are"))
        }
    });
    waited.await?;
    let seen = so_far();
    if seen > count {
        bail!("{seen} are {what}, but only {count} were created");
    }
    Ok(())
}
