//! Observes a run: combines the caches, the memory, the configuration and the time. Sends no request.
//!
//! Only this module reads a clock for decisions: the API server's clock, which also sets the times in objects.

use crate::api_error::{Failure, StepError};
use crate::foreign_events::{self, Events};
use crate::index::Index;
use crate::nodes::Nodes;
use crate::placeholders::{ObjectKey, OfRun, run_of};
use crate::quotas::{Quotas, cross_namespace_quota};
use crate::waiting_pods::{PodKey, WaitingPods, waiting_in};
use jiff::Timestamp;
use kube::runtime::reflector::{ObjectRef, Store};
use placement::attempts::Turn;
use placement::automatic_reserve::{self, ExpectedRequests, Source};
use placement::config::Config;
use placement::keys;
use placement::names::RunKey;
use placement::node::{self, NodeFacts, NodeState};
use placement::plan::{Observation, Placeholder, PlaceholderPod, Repeated, Resize, WaitingPod};
use placement::requests::Operation;
use placement::run::Run;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tekton::{PipelineRun, Volumes};
use tokio::sync::watch;
use tokio::time::timeout;

/// How long a run waits for the first lists of the caches. After this time its reconciliation fails, so that the other runs in
/// the queue get their turn.
const SYNC_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the current time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The caches that the watches fill.
#[derive(Clone, Debug)]
pub(crate) struct Stores {
    pub(crate) runs: Store<PipelineRun>,
    pub(crate) sets: Index<ObjectKey, OfRun<Placeholder>>,
    pub(crate) pods: Index<ObjectKey, OfRun<PlaceholderPod>>,
    pub(crate) nodes: Nodes,
    pub(crate) waiting: WaitingPods,
    pub(crate) quotas: Quotas,
    /// About placeholders without a pod.
    pub(crate) failed_creates: Events,
    /// About unschedulable placeholders.
    pub(crate) autoscalers: Events,
    /// About tasks whose pod a quota rejected.
    pub(crate) rejected_tasks: Events,
}

/// The controller's memory.
pub(crate) trait Recall {
    /// The memory of a run with this placeholder.
    fn recall(
        &self,
        run: &Run,
        set: Option<&Placeholder>,
        pod: Option<&PlaceholderPod>,
        now: Timestamp,
    ) -> Remembered;
}

/// The part of a run's memory that an observation uses.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    pub(crate) moves: Repeated,
    pub(crate) yields: Repeated,
    pub(crate) retries: Repeated,
    pub(crate) relaxed: bool,
    pub(crate) settled_refusal: Option<String>,
    pub(crate) invalid_template: Option<String>,
    pub(crate) requeue_in: Duration,
    pub(crate) resize: Option<(String, Resize)>,
}

impl Stores {
    /// Reads the caches after their first lists. Before, an existing placeholder could be missing from its cache.
    pub(crate) async fn observe(
        &self,
        run: Run,
        config: &watch::Receiver<Arc<Config>>,
        clock: &Clock,
        memory: &impl Recall,
    ) -> Result<Observation, StepError> {
        let synced = timeout(SYNC_TIMEOUT, self.are_filled()).await;
        if synced != Ok(true) {
            return Err(StepError {
                operation: Operation::Sync,
                fault: Failure::NotSynced,
            });
        }
        Ok(self.read(run, config.borrow().clone(), clock(), memory))
    }

    /// Does not wait for the lists of events and quotas: an older `ClusterRole` may lack these rights, and no decision depends on a
    /// single event.
    async fn are_filled(&self) -> bool {
        self.sets.is_filled().await
            && self.pods.is_filled().await
            && self.nodes.is_filled().await
            && self.waiting.is_filled().await
    }

    fn read(&self, run: Run, config: Arc<Config>, now: Timestamp, memory: &impl Recall) -> Observation {
        let (set, mut pod) = (self.set(&run.key), self.pod(&run.key));
        let memory = memory.recall(&run, set.as_ref(), pod.as_ref(), now);
        if let (Some(pod), Some((uid, resize))) = (pod.as_mut(), memory.resize)
            && pod.uid == uid
        {
            pod.shape.resize = pod.shape.resize.max(resize);
        }
        let is_big = |pod: &PlaceholderPod| pod.unschedulable.is_some() && pod.shape.reserves;
        let is_open = |refusal: &String| memory.settled_refusal.as_ref() != Some(refusal);
        Observation {
            node: self.state_of_node(pod.as_ref()),
            nodes: if pod.as_ref().is_some_and(is_big) {
                self.all_nodes()
            } else {
                Vec::new()
            },
            waiting: self.waiting_pods(&run.key, pod.as_ref()),
            relaxed: memory.relaxed,
            moves: memory.moves,
            yields: memory.yields,
            retries: memory.retries,
            rejection: self.rejected_task(&run.key).filter(is_open),
            requeue_in: memory.requeue_in,
            turn: Turn::Now,
            invalid_template: memory.invalid_template,
            cross_namespace_quota: cross_namespace_quota(&self.quotas, &run.key.namespace),
            failed_create: set.as_ref().and_then(|set| self.failed_create(&run.key, set)),
            autoscaler: pod.as_ref().and_then(|pod| self.autoscaler(&run.key, pod)),
            now,
            config,
            run,
            statefulset: set,
            pod,
        }
    }

    fn set(&self, run: &RunKey) -> Option<Placeholder> {
        let key = (run.namespace.clone(), run.placeholder().as_str().to_owned());
        self.sets.read().get(&key).map(|set| set.it.clone())
    }

    fn pod(&self, run: &RunKey) -> Option<PlaceholderPod> {
        let key = (run.namespace.clone(), run.placeholder().pod());
        self.pods.read().get(&key).map(|pod| pod.it.clone())
    }

    fn rejected_task(&self, run: &RunKey) -> Option<String> {
        foreign_events::latest_of_tasks(&self.rejected_tasks, &run.namespace, &run.name)
    }

    fn failed_create(&self, run: &RunKey, set: &Placeholder) -> Option<String> {
        let name = run.placeholder();
        foreign_events::latest(&self.failed_creates, &run.namespace, name.as_str(), &set.uid)
    }

    fn autoscaler(&self, run: &RunKey, pod: &PlaceholderPod) -> Option<String> {
        let name = run.placeholder().pod();
        foreign_events::latest(&self.autoscalers, &run.namespace, &name, &pod.uid)
    }

    fn waiting_pods(&self, run: &RunKey, placeholder: Option<&PlaceholderPod>) -> Vec<WaitingPod> {
        let nodes = self.nodes.read();
        let node = placeholder.and_then(|pod| nodes.get(pod.node.as_ref()?));
        let waiting = waiting_in(&self.waiting, run).into_iter();
        waiting.map(|pod| pod.beside(node)).collect()
    }

    fn state_of_node(&self, pod: Option<&PlaceholderPod>) -> NodeState {
        match pod.map(|pod| (pod, pod.node.as_ref())) {
            Some((pod, Some(name))) => node::state(self.nodes.read().get(name), &pod.tolerations),
            Some((_, None)) | None => NodeState::Unknown,
        }
    }

    /// All nodes of the cluster.
    pub(crate) fn all_nodes(&self) -> Vec<NodeFacts> {
        self.nodes.read().values().cloned().collect()
    }

    /// The run of a pod's group. Tekton may have created the pod for a nested run of this run.
    pub(crate) fn run_of_pod(&self, key: &PodKey, pod: &OfRun<WaitingPod>) -> Option<ObjectRef<PipelineRun>> {
        let is_it = |run: &PipelineRun| run.metadata.uid.as_deref() == Some(key.group.as_str());
        let named = run_of(&key.namespace, pod);
        let named = named.filter(|run| self.runs.get(run).is_some_and(|run| is_it(&run)));
        named.or_else(|| Some(ObjectRef::from_obj(&*self.runs.find(is_it)?)))
    }

    /// The recorded need of the latest run in this namespace that has the same Pipeline and a record.
    pub(crate) fn need(&self, run: &Run) -> Option<ExpectedRequests> {
        let pipeline = run.pipeline?;
        let runs = self.runs.state();
        let alike = runs.iter().filter(|it| it.spec.pipeline == Some(pipeline));
        let alike = alike.filter(|it| it.metadata.namespace.as_ref() == Some(&run.key.namespace));
        let recorded = alike.filter_map(|it| {
            let asks = automatic_reserve::parse_record(it.metadata.annotations.as_ref()?.get(keys::USED)?)?;
            Some((
                it.metadata.creation_timestamp.as_ref(),
                it.metadata.name.clone()?,
                asks,
            ))
        });
        let latest = recorded.max_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
        let (_, name, asks) = latest?;
        Some(ExpectedRequests {
            requests: asks,
            source: Source::Record(name),
        })
    }

    /// The other held or enrolled runs of the namespace that are not done and for which Tekton creates StatefulSets.
    pub(crate) fn with_assistants(&self, run: &RunKey) -> Vec<Run> {
        let runs = self.runs.state();
        let here = runs
            .iter()
            .filter(|it| it.metadata.namespace.as_ref() == Some(&run.namespace));
        let here = here.filter(|it| it.spec.volumes != Volumes::default());
        let ours = |it: &Run| it.is_held_by_us() || it.is_enrolled();
        let is_it = |it: &Run| ours(it) && !it.done && it.key.uid != run.uid;
        here.filter_map(|it| it.run()).filter(is_it).collect()
    }

    /// The run of a placeholder.
    pub(crate) fn run_of_placeholder(&self, namespace: &str, name: &str) -> Option<ObjectRef<PipelineRun>> {
        let key = (namespace.to_owned(), name.to_owned());
        run_of(namespace, self.sets.read().get(&key)?)
    }

    /// The runs of this namespace that have placeholders.
    pub(crate) fn runs_in(&self, namespace: &str) -> Vec<ObjectRef<PipelineRun>> {
        let from = (namespace.to_owned(), String::new());
        let sets = self.sets.read();
        let here = sets
            .range(&from..)
            .take_while(|((found, _), _)| found == namespace);
        here.filter_map(|(_, set)| run_of(namespace, set)).collect()
    }

    /// The runs whose placeholders are on one of these nodes.
    pub(crate) fn runs_on(&self, nodes: &BTreeSet<String>) -> Vec<ObjectRef<PipelineRun>> {
        let is_there = |pod: &PlaceholderPod| pod.node.as_ref().is_some_and(|node| nodes.contains(node));
        if nodes.is_empty() {
            return Vec::new();
        }
        let pods = self.pods.read();
        let there = pods.iter().filter(|(_, pod)| is_there(&pod.it));
        there
            .filter_map(|((namespace, _), pod)| run_of(namespace, pod))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Caches, at, clock, run, view};
    use crate::memory::Memory;
    use serde_json::{Value, json};

    #[tokio::test]
    async fn a_runs_placeholder_and_pod_are_found_by_name_in_its_namespace() {
        let mut caches = Caches::ready();
        caches.add_set(&run(), "s1");
        caches.add_pod(&run(), "p1", Some("n1"));
        let observed = caches
            .stores
            .observe(run(), &caches.config, &clock(), &Memory::default())
            .await
            .unwrap();
        assert_eq!(observed.statefulset.map(|set| set.uid).as_deref(), Some("s1"));
        assert_eq!(observed.pod.unwrap().node.as_deref(), Some("n1"));
    }

    #[test]
    fn a_run_needs_the_usage_of_the_latest_run_of_its_pipeline_in_its_namespace() {
        let mut caches = Caches::ready();
        let record = |uid: &str, second: i64, used: &str, pipeline: &str, namespace: &str| {
            let metadata = json!({
                "namespace": namespace, "creationTimestamp": at(second).to_string(), "annotations": {keys::USED: used},
            });
            (
                uid.to_owned(),
                json!({"metadata": metadata, "spec": {"pipelineRef": {"name": pipeline}}}),
            )
        };
        for (uid, changes) in [
            record("old", 1, "cpu=9", "build", "ns"),
            record("latest", 5, "cpu=4", "build", "ns"),
            record("odd", 7, "lots", "build", "ns"),
            record("of-other", 8, "cpu=7", "test", "ns"),
            record("elsewhere", 9, "cpu=8", "build", "other"),
        ] {
            caches.add_held_run_with(&uid, &uid, &changes);
        }
        let run = |pipeline: &str| {
            let spec = json!({"spec": {"pipelineRef": {"name": pipeline}}});
            view("next", "u9", &spec).run().unwrap()
        };
        let need = caches.stores.need(&run("build")).unwrap();
        assert_eq!(need.source, Source::Record("latest".to_owned()));
        assert_eq!(need.requests.to_string(), "cpu=4");
        assert_eq!(caches.stores.need(&run("unknown")), None);
    }

    #[test]
    fn others_of_the_namespace_have_a_part_in_its_places_if_they_are_ours_and_have_volumes() {
        let mut caches = Caches::ready();
        let claim = json!({"spec": {"workspaces": [{"persistentVolumeClaim": {"claimName": "c"}}]}});
        let with = |mut changes: Value| {
            json_patch::merge(&mut changes, &claim);
            changes
        };
        let over = json!({"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}});
        let elsewhere = json!({"metadata": {"namespace": "other"}});
        let not_ours = json!({"metadata": {"annotations": null}});
        caches.add_held_run_with("counts", "u2", &claim);
        caches.add_held_run_with("mounts-nothing", "u3", &json!({}));
        for (uid, changes) in [
            ("u4", over),
            ("u5", elsewhere),
            ("u6", not_ours),
            ("u1", json!({})),
        ] {
            caches.add_held_run_with(uid, uid, &with(changes));
        }
        let others = caches.stores.with_assistants(&run().key);
        let names: Vec<_> = others.iter().map(|other| other.key.name.as_str()).collect();
        assert_eq!(names, ["counts"]);
    }

    #[tokio::test]
    async fn a_run_of_the_same_name_in_another_namespace_or_life_sees_neither() {
        let mut caches = Caches::ready();
        caches.add_set(&run(), "s1");
        let (mut elsewhere, mut recreated) = (run(), run());
        elsewhere.key.namespace = "other".into();
        recreated.key.uid = "u2".into();
        for other in [elsewhere, recreated] {
            let observed = caches
                .stores
                .observe(other.clone(), &caches.config, &clock(), &Memory::default())
                .await
                .unwrap();
            assert!(
                observed.statefulset.is_none() && observed.pod.is_none(),
                "{other:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_decided_before_the_first_lists_are_in() {
        let (empty, ready) = (Caches::empty(), Caches::ready());
        let lacks = |lack: fn(&mut Stores, Stores)| {
            let mut stores = ready.stores.clone();
            lack(&mut stores, empty.stores.clone());
            stores
        };
        let lacking = [
            ("sets", lacks(|stores, empty| stores.sets = empty.sets)),
            ("pods", lacks(|stores, empty| stores.pods = empty.pods)),
            ("nodes", lacks(|stores, empty| stores.nodes = empty.nodes)),
            ("waiting", lacks(|stores, empty| stores.waiting = empty.waiting)),
        ];
        for (list, stores) in lacking {
            let memory = Memory::default();
            let observed = stores.observe(run(), &ready.config, &clock(), &memory).await;
            let cause = observed.err().map(|refused| <&str>::from(refused.cause()));
            assert_eq!(cause, Some("not_synced"), "{list}");
        }
    }

    #[tokio::test]
    async fn the_configuration_is_the_one_in_force_now() {
        let caches = Caches::ready();
        let changed = Config {
            placeholder_cpu: "1".into(),
            ..Config::default()
        };
        caches.set_config(changed.clone());
        let observed = caches
            .stores
            .observe(run(), &caches.config, &clock(), &Memory::default())
            .await
            .unwrap();
        assert_eq!(*observed.config, changed);
    }
}
