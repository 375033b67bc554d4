//! Takes notice of objects as the API server tells of them, each with the moment in which it was heard.

use anyhow::{Context, Result};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
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

/// Something shared between a watch and whoever waits for it.
#[derive(Debug)]
pub(crate) struct Notes<T>(Arc<Mutex<T>>);

impl<T> Clone for Notes<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Default> Default for Notes<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Notes<T> {
    pub(crate) fn look(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running watch; it ends with this value.
#[derive(Debug)]
pub(crate) struct Watch(JoinHandle<()>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Watches, and returns once everything that was there at the start has been told.
pub(crate) async fn watch<K>(
    api: Api<K>,
    config: watcher::Config,
    mut note: impl FnMut(K, Instant) + Send + 'static,
) -> Result<Watch>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let (ready, listed) = oneshot::channel();
    let mut ready = Some(ready);
    let task = tokio::spawn(async move {
        let mut events = std::pin::pin!(watcher::watcher(api, config));
        // An error is a broken watch; the next poll takes it up again, and what was missed is told anew.
        loop {
            match events.try_next().await {
                Ok(Some(Event::Apply(object) | Event::InitApply(object))) => note(object, Instant::now()),
                // Nobody may wait any more.
                Ok(Some(Event::InitDone)) => drop(ready.take().map(|ready| ready.send(()))),
                Ok(Some(Event::Init | Event::Delete(_))) => {}
                Ok(None) => return,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    });
    listed.await.context("a watch ended before its first list")?;
    Ok(Watch(task))
}

/// What became of a pod.
#[derive(Clone, Debug)]
pub(crate) struct SeenPod {
    pub(crate) run: String,
    pub(crate) is_task: bool,
    pub(crate) node: String,
    pub(crate) bound: Instant,
    pub(crate) ended: Option<Instant>,
}

/// What became of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenRun {
    pub(crate) released: Option<Instant>,
    pub(crate) done: Option<Instant>,
    pub(crate) failed: Option<String>,
}

pub(crate) type Pods = Notes<BTreeMap<String, SeenPod>>;
pub(crate) type Runs = Notes<BTreeMap<String, SeenRun>>;
pub(crate) type Nodes = Notes<BTreeMap<String, Instant>>;

/// Bound pods of a namespace, by name. Pods without a node are not even sent.
pub(crate) async fn pods(client: &Client, namespace: &str) -> Result<(Pods, Watch)> {
    let notes = Pods::default();
    let noted = notes.clone();
    let config = watcher::Config::default().fields("spec.nodeName!=");
    let watch = watch(
        Api::namespaced(client.clone(), namespace),
        config,
        move |pod: Pod, now| {
            note_pod(&mut noted.look(), &pod, now);
        },
    );
    Ok((notes, watch.await?))
}

fn note_pod(pods: &mut BTreeMap<String, SeenPod>, pod: &Pod, now: Instant) {
    let Some(node) = runs::node(pod) else { return };
    let seen = pods.entry(pod.name_any()).or_insert_with(|| SeenPod {
        run: pod.labels().get(RUN_LABEL).cloned().unwrap_or_default(),
        is_task: pod.labels().contains_key("tekton.dev/pipelineTask"),
        node: node.to_owned(),
        bound: now,
        ended: None,
    });
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if let Some("Succeeded" | "Failed") = phase {
        seen.ended.get_or_insert(now);
    }
}

/// Runs of a namespace, by name.
pub(crate) async fn runs(client: &Client, namespace: &str) -> Result<(Runs, Watch)> {
    let notes = Runs::default();
    let noted = notes.clone();
    let api = runs::runs(client, namespace);
    let watch = watch(api, watcher::Config::default(), move |run, now| {
        note_run(&mut noted.look(), &run, now);
    });
    Ok((notes, watch.await?))
}

fn note_run(runs: &mut BTreeMap<String, SeenRun>, run: &DynamicObject, now: Instant) {
    let seen = runs.entry(run.name_any()).or_default();
    let state = runs::state(run);
    if state != State::Pending {
        seen.released.get_or_insert(now);
    }
    match state {
        State::Pending | State::Running => {}
        State::Succeeded => drop(seen.done.get_or_insert(now)),
        State::Failed(reason) => seen.failed = Some(reason),
    }
}

/// Nodes as they become usable.
pub(crate) async fn nodes(client: &Client) -> Result<(Nodes, Watch)> {
    let notes = Nodes::default();
    let noted = notes.clone();
    let watch = watch(
        Api::all(client.clone()),
        watcher::Config::default(),
        move |node: Node, now| {
            noted.look().entry(node.name_any()).or_insert(now);
        },
    );
    Ok((notes, watch.await?))
}
