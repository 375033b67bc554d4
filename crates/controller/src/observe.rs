//! Observes a run: combines the caches, the memory, the configuration and the time. Sends no request.
//!
//! Only this module reads a clock for decisions: the API server's clock, which also sets the times in objects.

use crate::api_error::{Failure, StepError};
use crate::foreign_events::{self, Events, latest, latest_of_tasks};
use crate::index::Index;
use crate::nodes::Nodes;
use crate::placeholders::{ObjectKey, OfRun, run_of};
use crate::quotas::{Quotas, terms_rejected};
use crate::tekton_flags::{TektonFlags, coschedule};
use crate::waiting_pods::{OfGroup, WaitingPods, waiting_in};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::runtime::reflector::{ObjectRef, Store};
use placement::attempts::Turn;
use placement::automatic_reserve::{self, ExpectedRequests, Source};
use placement::config::Config;
use placement::coschedule::Coschedule;
use placement::kept_node::KeptNode;
use placement::keys;
use placement::messages::lacks_quota_of_terms;
use placement::names::RunKey;
use placement::node::{self, NodeFacts, NodeState};
use placement::plan::{
    ClusterFacts, Messages, Observation, Placeholder, PlaceholderPod, RepeatedSteps, Resize, WaitingPod,
};
use placement::queue::possible_nodes;
use placement::requests::Operation;
use placement::run::Run;
use placement::strategy::Scope;
use placement::warm::WarmNodes;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tekton::{Outcome, PipelineRun, Volumes};
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
    pub(crate) tekton_flags: TektonFlags,
    /// About placeholders without a pod.
    pub(crate) failed_creates: Events,
    /// About unschedulable placeholders.
    pub(crate) autoscalers: Events,
    /// About tasks whose pod a quota rejected.
    pub(crate) rejected_tasks: Events,
    /// The pods that keep nodes after runs, by name.
    pub(crate) kept_nodes: Index<String, KeptNode>,
}

/// The controller's memory.
pub(crate) trait Recall {
    /// The memory of a run with this placeholder, and the pause before its StatefulSet is requeued.
    fn recall(
        &self,
        run: &Run,
        set: Option<&Placeholder>,
        pod: Option<&PlaceholderPod>,
        now: Timestamp,
    ) -> (Remembered, Duration);
}

/// The part of a run's memory that an observation uses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remembered {
    pub(crate) repeated: RepeatedSteps,
    /// The controller observed a pod of the group that has the annotation for relaxed affinity.
    pub(crate) relaxed: bool,
    /// The last rejection by a quota that was handled, or that concerned another run.
    pub(crate) settled_rejection: Option<String>,
    /// The API server rejected the placeholder because of the run's podTemplate, with this message.
    pub(crate) invalid_template: Option<String>,
    /// UID of the placeholder's pod that was resized, and the answer of the API server.
    pub(crate) resize: Option<(String, Resize)>,
    /// Since when the controller makes room in a quota for the run.
    pub(crate) makes_room_since: Option<Timestamp>,
    /// UID of the placeholder that the controller deleted last. The cache may still have the placeholder.
    pub(crate) deleted: Option<String>,
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

    /// Does not wait for the lists of other events: no decision depends on a single event. If another list fails, as with an older
    /// `ClusterRole`, a new leader decides without the list. Without the answers of autoscalers, a new leader would end each line of
    /// waiting runs; without rejections, runs of a namespace would not wait for each other; without quotas, a run could get terms that
    /// its quota rejects; and without Tekton's flags, a run could wait for the room of StatefulSets that Tekton never creates.
    async fn are_filled(&self) -> bool {
        self.sets.is_filled().await
            && self.pods.is_filled().await
            && self.nodes.is_filled().await
            && self.waiting.is_filled().await
            && self.autoscalers.is_tried().await
            && self.failed_creates.is_tried().await
            && self.quotas.is_tried().await
            && self.tekton_flags.is_tried().await
    }

    fn read(&self, run: Run, config: Arc<Config>, now: Timestamp, memory: &impl Recall) -> Observation {
        let (mut set, mut pod) = (self.set(&run.key), self.pod(&run.key));
        let (memory, requeue_in) = memory.recall(&run, set.as_ref(), pod.as_ref(), now);
        if let Some(set) = set
            .as_mut()
            .filter(|set| memory.deleted.as_ref() == Some(&set.uid))
        {
            set.deleting = true;
        }
        if let (Some(pod), Some((uid, resize))) = (pod.as_mut(), &memory.resize)
            && pod.uid == *uid
        {
            pod.shape.resize = pod.shape.resize.max(*resize);
        }
        Observation {
            node: self.state_of_node(pod.as_ref()),
            waiting: self.waiting_pods(&run.key, pod.as_ref()),
            relaxed: memory.relaxed,
            messages: self.messages(&run.key, set.as_ref(), pod.as_ref(), &memory),
            cluster: self.cluster_facts(&run, pod.as_ref()),
            makes_room_since: memory.makes_room_since,
            repeated: memory.repeated,
            requeue_in,
            turn: Turn::Now,
            now,
            config,
            run,
            statefulset: set,
            pod,
        }
    }

    fn messages(
        &self,
        run: &RunKey,
        set: Option<&Placeholder>,
        pod: Option<&PlaceholderPod>,
        memory: &Remembered,
    ) -> Messages {
        let placeholder = run.placeholder();
        let latest = |events, name: &str, uid: &str| latest(events, &run.namespace, name, uid);
        let is_open = |rejection: &String| memory.settled_rejection.as_ref() != Some(rejection);
        Messages {
            failed_create: set.and_then(|set| latest(&self.failed_creates, placeholder.as_str(), &set.uid)),
            autoscaler: pod.and_then(|pod| latest(&self.autoscalers, &placeholder.pod(), &pod.uid)),
            invalid_template: memory.invalid_template.clone(),
            rejection: set
                .and_then(|_| latest_of_tasks(&self.rejected_tasks, &run.namespace, &run.name))
                .filter(is_open),
        }
    }

    /// Reads nodes and names only for a run whose decision needs them.
    fn cluster_facts(&self, run: &Run, pod: Option<&PlaceholderPod>) -> ClusterFacts {
        let nodes = pod.is_some_and(PlaceholderPod::lacks_node_for_reserve);
        let nodes = nodes.then(|| self.all_nodes());
        let kept_nodes = run.done.then(|| self.kept_nodes.read().keys().cloned().collect());
        let namespace = &run.key.namespace;
        let is_of_run = |kept: &KeptNode| kept.run.as_ref() == Some(&run.key.uid);
        let keeps_node = run.done && self.kept_nodes.read().values().any(is_of_run);
        ClusterFacts {
            nodes: nodes.unwrap_or_default(),
            kept_nodes: kept_nodes.unwrap_or_default(),
            keeps_node,
            terms_rejected: terms_rejected(&self.quotas, namespace, || {
                // A run with a pod keeps its isolation, and a done run needs none.
                !run.done
                    && pod.is_none()
                    && foreign_events::any(&self.failed_creates, namespace, lacks_quota_of_terms)
            }),
            coschedule: coschedule(&self.tekton_flags),
        }
    }

    /// All labelled runs that are not done.
    pub(crate) fn active(
        &self,
        config: &watch::Receiver<Arc<Config>>,
        clock: &Clock,
        memory: &impl Recall,
    ) -> Vec<Observation> {
        let labelled = self.runs.state_filter(is_labelled);
        let runs = labelled.iter().filter_map(|run| run.run());
        let active = runs.filter(|run| !run.done);
        active
            .map(|run| self.read(run, config.borrow().clone(), clock(), memory))
            .collect()
    }

    /// The runs with the opt-in label in the store, which drops the labels of runs that are done.
    pub(crate) fn labelled_runs(&self) -> Vec<ObjectRef<PipelineRun>> {
        let labelled = self.runs.state_filter(is_labelled);
        labelled.iter().map(|run| ObjectRef::from_obj(&**run)).collect()
    }

    /// Whether the store still has this run. A run with the same name and another UID is a different run.
    pub(crate) fn has_run(&self, run: &PipelineRun) -> bool {
        let found = self.runs.get(&ObjectRef::from_obj(run));
        found.is_some_and(|found| found.metadata.uid == run.metadata.uid)
    }

    /// The nodes that are possible for the run, and on which no placeholder keeps the run away.
    pub(crate) fn free_nodes(&self, observed: &Observation) -> Vec<Arc<NodeFacts>> {
        let (run, isolation) = (&observed.run, observed.enrolment().isolation);
        let pods = self.pods.read();
        let keeps_away = |((namespace, _), pod): &(&ObjectKey, &OfRun<PlaceholderPod>)| {
            let reaches = isolation.scope == Scope::Cluster || *namespace == run.key.namespace;
            pod.it.node.is_some() && !pod.it.ending && reaches
        };
        let taken = pods.iter().filter(keeps_away);
        let taken: BTreeSet<_> = taken.filter_map(|(_, pod)| pod.it.node.as_deref()).collect();
        let nodes = self.nodes.read();
        let is_possible = possible_nodes(run, &observed.config);
        let is_free = |node: &&Arc<NodeFacts>| !taken.contains(node.name.as_str()) && is_possible(node);
        nodes.values().filter(is_free).cloned().collect()
    }

    fn set(&self, run: &RunKey) -> Option<Placeholder> {
        let key = (run.namespace.clone(), run.placeholder().as_str().to_owned());
        self.sets.read().get(&key).map(|set| set.it.clone())
    }

    fn pod(&self, run: &RunKey) -> Option<PlaceholderPod> {
        let key = (run.namespace.clone(), run.placeholder().pod());
        self.pods.read().get(&key).map(|pod| pod.it.clone())
    }

    fn waiting_pods(&self, run: &RunKey, placeholder: Option<&PlaceholderPod>) -> Vec<WaitingPod> {
        let nodes = self.nodes.read();
        let node = placeholder.and_then(|pod| nodes.get(pod.node.as_ref()?));
        let waiting = waiting_in(&self.waiting, run).into_iter();
        waiting.map(|pod| pod.beside(node.map(Arc::as_ref))).collect()
    }

    fn state_of_node(&self, pod: Option<&PlaceholderPod>) -> NodeState {
        match pod.map(|pod| (pod, pod.node.as_ref())) {
            Some((pod, Some(name))) => {
                node::state(self.nodes.read().get(name).map(Arc::as_ref), &pod.tolerations)
            }
            Some((_, None)) | None => NodeState::Unknown,
        }
    }

    /// All nodes of the cluster.
    pub(crate) fn all_nodes(&self) -> Vec<Arc<NodeFacts>> {
        self.nodes.read().values().cloned().collect()
    }

    /// The run of a pod's group. Tekton may have created the pod for a nested run of this run.
    pub(crate) fn run_of_pod(&self, namespace: &str, waiting: &OfGroup) -> Option<ObjectRef<PipelineRun>> {
        let is_it = |run: &PipelineRun| {
            run.metadata.uid.as_deref() == Some(waiting.group.as_str())
                && run.metadata.namespace.as_deref() == Some(namespace)
        };
        let named = run_of(namespace, &waiting.pod);
        let named = named.filter(|run| self.runs.get(run).is_some_and(|run| is_it(&run)));
        named.or_else(|| Some(ObjectRef::from_obj(&*self.runs.find(is_it)?)))
    }

    /// The recorded need of the latest run in this namespace that has the same Pipeline and a record.
    pub(crate) fn need(&self, run: &Run) -> Option<ExpectedRequests> {
        let has_record = |it: &PipelineRun| annotation(it, keys::USED).is_some();
        self.earlier_runs(run, has_record).iter().find_map(|it| {
            let record = annotation(it, keys::USED)?;
            Some(ExpectedRequests {
                requests: automatic_reserve::parse_record(record)?,
                source: Source::Record(it.metadata.name.clone()?),
            })
        })
    }

    /// The nodes of the latest successful runs in this namespace that have the same Pipeline.
    pub(crate) fn warm_nodes(&self, run: &Run) -> WarmNodes {
        let has_node = |it: &PipelineRun| {
            it.status.outcome == Outcome::Succeeded && annotation(it, keys::NODE).is_some()
        };
        let runs = self.earlier_runs(run, has_node);
        let nodes = runs.iter().filter_map(|it| annotation(it, keys::NODE));
        WarmNodes::of_runs(nodes.cloned())
    }

    /// The runs in this namespace that have the same Pipeline and are wanted, the latest first.
    fn earlier_runs(&self, run: &Run, is_wanted: impl Fn(&PipelineRun) -> bool) -> Vec<Arc<PipelineRun>> {
        let is_alike = |it: &PipelineRun| {
            it.spec.pipeline.is_some()
                && it.spec.pipeline == run.pipeline
                && it.metadata.namespace.as_ref() == Some(&run.key.namespace)
                && is_wanted(it)
        };
        let mut runs = self.runs.state_filter(is_alike);
        runs.sort_by(|one, other| age_and_name(other).cmp(&age_and_name(one)));
        runs
    }

    /// The other runs of the namespace that have a part in its quotas.
    pub(crate) fn with_part_in_quotas(&self, run: &RunKey) -> Vec<Run> {
        let others = self.others_in_namespace(run);
        let others = others.iter().filter_map(|other| other.run());
        others.filter(Run::has_part_in_quotas).collect()
    }

    /// Whether Tekton creates StatefulSets for another run of the namespace that has a part in its quotas.
    pub(crate) fn has_assistants_beside(&self, run: &RunKey, coschedule: Coschedule) -> bool {
        let others = self.others_in_namespace(run);
        let has_assistants =
            |other: &&Arc<PipelineRun>| coschedule.places_pods() || other.spec.volumes != Volumes::default();
        let others = others.iter().filter(has_assistants);
        let mut others = others.filter_map(|other| other.run());
        others.any(|other| other.has_part_in_quotas())
    }

    fn others_in_namespace(&self, run: &RunKey) -> Vec<Arc<PipelineRun>> {
        let is_here = |other: &PipelineRun| other.metadata.namespace.as_ref() == Some(&run.namespace);
        let is_other = |other: &PipelineRun| other.metadata.uid.as_ref() != Some(&run.uid);
        self.runs.state_filter(|other| is_here(other) && is_other(other))
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

fn is_labelled(run: &PipelineRun) -> bool {
    let mut labels = run.metadata.labels.iter().flatten();
    labels.any(|(key, _)| key == keys::OPT_IN)
}

fn annotation<'a>(run: &'a PipelineRun, key: &str) -> Option<&'a String> {
    run.metadata.annotations.as_ref()?.get(key)
}

fn age_and_name(run: &PipelineRun) -> (Option<&Time>, Option<&str>) {
    (
        run.metadata.creation_timestamp.as_ref(),
        run.metadata.name.as_deref(),
    )
}

#[cfg(test)]
mod tests;
