//! The watches and their caches. Nothing is polled; what is stored was pruned before.

use crate::around::{self, PodKey, Waiting};
use crate::cache::{Feed, cache};
use crate::departed::Departures;
use crate::members;
use crate::metrics::Metrics;
use crate::mirror::{Image, Reduced, mirror};
use crate::observe::Stores;
use crate::view::{PlaceholderPod, PlaceholderSet};
use futures::{Stream, StreamExt, TryStreamExt, future, stream};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::{self, watcher};
use kube::runtime::{WatchStreamExt, watcher::Config as Watch};
use kube::{Api, Client, Resource};
use placement::config::Config;
use placement::keys;
use placement::node::NodeFacts;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::sync::Arc;
use tekton::PipelineRun;
use tokio::sync::watch;
use tracing::warn;

/// PipelineRuns a page: each may be tens of kilobytes before it is pruned, and a page is held in memory as a whole.
const RUNS_A_PAGE: u32 = 100;
/// Nodes, or pods of tasks, a page, likewise.
const OTHERS_A_PAGE: u32 = 100;

/// The writing ends of the caches.
pub(crate) struct Feeds {
    pub(crate) runs: Feed<PipelineRun>,
    pub(crate) sets: Feed<PlaceholderSet>,
    pub(crate) pods: Feed<PlaceholderPod>,
    pub(crate) nodes: Image<String, NodeFacts>,
    pub(crate) waiting: Image<PodKey, Waiting>,
}

/// Empty caches.
pub(crate) fn stores() -> (Stores, Feeds) {
    let (runs, run_feed) = cache();
    let (sets, set_feed) = cache();
    let (pods, pod_feed) = cache();
    let (nodes, node_feed) = mirror();
    let (waiting, waiting_feed) = mirror();
    let feeds = Feeds {
        runs: run_feed,
        sets: set_feed,
        pods: pod_feed,
        nodes: node_feed,
        waiting: waiting_feed,
    };
    let stores = Stores {
        runs,
        sets,
        pods,
        nodes,
        waiting,
    };
    (stores, feeds)
}

/// Runs that bear the opt-in label, with whatever value: `false` may be an opt-out that came after the hold.
pub(crate) fn runs(
    client: Client,
    feed: Feed<PipelineRun>,
    mut departures: Departures,
    metrics: Metrics,
) -> impl Stream<Item = watcher::Result<PipelineRun>> + Send + 'static {
    let events = watcher(
        Api::all(client),
        Watch::default().labels(keys::OPT_IN).page_size(RUNS_A_PAGE),
    )
    .default_backoff()
    .modify(PipelineRun::prune)
    .inspect_ok(move |event| departures.note(event));
    healthy(feed.keep(events).applied_objects(), "pipelineruns", metrics)
}

/// Placeholder StatefulSets, deleted ones too.
pub(crate) fn sets(
    client: Client,
    feed: Feed<PlaceholderSet>,
    metrics: Metrics,
) -> impl Stream<Item = watcher::Result<PlaceholderSet>> + Send + 'static {
    healthy(
        placeholders(client, feed, PlaceholderSet::prune),
        "statefulsets",
        metrics,
    )
}

/// Placeholder pods, deleted ones too.
pub(crate) fn pods(
    client: Client,
    feed: Feed<PlaceholderPod>,
    metrics: Metrics,
) -> impl Stream<Item = watcher::Result<PlaceholderPod>> + Send + 'static {
    healthy(placeholders(client, feed, PlaceholderPod::prune), "pods", metrics)
}

/// The runs on nodes that changed in a way that matters to pods; heartbeats wake nobody.
pub(crate) fn nodes(
    client: Client,
    image: Image<String, NodeFacts>,
    stores: Stores,
    metrics: Metrics,
) -> impl Stream<Item = ObjectRef<PipelineRun>> + Send + 'static {
    let events = watcher(Api::all(client), Watch::default().page_size(OTHERS_A_PAGE));
    let changes = reduced(events, image, around::node, "nodes", metrics);
    changes.flat_map(move |changed| {
        let names = changed.into_iter().map(|(name, _)| name).collect();
        stream::iter(stores.runs_on(&names))
    })
}

/// The runs with task pods that wait for a node, and those whose pods do no longer. By phase, since whether a pod is
/// bound cannot be selected by.
pub(crate) fn waiting(
    client: Client,
    image: Image<PodKey, Waiting>,
    stores: Stores,
    metrics: Metrics,
) -> impl Stream<Item = ObjectRef<PipelineRun>> + Send + 'static {
    let watch = Watch::default()
        .labels(&members::tasks())
        .fields("status.phase=Pending")
        .page_size(OTHERS_A_PAGE);
    let events = watcher(Api::all(client), watch);
    let changes = reduced(events, image, around::pod, "pending_pods", metrics);
    changes.flat_map(move |changed| {
        let runs: Vec<_> = changed
            .iter()
            .filter_map(|(key, pod)| stores.run_of_pod(key, pod))
            .collect();
        stream::iter(runs)
    })
}

/// What each event of a watch changed.
fn reduced<O, K, V>(
    events: impl Stream<Item = watcher::Result<watcher::Event<O>>> + Send + 'static,
    mut image: Image<K, V>,
    reduce: fn(&O) -> Reduced<K, V>,
    resource: &'static str,
    metrics: Metrics,
) -> impl Stream<Item = Vec<(K, V)>> + Send + 'static
where
    O: Send + 'static,
    K: Ord + Clone + Send + Sync + 'static,
    V: Clone + PartialEq + Send + Sync + 'static,
{
    healthy(events.default_backoff(), resource, metrics)
        .filter_map(|event| future::ready(event.ok()))
        .map(move |event| image.take(event, reduce))
}

fn placeholders<K>(
    client: Client,
    feed: Feed<K>,
    prune: fn(&mut K),
) -> impl Stream<Item = watcher::Result<K>> + Send + 'static
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let labels = format!(
        "{}={},{}={}",
        keys::COMPONENT,
        keys::PLACEHOLDER,
        keys::APP,
        keys::APP_NAME
    );
    let events = watcher(Api::all(client), Watch::default().labels(&labels));
    feed.keep(events.default_backoff().modify(prune))
        .touched_objects()
}

/// Tells of broken watches and keeps their errors from the controller, whose own backoff would hold up the triggers
/// of all watches for the trouble of one.
fn healthy<K>(
    objects: impl Stream<Item = watcher::Result<K>> + Send + 'static,
    resource: &'static str,
    metrics: Metrics,
) -> impl Stream<Item = watcher::Result<K>> + Send + 'static
where
    K: Send + 'static,
{
    metrics.watch(resource);
    objects.filter_map(move |object| {
        if let Err(error) = &object {
            metrics.watch_error(resource);
            warn!(resource, %error, "a watch broke and is taken up again");
        }
        future::ready(object.ok().map(Ok))
    })
}

/// One item for each change of the configuration.
pub(crate) fn changes(config: watch::Receiver<Arc<Config>>) -> impl Stream<Item = ()> + Send + 'static {
    stream::unfold(config, async |mut config| {
        config.changed().await.ok()?;
        config.borrow_and_update();
        Some(((), config))
    })
}
