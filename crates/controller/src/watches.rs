//! The three watches and their caches. Nothing is polled; what is stored was pruned before.

use crate::cache::{Feed, cache};
use crate::departed::Departures;
use crate::metrics::Metrics;
use crate::observe::Stores;
use crate::view::{PlaceholderPod, PlaceholderSet};
use futures::{Stream, StreamExt, TryStreamExt, future, stream};
use kube::runtime::watcher::{self, watcher};
use kube::runtime::{WatchStreamExt, watcher::Config as Watch};
use kube::{Api, Client, Resource};
use placement::config::Config;
use placement::keys;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::sync::Arc;
use tekton::PipelineRun;
use tokio::sync::watch;
use tracing::warn;

/// PipelineRuns a page: each may be tens of kilobytes before it is pruned, and a page is held in memory as a whole.
const RUNS_A_PAGE: u32 = 100;

/// The writing ends of the caches.
pub(crate) struct Feeds {
    pub(crate) runs: Feed<PipelineRun>,
    pub(crate) sets: Feed<PlaceholderSet>,
    pub(crate) pods: Feed<PlaceholderPod>,
}

/// Empty caches.
pub(crate) fn stores() -> (Stores, Feeds) {
    let (runs, run_feed) = cache();
    let (sets, set_feed) = cache();
    let (pods, pod_feed) = cache();
    let feeds = Feeds {
        runs: run_feed,
        sets: set_feed,
        pods: pod_feed,
    };
    (Stores { runs, sets, pods }, feeds)
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
