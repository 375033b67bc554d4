//! Watches objects, and records when their events arrived.

use anyhow::{Context, Result};
use futures::TryStreamExt;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject};
use kube::runtime::watcher::{self, Event};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use testbed::runs::{self, RUN_LABEL, State};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// What a watch has recorded of each object, by name. The watch ends with this value.
#[derive(Debug)]
pub(crate) struct Recorder<T> {
    records: Arc<Mutex<BTreeMap<String, T>>>,
    task: JoinHandle<()>,
}

impl<T> Drop for Recorder<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<T: Send + 'static> Recorder<T> {
    /// Returns after the first list.
    async fn start<K>(
        api: Api<K>,
        config: watcher::Config,
        record: fn(&mut BTreeMap<String, T>, &K, Instant),
    ) -> Result<Self>
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let records = Arc::<Mutex<_>>::default();
        let (ready, listed) = oneshot::channel();
        let (mut ready, written) = (Some(ready), records.clone());
        let task = tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher::watcher(api, config));
            // After an error, the next poll starts the watch again, with a new list.
            loop {
                match events.try_next().await {
                    Ok(Some(Event::Apply(object) | Event::InitApply(object))) => {
                        record(&mut lock(&written), &object, Instant::now());
                    }
                    // The receiver is gone if the caller has given up.
                    Ok(Some(Event::InitDone)) => drop(ready.take().map(|ready| ready.send(()))),
                    Ok(Some(Event::Init | Event::Delete(_))) => {}
                    Ok(None) => return,
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        });
        let watch = Self { records, task };
        listed.await.context("a watch ended before its first list")?;
        Ok(watch)
    }

    pub(crate) fn records(&self) -> MutexGuard<'_, BTreeMap<String, T>> {
        lock(&self.records)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A pod that has a node.
#[derive(Clone, Debug)]
pub(crate) struct PodRecord {
    pub(crate) run: String,
    pub(crate) is_task: bool,
    pub(crate) node: String,
    pub(crate) bound: Instant,
    pub(crate) ended: Option<Instant>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct RunRecord {
    pub(crate) released: Option<Instant>,
    pub(crate) done: Option<Instant>,
    /// The reason of the condition of a run that failed.
    pub(crate) failed: Option<String>,
}

/// Watches the pods of a namespace that have a node.
pub(crate) async fn pods(client: &Client, namespace: &str) -> Result<Recorder<PodRecord>> {
    let bound = watcher::Config::default().fields("spec.nodeName!=");
    Recorder::start(Api::namespaced(client.clone(), namespace), bound, record_pod).await
}

fn record_pod(pods: &mut BTreeMap<String, PodRecord>, pod: &Pod, now: Instant) {
    let Some(node) = runs::node(pod) else { return };
    let record = pods.entry(pod.name_any()).or_insert_with(|| PodRecord {
        run: pod.labels().get(RUN_LABEL).cloned().unwrap_or_default(),
        is_task: pod.labels().contains_key("tekton.dev/pipelineTask"),
        node: node.to_owned(),
        bound: now,
        ended: None,
    });
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if let Some("Succeeded" | "Failed") = phase {
        record.ended.get_or_insert(now);
    }
}

/// Watches the runs of a namespace.
pub(crate) async fn runs(client: &Client, namespace: &str) -> Result<Recorder<RunRecord>> {
    let api = runs::runs(client, namespace);
    Recorder::start(api, watcher::Config::default(), record_run).await
}

fn record_run(runs: &mut BTreeMap<String, RunRecord>, run: &DynamicObject, now: Instant) {
    let record = runs.entry(run.name_any()).or_default();
    let state = runs::state(run);
    if state != State::Pending {
        record.released.get_or_insert(now);
    }
    match state {
        State::Pending | State::Running => {}
        State::Succeeded => drop(record.done.get_or_insert(now)),
        State::Failed(reason) => record.failed = Some(reason),
    }
}

/// Watches the StatefulSets of a namespace: when each of them was seen first.
pub(crate) async fn statefulsets(client: &Client, namespace: &str) -> Result<Recorder<Instant>> {
    let api = Api::namespaced(client.clone(), namespace);
    let record = |sets: &mut BTreeMap<_, _>, set: &StatefulSet, now| {
        sets.entry(set.name_any()).or_insert(now);
    };
    Recorder::start(api, watcher::Config::default(), record).await
}
