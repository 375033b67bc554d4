//! The watches, and the runs that each change triggers. The controller polls nothing. Each object is reduced before it is stored.
//!
//! The controller watches all runs, not only labelled runs. The removal of a label is then a change of a known run, after which
//! the controller releases the run and deletes its placeholder. The API server has already encoded each change for Tekton's own
//! controller. The cache keeps only the name of a run that pod-affinity does not handle: 10,000 such runs use 9 MB, and decoding a
//! change takes 0.1 ms. A label selector would need a label on runs that pod-affinity does not know yet.

use crate::foreign_events::{EventKey, ObservedEvent, can_be_task_of};
use crate::index::{IndexWriter, Reduced, index};
use crate::lists;
use crate::metrics::Metrics;
use crate::observe::Stores;
use crate::placeholders::{self, ObjectKey, OfRun, run_of};
use crate::quotas::QuotaState;
use crate::waiting_pods::{self, OfGroup};
use crate::{foreign_events, kept_nodes, nodes, quotas, tekton_flags};
use futures::future::{BoxFuture, Shared};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt, future, stream};
use kube::runtime::reflector::{self, ObjectRef, Store, store::Writer};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher::Config as Watch};
use kube::{Api, Client, Resource};
use placement::config::Config;
use placement::coschedule::Coschedule;
use placement::kept_node::KeptNode;
use placement::keys;
use placement::node::NodeFacts;
use placement::plan::{Placeholder, PlaceholderPod};
use placement::text::quoted;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::sync::Arc;
use tekton::PipelineRun;
use tokio::sync::watch;
use tracing::warn;

/// The writers of the caches.
pub(crate) struct Writers {
    pub(crate) runs: Writer<PipelineRun>,
    pub(crate) sets: IndexWriter<ObjectKey, OfRun<Placeholder>>,
    pub(crate) pods: IndexWriter<ObjectKey, OfRun<PlaceholderPod>>,
    pub(crate) nodes: IndexWriter<String, Arc<NodeFacts>>,
    pub(crate) waiting: IndexWriter<ObjectKey, OfGroup>,
    pub(crate) quotas: IndexWriter<ObjectKey, QuotaState>,
    pub(crate) tekton_flags: IndexWriter<String, Coschedule>,
    pub(crate) failed_creates: IndexWriter<EventKey, ObservedEvent>,
    pub(crate) autoscalers: IndexWriter<EventKey, ObservedEvent>,
    pub(crate) rejected_tasks: IndexWriter<EventKey, ObservedEvent>,
    pub(crate) kept_nodes: IndexWriter<String, KeptNode>,
}

/// A run to be reconciled.
type Trigger = ObjectRef<PipelineRun>;

/// Empty caches and their writers.
pub(crate) fn stores() -> (Stores, Writers) {
    macro_rules! split {
        ($($cache:ident: $new:expr),* $(,)?) => {{
            $(let $cache = $new;)*
            (Stores { $($cache: $cache.0),* }, Writers { $($cache: $cache.1),* })
        }};
    }
    split! {
        runs: reflector::store(),
        sets: index(),
        pods: index(),
        nodes: index(),
        waiting: index(),
        quotas: index(),
        tekton_flags: index(),
        failed_creates: index(),
        autoscalers: index(),
        rejected_tasks: index(),
        kept_nodes: index(),
    }
}

/// Which runs may have been deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deleted {
    /// The run with this UID.
    One(String),
    /// All runs that are not in the store: the watch restarted with a list, which does not report deletions.
    Unlisted,
}

/// Runs from the API server always have a UID.
fn deleted_by(event: &Event<PipelineRun>) -> Option<Deleted> {
    match event {
        Event::Delete(run) => run.metadata.uid.clone().map(Deleted::One),
        Event::InitDone => Some(Deleted::Unlisted),
        Event::Apply(_) | Event::Init | Event::InitApply(_) => None,
    }
}

/// The runs that an event may have changed. The store has the runs of a list only after the list is complete.
fn changed_by(event: Event<PipelineRun>, stored: &Store<PipelineRun>) -> Vec<Arc<PipelineRun>> {
    match event {
        Event::Apply(run) => vec![Arc::new(run)],
        Event::InitDone => stored.state(),
        Event::Delete(_) | Event::Init | Event::InitApply(_) => Vec::new(),
    }
}

/// What the watches need.
pub(crate) struct Watches {
    pub(crate) client: Client,
    pub(crate) metrics: Metrics,
    pub(crate) stores: Stores,
    /// Namespace of the installation.
    pub(crate) namespace: String,
    /// Resolves when the namespace of Tekton is known.
    pub(crate) tekton_namespace: Shared<BoxFuture<'static, String>>,
}

impl Watches {
    /// Starts the watches. Returns the runs that were added or changed, and the runs that changes of other objects trigger. Calls
    /// `gone` after the store has dropped a run, and `relaxed` with the group of a pod whose affinity was relaxed.
    pub(crate) fn open(
        self,
        writers: Writers,
        gone: impl Fn(Deleted) + Send + 'static,
        relaxed: impl Fn(&str) + Send + 'static,
        on_quota: impl Fn(&str) -> Vec<Trigger> + Send + 'static,
    ) -> (
        impl Stream<Item = watcher::Result<PipelineRun>> + Send + 'static,
        impl Stream<Item = Trigger> + Send + 'static,
    ) {
        let all = Watch::default;
        let own = self.placeholders(writers.sets, writers.pods);
        let events = self.events(
            writers.failed_creates,
            writers.autoscalers,
            writers.rejected_tasks,
        );
        let others = [
            self.watch("nodes", all(), writers.nodes, nodes::node, runs_on_nodes),
            self.watch(
                "pending_pods",
                waiting_pods::pending(),
                writers.waiting,
                waiting_pods::pod,
                move |stores, pods| runs_of_pods(stores, pods, &relaxed),
            ),
            self.watch("resourcequotas", all(), writers.quotas, quotas::quota, {
                move |_, changed| {
                    changed
                        .iter()
                        .flat_map(|((namespace, _), _)| on_quota(namespace))
                        .collect()
                }
            }),
        ];
        let runs = self.runs(writers.runs, gone);
        let flags = tekton_flags::watch(self.client.clone(), self.tekton_namespace.clone());
        let flags = self.follow("configmaps", flags, writers.tekton_flags, tekton_flags::mode, {
            |stores, _| stores.labelled_runs()
        });
        let kept = kept_nodes::watch(self.client.clone(), &self.namespace);
        let kept = self.follow("pods", kept, writers.kept_nodes, kept_nodes::pod, |_, _| {
            Vec::new()
        });
        let woken = stream::select_all(own.into_iter().chain(events).chain(others).chain([flags, kept]));
        (runs, woken)
    }

    /// The watches of placeholders and of their pods.
    fn placeholders(
        &self,
        sets: IndexWriter<ObjectKey, OfRun<Placeholder>>,
        pods: IndexWriter<ObjectKey, OfRun<PlaceholderPod>>,
    ) -> [BoxStream<'static, Trigger>; 2] {
        [
            self.watch(
                "statefulsets",
                placeholders(),
                sets,
                placeholders::set,
                runs_of_owners,
            ),
            self.watch("pods", placeholders(), pods, placeholders::pod, runs_of_owners),
        ]
    }

    /// The watches of events that other controllers emit.
    fn events(
        &self,
        failed_creates: IndexWriter<EventKey, ObservedEvent>,
        autoscalers: IndexWriter<EventKey, ObservedEvent>,
        rejected_tasks: IndexWriter<EventKey, ObservedEvent>,
    ) -> [BoxStream<'static, Trigger>; 3] {
        [
            self.watch(
                "events",
                foreign_events::failed_creates(),
                failed_creates,
                foreign_events::of_statefulset,
                runs_of_placeholders,
            ),
            self.watch(
                "events",
                foreign_events::autoscalers(),
                autoscalers,
                foreign_events::of_autoscaler,
                runs_of_placeholders,
            ),
            self.watch(
                "events",
                foreign_events::rejected_tasks(),
                rejected_tasks,
                foreign_events::of_task_run,
                runs_of_tasks,
            ),
        ]
    }

    fn runs<G: Fn(Deleted) + Send + 'static>(
        &self,
        writer: Writer<PipelineRun>,
        gone: G,
    ) -> impl Stream<Item = watcher::Result<PipelineRun>> + Send + use<G> {
        let stored = self.stores.runs.clone();
        let events = lists::watch(Api::all(self.client.clone()), Watch::default())
            .default_backoff()
            .modify(PipelineRun::prune)
            .reflect(writer)
            .inspect_ok(move |event| deleted_by(event).into_iter().for_each(&gone));
        let changed = events
            .map_ok(move |event| stream::iter(changed_by(event, &stored)).map(Ok))
            .try_flatten();
        report_errors(
            changed.map_ok(Arc::unwrap_or_clone),
            "pipelineruns",
            self.metrics.clone(),
        )
    }

    /// Watches one kind of object. Returns the runs that a change triggers.
    fn watch<O, K, V>(
        &self,
        resource: &'static str,
        watch: Watch,
        writer: IndexWriter<K, V>,
        reduce: fn(&O) -> Option<Reduced<K, V>>,
        woken: impl Fn(&Stores, &[(K, V)]) -> Vec<Trigger> + Send + 'static,
    ) -> BoxStream<'static, Trigger>
    where
        O: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
        K: Ord + Clone + Send + Sync + 'static,
        V: Clone + PartialEq + Send + Sync + 'static,
    {
        let events = lists::watch(Api::all(self.client.clone()), watch);
        self.follow(resource, events, writer, reduce, woken)
    }

    /// Fills the cache of one kind of object. Returns the runs that a change triggers.
    fn follow<O, K, V>(
        &self,
        resource: &'static str,
        events: impl Stream<Item = watcher::Result<Event<O>>> + Send + 'static,
        mut writer: IndexWriter<K, V>,
        reduce: fn(&O) -> Option<Reduced<K, V>>,
        woken: impl Fn(&Stores, &[(K, V)]) -> Vec<Trigger> + Send + 'static,
    ) -> BoxStream<'static, Trigger>
    where
        O: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
        K: Ord + Clone + Send + Sync + 'static,
        V: Clone + PartialEq + Send + Sync + 'static,
    {
        let (stores, on_error) = (self.stores.clone(), writer.on_error());
        let events = events.default_backoff().inspect_err(move |_| on_error());
        report_errors(events, resource, self.metrics.clone())
            .filter_map(|event| future::ready(event.ok()))
            .flat_map(move |event| stream::iter(woken(&stores, &writer.take(event, reduce))))
            .boxed()
    }
}

fn runs_of_owners<T>(_: &Stores, changed: &[(ObjectKey, OfRun<T>)]) -> Vec<Trigger> {
    let owner = |((namespace, _), of): &(ObjectKey, OfRun<T>)| run_of(namespace, of);
    changed.iter().filter_map(owner).collect()
}

/// The runs on nodes whose reduced values changed. A heartbeat triggers no run.
fn runs_on_nodes(stores: &Stores, changed: &[(String, Arc<NodeFacts>)]) -> Vec<Trigger> {
    stores.runs_on(&changed.iter().map(|(name, _)| name.clone()).collect())
}

fn runs_of_pods(stores: &Stores, changed: &[(ObjectKey, OfGroup)], relaxed: &impl Fn(&str)) -> Vec<Trigger> {
    let runs = changed.iter().filter_map(|((namespace, _), waiting)| {
        let run = stores.run_of_pod(namespace, waiting)?;
        if waiting.pod.it.relaxed {
            relaxed(&waiting.group);
        }
        Some(run)
    });
    runs.collect()
}

/// The runs of the placeholders that events are about.
fn runs_of_placeholders(stores: &Stores, changed: &[(EventKey, ObservedEvent)]) -> Vec<Trigger> {
    let runs = changed.iter().filter_map(|((namespace, name, _), _)| {
        stores.run_of_placeholder(namespace, name.trim_end_matches("-0"))
    });
    runs.collect()
}

/// The runs with a placeholder that a task can belong to, whose pod a quota rejected.
fn runs_of_tasks(stores: &Stores, changed: &[(EventKey, ObservedEvent)]) -> Vec<Trigger> {
    let runs = changed.iter().flat_map(|((namespace, task, _), _)| {
        let runs = stores.runs_in(namespace).into_iter();
        runs.filter(|run| can_be_task_of(task, &run.name))
    });
    runs.collect()
}

fn placeholders() -> Watch {
    let (component, app) = (keys::COMPONENT, keys::APP);
    let labels = format!("{component}={},{app}={}", keys::PLACEHOLDER, keys::APP_NAME);
    Watch::default().labels(&labels)
}

/// Reports errors of a watch, and does not pass the errors to kube's controller: after an error, its backoff would delay the
/// triggers of all watches.
fn report_errors<K>(
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
            let error = error.to_string();
            warn!(resource, error = %quoted(&error), "a watch failed and starts again");
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

#[cfg(test)]
mod tests;
