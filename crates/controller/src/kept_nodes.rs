//! The pods that keep nodes after runs: their watch, what their runs record of them, and their deletion.
//!
//! The kubelet ends such a pod at its time (`activeDeadlineSeconds`), also while no controller runs. The controller deletes the pod, at
//! its time or when a run uses the node. A run records until when its node is kept, and the controller corrects the record when the pod
//! is gone earlier.

use crate::index::Reduced;
use crate::lists;
use crate::metrics::Metrics;
use crate::observe::{Clock, Stores};
use crate::placeholders::{ObjectKey, OfRun, run_of};
use crate::pods::PodView;
use crate::write::Cluster;
use futures::Stream;
use jiff::Timestamp;
use kube::runtime::watcher::{self, Config, Event};
use kube::{Api, Client};
use placement::kept_node::{KeptNode, record};
use placement::keys;
use placement::names::RunKey;
use placement::plan::PlaceholderPod;
use placement::requests::{Object, Operation, Request, Verb, record_kept_until};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tekton::{Outcome, PipelineRun};
use tracing::{info, warn};

/// How often the caches are compared, if no pod has its time before. This sends no request.
const COMPARED_EVERY: Duration = Duration::from_secs(5);
/// The shortest pause between two comparisons.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
/// The most records that are corrected after one comparison: users can write records too.
const AT_ONCE: usize = 20;

/// Watches the namespace of the installation only. No tenant can create pods there.
pub(crate) fn watch(
    client: Client,
    namespace: &str,
) -> impl Stream<Item = watcher::Result<Event<PodView>>> + Send + use<> {
    let labels = format!("{}={}", keys::COMPONENT, keys::KEPT_NODE);
    lists::watch(
        Api::namespaced(client, namespace),
        Config::default().labels(&labels),
    )
}

/// Reduces a pod that keeps a node.
pub(crate) fn pod(pod: &PodView) -> Option<Reduced<String, KeptNode>> {
    let annotation = |key| pod.metadata.annotations.as_ref()?.get(key);
    let kept = KeptNode {
        uid: pod.metadata.uid.clone()?,
        node: pod.node().map(str::to_owned),
        until: annotation(keys::KEPT_UNTIL).and_then(|until| until.parse().ok()),
        created: pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
        after: annotation(keys::KEPT_AFTER).cloned().unwrap_or_default(),
        run: annotation(keys::KEPT_AFTER_UID).cloned(),
        ended: pod.has_ended(),
    };
    Some((pod.metadata.name.clone()?, Some(kept)))
}

/// Corrects what runs record of their kept nodes, and deletes the pods whose node is not kept any longer.
pub(crate) struct KeptNodes {
    stores: Stores,
    cluster: Arc<Cluster>,
    clock: Clock,
    metrics: Metrics,
    /// Until when the metrics have the time of the kept nodes.
    counted: Option<Timestamp>,
}

/// A run that should record another time until which its node is kept.
struct Correction {
    run: RunKey,
    version: Option<String>,
    until: Timestamp,
}

impl KeptNodes {
    pub(crate) fn new(stores: Stores, cluster: Arc<Cluster>, clock: Clock, metrics: Metrics) -> Self {
        Self {
            stores,
            cluster,
            clock,
            metrics,
            counted: None,
        }
    }

    /// Compares the caches every few seconds.
    pub(crate) async fn run(mut self) {
        loop {
            self.compare().await;
            tokio::time::sleep(self.stores.pause((self.clock)())).await;
        }
    }

    /// Before the first list of the pods, no pod seems to keep a node.
    pub(crate) async fn compare(&mut self) {
        if !self.stores.kept_nodes.is_filled_now() {
            return;
        }
        let now = (self.clock)();
        self.count(now);
        self.record(now).await;
        self.delete(now).await;
    }

    /// Counts the time since the last comparison.
    fn count(&mut self, now: Timestamp) {
        let since = self.counted.replace(now).unwrap_or(now);
        let kept_nodes = self.stores.kept_nodes.read();
        for kept in kept_nodes.values().filter(|kept| !kept.ended) {
            let from = kept.created.map_or(since, |created| created.max(since));
            let namespace = kept.after.split('/').next().unwrap_or_default();
            let duration = Duration::try_from(now.duration_since(from)).unwrap_or_default();
            self.metrics.kept_node(namespace, duration);
        }
    }

    /// The record comes before the deletion of the pod: if the leader changes in between, the record has the right time nevertheless.
    async fn record(&self, now: Timestamp) {
        for Correction { run, version, until } in self.stores.corrections(now) {
            let request = record_kept_until(&run, version.as_deref(), until);
            if let Err(error) = self.cluster.send(&run, &request).await {
                warn!(%run, %error, "could not record until when the node of the run is kept");
            }
        }
    }

    async fn delete(&self, now: Timestamp) {
        for (name, kept) in self.stores.nodes_kept_no_longer(now) {
            let request = Request {
                operation: Operation::KeepNode,
                object: Object::KeptNode(name),
                verb: Verb::Delete {
                    uid: kept.uid.clone(),
                    at_once: true,
                },
            };
            let no_run = RunKey {
                namespace: String::new(),
                name: String::new(),
                uid: String::new(),
            };
            match self.cluster.send(&no_run, &request).await {
                Ok(_) => info!(?kept, "does not keep the node any longer"),
                Err(error) => warn!(?kept, %error, "could not delete the pod that keeps a node"),
            }
        }
    }
}

impl Stores {
    /// Done, labelled runs whose record differs from the pods that keep nodes.
    fn corrections(&self, now: Timestamp) -> Vec<Correction> {
        let times = self.kept_times(now);
        let is_concerned = |run: &PipelineRun| {
            let uid = run.metadata.uid.as_ref();
            let is_kept = || uid.is_some_and(|uid| times.contains_key(uid));
            let is_done = run.labelled && run.status.outcome != Outcome::Open;
            is_done && (recorded(run).is_some_and(|until| until > now) || is_kept())
        };
        let runs = self.runs.state_filter(is_concerned).into_iter();
        let corrections = runs.filter_map(|run| {
            let of_pod = times.get(run.metadata.uid.as_ref()?).copied();
            let (keeps_until, ended) = of_pod.unwrap_or((None, now));
            Some(Correction {
                run: run.key()?,
                version: run.metadata.resource_version.clone(),
                until: record::correction(recorded(&run), keeps_until, ended)?,
            })
        });
        corrections.take(AT_ONCE).collect()
    }

    /// By the UID of the run: until when a pod keeps the node, and the latest time at which the node was kept if it no longer is.
    fn kept_times(&self, now: Timestamp) -> BTreeMap<String, (Option<Timestamp>, Timestamp)> {
        let kept_nodes = self.kept_nodes.read();
        let times = kept_nodes.values().filter_map(|kept| {
            let is_over = kept.is_over(now, self.is_used(kept));
            let ended = kept.until.map_or(now, |until| until.min(now));
            Some((kept.run.clone()?, (kept.until.filter(|_| !is_over), ended)))
        });
        times.collect()
    }

    fn nodes_kept_no_longer(&self, now: Timestamp) -> Vec<(String, KeptNode)> {
        let kept_nodes = self.kept_nodes.read();
        let over = kept_nodes
            .iter()
            .filter(|(_, kept)| kept.is_over(now, self.is_used(kept)));
        over.map(|(name, kept)| (name.clone(), kept.clone())).collect()
    }

    /// Whether the placeholder of another run than the run that has ended is on the node.
    fn is_used(&self, kept: &KeptNode) -> bool {
        let pods = self.pods.read();
        let mut on_node = pods
            .iter()
            .filter(|(_, pod)| !pod.it.ending && pod.it.node.is_some() && pod.it.node == kept.node);
        on_node.any(|(key, pod)| {
            let run = self.run_with_placeholder(key, pod);
            run.is_some_and(|run| kept.run.as_ref().is_some_and(|kept| *kept != run.uid))
        })
    }

    /// The run that has this pod as its placeholder: a user who may create pods can give a pod the labels of placeholders.
    fn run_with_placeholder(
        &self,
        (namespace, name): &ObjectKey,
        pod: &OfRun<PlaceholderPod>,
    ) -> Option<RunKey> {
        let run = run_of(namespace, pod).and_then(|run| self.runs.get(&run)?.key());
        run.filter(|run| run.placeholder().pod() == *name)
    }

    /// The time until the next comparison.
    fn pause(&self, now: Timestamp) -> Duration {
        let kept_nodes = self.kept_nodes.read();
        let until = kept_nodes.values().filter_map(|kept| kept.until);
        let next = until.map(|until| Duration::try_from(until.duration_since(now)).unwrap_or_default());
        next.min()
            .map_or(COMPARED_EVERY, |next| next.clamp(SHORTEST_PAUSE, COMPARED_EVERY))
    }
}

/// Until when the run records that its node is kept.
fn recorded(run: &PipelineRun) -> Option<Timestamp> {
    run.metadata
        .annotations
        .as_ref()?
        .get(keys::KEPT_UNTIL)?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests;
