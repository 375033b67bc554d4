//! Reads the groups of inputs from the API server: the caches may be stale, and they keep only a part of each object.

use crate::api_error::StepError;
use crate::foreign_events::OVER_QUOTA;
use crate::lists;
use crate::nodes::WatchedNode;
use crate::pods::{self, PodView};
use crate::write::{Cluster, with_timeout};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Resource;
use kube::api::{Api, ListParams};
use placement::keys;
use placement::mounts::{Claim, needs_volume};
use placement::node::{self, NodeState};
use placement::plan::{AssistantPod, Observation, PlaceholderPod};
use placement::quota_room::RejectedTask;
use placement::requests::Operation;
use placement::run::Run;
use placement::volume::{NodeNames, is_only_on, pin, required};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use tekton::PipelineRun;
use tekton::tasks::TaskRun;

/// The most PVCs that one decision reads, so that a run with many PVCs delays no other run.
const MOST_CLAIMS: usize = 64;

/// The run's task pods, counted at the API server, and the placeholder's node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskPods {
    /// Names of the live pods on the placeholder's node, or on any node if the placeholder has no node.
    pub(crate) live: Vec<String>,
    /// When the last of the ended pods ended.
    pub(crate) ended: Option<Timestamp>,
    /// The state of the node that the placeholder is bound to.
    pub(crate) node: NodeState,
    /// The label `kubernetes.io/hostname` of that node.
    pub(crate) hostname: Option<String>,
    /// Names of the PVCs that the pods mount or mounted.
    pub(crate) claims: BTreeSet<String>,
    /// Names of the PVCs of each pod that waits for a node.
    pub(crate) claims_of_waiting: Vec<BTreeSet<String>>,
}

impl TaskPods {
    /// Adds a pod to the count. `there` is the node of the run's placeholder.
    #[must_use]
    pub(crate) fn and(mut self, pod: &PodView, there: Option<&str>) -> Self {
        let claims: BTreeSet<_> = pod.claims().map(str::to_owned).collect();
        self.claims.extend(claims.iter().cloned());
        if pod.node().is_none() && !pod.has_ended() && !pod.is_deleting() {
            self.claims_of_waiting.push(claims);
        }
        if is_live(pod, there) {
            self.live.push(pod.metadata.name.clone().unwrap_or_default());
        }
        Self {
            ended: self.ended.max(ended(pod)),
            ..self
        }
    }
}

impl Cluster {
    /// Reads the placeholder's node, then counts the run's tasks. A decision about a move must not use stale data.
    pub(crate) async fn tasks(
        &self,
        run: &Run,
        placeholder: Option<&PlaceholderPod>,
    ) -> Result<TaskPods, StepError> {
        let node = placeholder.and_then(|pod| pod.node.as_deref());
        let tasks = self.start_count(placeholder).await?;
        let and_one = |tasks: TaskPods, pod: &PodView| tasks.and(pod, node);
        self.fold_task_pods(Operation::Count, run, tasks, and_one).await
    }

    /// Folds over the pods of the run's tasks, page by page.
    pub(crate) async fn fold_task_pods<T>(
        &self,
        operation: Operation,
        run: &Run,
        whole: T,
        and_one: impl Fn(T, &PodView) -> T,
    ) -> Result<T, StepError> {
        let pods = self.api::<PodView>(&run.key.namespace);
        let params = ListParams::default().labels(&pods::tasks_of(&run.key));
        let and_one = |whole, pod: PodView| and_one(whole, &pod);
        lists::fold(operation, &pods, params, whole, and_one).await
    }

    /// A PVC that keeps the run on this node, because no other node can use its volume.
    pub(crate) async fn pinned_by_volume(
        &self,
        run: &Run,
        tasks: &TaskPods,
        node: &str,
    ) -> Result<Option<String>, StepError> {
        let here = NodeNames {
            name: node,
            hostname: tasks.hostname.as_deref().unwrap_or(node),
        };
        let waiting = &tasks.claims_of_waiting;
        let of_all = [tasks.claims.iter().chain(&run.claims).cloned().collect()];
        let pods = if waiting.is_empty() {
            &of_all
        } else {
            waiting.as_slice()
        };
        let (mut read, mut only_here) = (BTreeSet::new(), BTreeSet::new());
        for claims in pods {
            let mut unread = claims
                .iter()
                .filter(|name| read.len() < MOST_CLAIMS && read.insert(*name));
            while claims.is_disjoint(&only_here) {
                let Some(name) = unread.next() else {
                    return Ok(None);
                };
                if self.is_only_on(&run.key.namespace, name, here).await? {
                    only_here.insert(name.clone());
                }
            }
        }
        Ok(pin(&only_here, waiting).map(str::to_owned))
    }

    /// The PVCs of the run that exist, with the node affinity of their volumes.
    pub(crate) async fn existing_claims(&self, run: &Run) -> Result<Vec<Claim>, StepError> {
        let api: Api<PersistentVolumeClaim> = self.api(&run.key.namespace);
        let mut claims = Vec::new();
        for name in &run.claims {
            let Some(claim) = with_timeout(Operation::Claims, api.get_opt(name)).await? else {
                continue;
            };
            let volume = if needs_volume(run, &claim) {
                self.volume(Operation::Claims, Some(&claim)).await?
            } else {
                None
            };
            claims.push(Claim {
                name: name.clone(),
                claim,
                required: volume.as_ref().and_then(required).cloned(),
            });
        }
        Ok(claims)
    }

    async fn is_only_on(&self, namespace: &str, claim: &str, node: NodeNames<'_>) -> Result<bool, StepError> {
        let claims: Api<PersistentVolumeClaim> = self.api(namespace);
        let claim = with_timeout(Operation::Count, claims.get_opt(claim)).await?;
        let volume = self.volume(Operation::Count, claim.as_ref()).await?;
        Ok(volume.is_some_and(|volume| is_only_on(&volume, node)))
    }

    /// The `PersistentVolume` that the PVC is bound to.
    async fn volume(
        &self,
        operation: Operation,
        claim: Option<&PersistentVolumeClaim>,
    ) -> Result<Option<PersistentVolume>, StepError> {
        let Some(name) = claim.and_then(|claim| claim.spec.as_ref()?.volume_name.as_deref()) else {
            return Ok(None);
        };
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        with_timeout(operation, volumes.get_opt(name)).await
    }

    /// The start of a count: the state of the placeholder's node, and no tasks.
    async fn start_count(&self, placeholder: Option<&PlaceholderPod>) -> Result<TaskPods, StepError> {
        let Some((pod, name)) = placeholder.and_then(|pod| Some((pod, pod.node.as_deref()?))) else {
            return Ok(TaskPods::default());
        };
        let nodes: Api<WatchedNode> = Api::all(self.client.clone());
        let found = with_timeout(Operation::Count, nodes.get_opt(name)).await?;
        let facts = found.as_ref().and_then(WatchedNode::facts);
        Ok(TaskPods {
            node: node::state(facts.as_ref(), &pod.tolerations),
            hostname: found.as_ref().and_then(WatchedNode::hostname),
            ..TaskPods::default()
        })
    }

    /// The TaskRuns of the run's group whose pod was rejected by a ResourceQuota, as their condition reports.
    pub(crate) async fn rejected_tasks(&self, run: &Run) -> Result<Vec<RejectedTask>, StepError> {
        let members = ListParams::default().labels(&format!("{}={}", keys::GROUP, run.key.uid));
        let tasks: Api<TaskRun> = self.api(&run.key.namespace);
        let rejected = |mut rejected: Vec<RejectedTask>, task: TaskRun| {
            rejected.extend(rejected_task(&task));
            rejected
        };
        lists::fold(Operation::Retry, &tasks, members, Vec::new(), rejected).await
    }

    /// The TaskRun of this name. Lists, because the controller has no right to get TaskRuns.
    pub(crate) async fn task_run(&self, namespace: &str, name: &str) -> kube::Result<Option<TaskRun>> {
        let named = ListParams::default()
            .fields(&format!("metadata.name={name}"))
            .limit(1);
        let found = self.api(namespace).list(&named).await?;
        Ok(found.items.into_iter().next())
    }

    /// The run's labels whose keys are in `placeholder-copied-labels`. The cache does not keep all labels.
    pub(crate) async fn copied_labels(
        &self,
        observed: &Observation,
    ) -> Result<BTreeMap<String, String>, StepError> {
        let (run, namespace) = (&observed.run, &observed.run.key.namespace);
        let run: Option<PipelineRun> = named(Operation::Labels, &self.api(namespace), run).await?;
        let mut labels = run.and_then(|run| run.metadata.labels).unwrap_or_default();
        labels.retain(|key, _| observed.config.placeholder_copied_labels.contains(key));
        Ok(labels)
    }

    /// The run's affinity assistants. Sends no request if no assistant can keep the run from its next node: the run never gave up a
    /// node, and no task waits, or Tekton creates no assistants for the run.
    pub(crate) async fn assistants(&self, observed: &Observation) -> Result<Vec<AssistantPod>, StepError> {
        let set = observed.statefulset.as_ref();
        let gave_up_node = set.is_some_and(|set| set.spec.node_given_up().is_some());
        let keep_tasks_waiting =
            !observed.waiting.is_empty() && observed.run.assistants(observed.cluster.coschedule) > 0;
        if !gave_up_node && !keep_tasks_waiting {
            return Ok(Vec::new());
        }
        let key = &observed.run.key;
        let own = ListParams::default().labels(&pods::assistants_of(key));
        let pods = self.api::<PodView>(&key.namespace);
        let assistants = |mut assistants: Vec<AssistantPod>, pod: PodView| {
            assistants.extend(assistant(&pod));
            assistants
        };
        lists::fold(Operation::Assistants, &pods, own, Vec::new(), assistants).await
    }
}

fn rejected_task(task: &TaskRun) -> Option<RejectedTask> {
    Some(RejectedTask {
        name: task.metadata.name.clone()?,
        message: task.message_with_reason(OVER_QUOTA)?.to_owned(),
    })
}

/// Counts only pods on the placeholder's node. The scheduler ignores pods on a deleted node, so that the run's next pod may be on
/// another node.
fn is_live(pod: &PodView, there: Option<&str>) -> bool {
    let is_there = |node| there.is_none_or(|there| there == node);
    pod.node().is_some_and(is_there) && !pod.has_ended()
}

fn ended(pod: &PodView) -> Option<Timestamp> {
    pod.ends().flatten().max().filter(|_| pod.has_ended())
}

/// The objects with this name: one at most in a namespace.
pub(crate) async fn all_named<K>(operation: Operation, runs: &Api<K>, name: &str) -> Result<Vec<K>, StepError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let named = ListParams::default().fields(&format!("metadata.name={name}"));
    Ok(with_timeout(operation, runs.list(&named)).await?.items)
}

/// The run in any view; `None` if the run was deleted. A run with the same name and another UID is a different run. Lists the run by
/// name, because the controller has the right to list for its watch, but needs no right to get.
pub(crate) async fn named<K>(operation: Operation, runs: &Api<K>, run: &Run) -> Result<Option<K>, StepError>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let found = all_named(operation, runs, &run.key.name).await?;
    let is_it = |it: &K| it.meta().uid.as_deref() == Some(&run.key.uid);
    Ok(found.into_iter().find(is_it))
}

/// While an assistant is on the old node, the scheduler places the tasks on that node: see `placement::admission::pod`.
fn assistant(pod: &PodView) -> Option<AssistantPod> {
    Some(AssistantPod {
        name: pod.metadata.name.clone()?,
        uid: pod.metadata.uid.clone()?,
        node: pod.node().map(str::to_owned),
    })
}

#[cfg(test)]
mod tests;
