//! The pods that keep nodes after runs: their watch, and their deletion.
//!
//! The kubelet ends such a pod at its time (`activeDeadlineSeconds`), also while no controller runs. The controller deletes the pod, at
//! its time or when a run uses the node.

use crate::index::Reduced;
use crate::lists;
use crate::observe::{Clock, Stores};
use crate::pods::PodView;
use crate::write::Cluster;
use futures::Stream;
use jiff::Timestamp;
use kube::runtime::watcher::{self, Config, Event};
use kube::{Api, Client};
use placement::kept_node::KeptNode;
use placement::keys;
use placement::names::RunKey;
use placement::requests::{Object, Operation, Request, Verb};
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};

/// How often the caches are compared, if no pod has its time before. This sends no request.
const COMPARED_EVERY: Duration = Duration::from_secs(5);
/// The shortest pause between two comparisons.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);

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
        after: annotation(keys::KEPT_AFTER).cloned().unwrap_or_default(),
        ended: pod.has_ended(),
    };
    Some((pod.metadata.name.clone()?, Some(kept)))
}

/// Deletes the pods whose node is not kept any longer.
pub(crate) struct KeptNodes {
    stores: Stores,
    cluster: Arc<Cluster>,
    clock: Clock,
}

impl KeptNodes {
    pub(crate) fn new(stores: Stores, cluster: Arc<Cluster>, clock: Clock) -> Self {
        Self {
            stores,
            cluster,
            clock,
        }
    }

    /// Compares the caches every few seconds.
    pub(crate) async fn run(self) {
        loop {
            self.compare().await;
            tokio::time::sleep(self.stores.pause((self.clock)())).await;
        }
    }

    pub(crate) async fn compare(&self) {
        for (name, kept) in self.stores.nodes_kept_no_longer((self.clock)()) {
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
        on_node.any(|((namespace, _), pod)| {
            let run = pod.run.as_deref().unwrap_or_default();
            kept.after != format!("{namespace}/{run}")
        })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Caches, Server, at, cluster, nothing, observed_pod, observed_set, run};
    use crate::write::Effect;
    use placement::config::Config;
    use placement::node::NodeState;
    use placement::plan::{Decision, Inputs, Observation, plan};
    use placement::run::Run;
    use serde_json::json;

    const PODS: &str = "/api/v1/namespaces/tekton-pod-affinity/pods";

    /// The lines of the requests at the end of a run whose node is kept.
    async fn at_the_end(server: &Server) -> Vec<String> {
        let config = Config {
            keep_node_for: Duration::from_mins(5),
            ..Config::default()
        };
        let done = Run { done: true, ..run() };
        let observed = Observation {
            run: done,
            config: config.into(),
            statefulset: Some(observed_set()),
            pod: Some(observed_pod(Some("n1"))),
            node: NodeState::Usable,
            ..nothing()
        };
        let Decision::Act(step) = plan(&observed, &Inputs::default()).decision else {
            panic!("nothing to do")
        };
        let effect = cluster(server).write(&observed, &step).await.unwrap();
        assert_eq!(effect, Effect::Written);
        server.calls().into_iter().map(|call| call.line).collect()
    }

    #[tokio::test]
    async fn the_pod_gets_the_first_free_name_before_the_placeholder_is_deleted() {
        let mut server = Server::start();
        server.refuse(409, "AlreadyExists", "pods \"a\" already exists");
        server.answer(201, json!({"metadata": {}}));
        server.answer(200, json!({"metadata": {}}));
        let lines = at_the_end(&server).await;
        let post = format!("POST {PODS}?");
        assert!(
            lines[0].starts_with(&post) && lines[1].starts_with(&post),
            "{lines:?}"
        );
        assert!(lines[2].starts_with("DELETE"), "{lines:?}");
    }

    #[tokio::test]
    async fn a_pod_that_cannot_be_created_does_not_stop_the_end_of_the_run() {
        let mut server = Server::start();
        server.refuse(
            403,
            "Forbidden",
            "no PriorityClass with name pod-affinity-kept-node was found",
        );
        server.answer(200, json!({"metadata": {}}));
        let lines = at_the_end(&server).await;
        assert_eq!(lines.len(), 2);
        assert!(lines[1].starts_with("DELETE"), "{lines:?}");
    }

    async fn deleted(caches: &Caches, second: i64) -> usize {
        let mut server = Server::start();
        server.answer(200, json!({"metadata": {}}));
        let kept = KeptNodes::new(
            caches.stores.clone(),
            cluster(&server),
            Arc::new(move || at(second)),
        );
        kept.compare().await;
        server.calls().len()
    }

    #[tokio::test]
    async fn a_pod_is_deleted_at_its_time_or_when_another_run_uses_the_node() {
        let mut caches = Caches::ready();
        caches.add_kept_node("kept", 10);
        caches.add_pod(&run(), "p1", Some("n1"));
        assert_eq!((deleted(&caches, 9).await, deleted(&caches, 10).await), (0, 1));
        let mut next = run();
        (next.key.name, next.key.uid) = ("next".to_owned(), "u2".to_owned());
        caches.add_pod(&next, "p2", Some("n2"));
        assert_eq!(deleted(&caches, 9).await, 0);
        caches.add_pod(&next, "p2", Some("n1"));
        assert_eq!(deleted(&caches, 9).await, 1);
    }
}
