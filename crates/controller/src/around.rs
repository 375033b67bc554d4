//! What is around runs: the nodes, and the task pods that have none yet. Neither is ours.
//!
//! Both are reduced to facts at once. Nothing is kept of a pod that is bound, so that runs that are done, or busy, weigh
//! nothing here.

use crate::mirror::Mirror;
use crate::observe::Stores;
use crate::view::{PlaceholderPod, run_of};
use crate::watched::{WatchedNode, WatchedPod};
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use placement::keys;
use placement::names::RunKey;
use placement::node::NodeFacts;
use placement::placeholder::wake::Wake;
use placement::plan::WaitingPod;
use std::collections::BTreeSet;
use tekton::PipelineRun;

/// All nodes, by name.
pub(crate) type Nodes = Mirror<String, NodeFacts>;
/// Unbound task pods, by group and name.
pub(crate) type WaitingPods = Mirror<PodKey, Waiting>;

/// A pod of a group, sorted by group. Who may make pods in one namespace has no say over the runs of another, so that
/// a group is one namespace's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodKey {
    namespace: String,
    group: String,
    name: String,
}

/// A task pod that is not bound.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Waiting {
    /// The run that Tekton made it for: of a nested run's pod not the one whose group it is in.
    run: Option<String>,
    pod: WaitingPod,
}

/// A node, reduced.
pub(crate) fn node(node: &WatchedNode) -> Option<(String, Option<NodeFacts>)> {
    let facts = node.facts()?;
    Some((facts.name.clone(), Some(facts)))
}

/// A pod of a group, reduced: it matters as long as it has no node and may still get one.
pub(crate) fn pod(pod: &WatchedPod) -> Option<(PodKey, Option<Waiting>)> {
    let key = PodKey {
        namespace: pod.metadata.namespace.clone()?,
        group: pod.labels().get(keys::GROUP)?.clone(),
        name: pod.metadata.name.clone()?,
    };
    if pod.is_bound() || pod.metadata.deletion_timestamp.is_some() {
        return Some((key, None));
    }
    let waiting = Waiting {
        run: pod.labels().get(keys::TEKTON_PIPELINE_RUN).cloned(),
        pod: WaitingPod {
            name: key.name.clone(),
            requests: pod.requests(),
            unschedulable: pod.unschedulable(),
            woken: pod.labels().get(keys::WOKEN).and_then(|label| Wake::read(label)),
        },
    };
    Some((key, Some(waiting)))
}

impl PodKey {
    fn is_beside(&self, other: &Self) -> bool {
        (&self.namespace, &self.group) == (&other.namespace, &other.group)
    }
}

impl Stores {
    /// The task pods of a run's group that wait for a node.
    pub(crate) fn waiting_in(&self, run: &RunKey) -> Vec<WaitingPod> {
        let from = PodKey {
            namespace: run.namespace.clone(),
            group: run.uid.clone(),
            name: String::new(),
        };
        let known = self.waiting.read();
        let members = known.range(&from..).take_while(|(key, _)| key.is_beside(&from));
        members.map(|(_, waiting)| waiting.pod.clone()).collect()
    }

    /// The run that is to look at this pod: the one of its group, which need not be the one that Tekton made it for.
    pub(crate) fn run_of_pod(&self, key: &PodKey, waiting: &Waiting) -> Option<ObjectRef<PipelineRun>> {
        let is_it = |run: &PipelineRun| run.metadata.uid.as_deref() == Some(key.group.as_str());
        let named = waiting
            .run
            .as_ref()
            .map(|name| ObjectRef::new(name).within(&key.namespace));
        let named = named.filter(|run| self.runs.store.get(run).is_some_and(|run| is_it(&run)));
        named.or_else(|| Some(ObjectRef::from_obj(&*self.runs.store.find(is_it)?)))
    }

    /// The runs whose placeholders are on one of these nodes.
    pub(crate) fn runs_on(&self, nodes: &BTreeSet<String>) -> Vec<ObjectRef<PipelineRun>> {
        let is_there = |pod: &PlaceholderPod| pod.node().is_some_and(|node| nodes.contains(node));
        let pods = if nodes.is_empty() {
            Vec::new()
        } else {
            self.pods.store.state_filter(is_there)
        };
        pods.iter().filter_map(|pod| run_of(&pod.metadata)).collect()
    }
}

#[cfg(test)]
#[path = "around_tests.rs"]
mod tests;
