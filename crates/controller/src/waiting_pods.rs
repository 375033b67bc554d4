//! The watch of task pods that have no node yet.
//!
//! Task pods are large because they carry the scripts of their steps, and a pod changes several times before it has a node. The
//! cache drops bound pods, so that running and finished runs use no memory here.

use crate::index::{Index, Reduced};
use crate::placeholders::{OfRun, of};
use crate::pods::{self, PodView};
use kube::ResourceExt;
use kube::runtime::watcher::Config as Watch;
use placement::keys;
use placement::names::RunKey;
use placement::plan::RequeueMark;
use placement::plan::WaitingPod;

/// Unbound task pods by group and name. The pod of a nested run carries the name of the nested run, but is in the group of the
/// root run.
pub(crate) type WaitingPods = Index<PodKey, OfRun<WaitingPod>>;

/// The key of a pod, sorted by group. A group belongs to one namespace: a user who can create pods in one namespace must not
/// affect the runs of another namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodKey {
    pub(crate) namespace: String,
    pub(crate) group: String,
    name: String,
}

/// Selects task pods by the phase Pending, which includes pods that are bound and not started. The cache drops bound pods.
pub(crate) fn pending() -> Watch {
    Watch::default()
        .labels(&pods::tasks())
        .fields("status.phase=Pending")
}

/// Reduces a pod of a group. The value is `None` if the pod has a node or is being deleted.
pub(crate) fn pod(pod: &PodView) -> Option<Reduced<PodKey, OfRun<WaitingPod>>> {
    let key = PodKey {
        namespace: pod.metadata.namespace.clone()?,
        group: pod.labels().get(keys::GROUP)?.clone(),
        name: pod.metadata.name.clone()?,
    };
    if pod.node().is_some() || pod.is_deleting() {
        return Some((key, None));
    }
    let waiting = WaitingPod {
        name: key.name.clone(),
        task_run: pod.labels().get(keys::TEKTON_TASK_RUN).cloned(),
        requests: pod.asks(),
        unschedulable: pod.unschedulable().filter(|found| !found.is_gated()),
        tolerations: pod.spec.tolerations.clone(),
        requires: pod.node_requirements(),
        excludes_node: false,
        woken: pod
            .labels()
            .get(keys::WOKEN)
            .and_then(|label| RequeueMark::parse(label)),
        relaxed: pod.annotations().contains_key(keys::RELAXED),
    };
    Some((key, Some(of(&pod.metadata, waiting))))
}

impl PodKey {
    fn is_beside(&self, other: &Self) -> bool {
        (&self.namespace, &self.group) == (&other.namespace, &other.group)
    }
}

/// The task pods of a run's group that wait for a node.
pub(crate) fn waiting_in(pods: &WaitingPods, run: &RunKey) -> Vec<WaitingPod> {
    let from = PodKey {
        namespace: run.namespace.clone(),
        group: run.uid.clone(),
        name: String::new(),
    };
    let waiting = pods.read();
    let members = waiting.range(&from..).take_while(|(key, _)| key.is_beside(&from));
    members.map(|(_, waiting)| waiting.it.clone()).collect()
}

#[cfg(test)]
mod tests;
