//! What is known of a run at one moment: the caches, the configuration and the clock. No API call.
//!
//! The only place in this crate that reads the clock for a decision.

use crate::around::{Nodes, WaitingPods};
use crate::cache::Cache;
use crate::memory::Known;
use crate::refusal::{Fault, Refused, Step};
use crate::view::{PlaceholderPod, PlaceholderSet};
use jiff::Timestamp;
use kube::runtime::reflector::ObjectRef;
use placement::config::Config;
use placement::node::{self, NodeFacts, NodeState};
use placement::plan::{self, Census, LetGos, Observed, Resize, Surroundings, WaitingPod};
use placement::run::Run;
use std::sync::Arc;
use std::time::Duration;
use tekton::PipelineRun;
use tokio::sync::watch;
use tokio::time::timeout;

/// How long a decision waits for the first lists before it gives way to the others in the queue.
const PATIENCE: Duration = Duration::from_secs(10);

/// The caches that the watches keep.
#[derive(Clone, Debug)]
pub(crate) struct Stores {
    pub(crate) runs: Cache<PipelineRun>,
    pub(crate) sets: Cache<PlaceholderSet>,
    pub(crate) pods: Cache<PlaceholderPod>,
    pub(crate) nodes: Nodes,
    pub(crate) waiting: WaitingPods,
}

/// A run's surroundings at one moment.
pub(crate) struct Seen {
    pub(crate) now: Timestamp,
    pub(crate) config: Arc<Config>,
    pub(crate) set: Option<plan::Placeholder>,
    /// The StatefulSet's controller has tried to make the pod.
    pub(crate) taken_up: bool,
    pub(crate) pod: Option<plan::PlaceholderPod>,
    /// The node of that pod.
    pub(crate) node: NodeState,
    pub(crate) waiting: Vec<WaitingPod>,
    pub(crate) census: Option<Census>,
    pub(crate) let_gos: LetGos,
    /// All nodes, if a decision or its words may need them.
    pub(crate) nodes: Vec<NodeFacts>,
    /// What an autoscaler said to the placeholder when it was asked last.
    pub(crate) autoscaler: Option<String>,
}

impl Stores {
    /// Looks around. Before the first lists are in, an absent placeholder would only be an unseen one.
    pub(crate) async fn observe(
        &self,
        run: &Run,
        config: &watch::Receiver<Arc<Config>>,
    ) -> Result<Seen, Refused> {
        let synced = timeout(PATIENCE, self.are_filled()).await;
        if synced != Ok(true) {
            return Err(Refused {
                step: Step::Sync,
                fault: Fault::NotSynced,
            });
        }
        Ok(self.look(run, config.borrow().clone(), Timestamp::now()))
    }

    async fn are_filled(&self) -> bool {
        self.sets.is_filled().await
            && self.pods.is_filled().await
            && self.nodes.is_filled().await
            && self.waiting.is_filled().await
    }

    fn look(&self, run: &Run, config: Arc<Config>, now: Timestamp) -> Seen {
        let name = run.key.placeholder();
        let namespace = run.key.namespace.as_str();
        let set = self
            .sets
            .store
            .get(&ObjectRef::new(name.as_str()).within(namespace));
        let pod = self
            .pods
            .store
            .get(&ObjectRef::new(&name.pod()).within(namespace));
        let pod = pod.and_then(|pod| pod.facts(&run.key.uid));
        let compares = pod
            .as_ref()
            .is_some_and(|pod| pod.unschedulable.is_some() && pod.make.reserves);
        Seen {
            now,
            config,
            taken_up: set.as_ref().is_some_and(|set| set.is_taken_up()),
            set: set.and_then(|set| set.facts(&run.key.uid)),
            node: self.state_of_node(run, pod.as_ref()),
            waiting: self.waiting_in(&run.key),
            census: None,
            let_gos: LetGos::default(),
            nodes: if compares { self.all_nodes() } else { Vec::new() },
            autoscaler: None,
            pod,
        }
    }

    fn state_of_node(&self, run: &Run, pod: Option<&plan::PlaceholderPod>) -> NodeState {
        let Some(name) = pod.and_then(|pod| pod.node.as_ref()) else {
            return NodeState::Unknown;
        };
        node::state(self.nodes.read().get(name), &run.template.tolerations)
    }

    pub(crate) fn all_nodes(&self) -> Vec<NodeFacts> {
        self.nodes.read().values().cloned().collect()
    }
}

impl Seen {
    /// All that the plan takes.
    pub(crate) fn of<'a>(&'a self, run: &'a Run) -> Observed<'a> {
        Observed {
            run,
            placeholder: self.set.as_ref(),
            pod: self.pod.as_ref(),
            config: &self.config,
            around: Surroundings {
                node: self.node,
                waiting: &self.waiting,
                census: self.census,
                let_gos: self.let_gos,
                nodes: &self.nodes,
            },
        }
    }

    /// With what is remembered of the run.
    pub(crate) fn recall(&mut self, known: &Known) {
        self.let_gos = known.let_gos;
        self.autoscaler.clone_from(&known.autoscaler);
        let refused = |pod: &&mut plan::PlaceholderPod| known.is_resize_refused(&pod.uid);
        if let Some(pod) = self.pod.as_mut().filter(refused) {
            pod.make.resize = Resize::Refused;
        }
    }

    /// The node of the placeholder.
    pub(crate) fn node_name(&self) -> Option<&str> {
        self.pod.as_ref()?.node.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Caches, run};

    #[tokio::test]
    async fn a_runs_placeholder_and_pod_are_found_by_name_in_its_namespace() {
        let mut caches = Caches::ready();
        caches.add_set(&run(), "s1");
        caches.add_pod(&run(), "p1", Some("n1"));
        let seen = caches.stores.observe(&run(), &caches.config).await.unwrap();
        assert_eq!(seen.set.map(|set| set.uid).as_deref(), Some("s1"));
        assert_eq!(seen.pod.unwrap().node.as_deref(), Some("n1"));
    }

    #[tokio::test]
    async fn a_run_of_the_same_name_in_another_namespace_or_life_sees_neither() {
        let mut caches = Caches::ready();
        caches.add_set(&run(), "s1");
        let (mut elsewhere, mut recreated) = (run(), run());
        elsewhere.key.namespace = "other".into();
        recreated.key.uid = "u2".into();
        for other in [elsewhere, recreated] {
            let seen = caches.stores.observe(&other, &caches.config).await.unwrap();
            assert!(seen.set.is_none() && seen.pod.is_none(), "{other:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_decided_before_the_first_lists_are_in() {
        let caches = Caches::empty();
        let refused = caches.stores.observe(&run(), &caches.config).await.err().unwrap();
        assert_eq!(refused.cause().as_str(), "not_synced");
    }

    #[tokio::test]
    async fn the_configuration_is_the_one_in_force_now() {
        let caches = Caches::ready();
        let changed = Config {
            placeholder_cpu: "1".into(),
            ..Config::default()
        };
        caches.set_config(changed.clone());
        let seen = caches.stores.observe(&run(), &caches.config).await.unwrap();
        assert_eq!(*seen.config, changed);
    }
}
