//! The watch of task pods that have no node yet.
//!
//! Task pods are large because they carry the scripts of their steps, and a pod changes several times before it has a node. The
//! cache drops bound pods, so that running and finished runs use no memory here.

use crate::index::{Index, Reduced};
use crate::placeholders::{ObjectKey, OfRun, of};
use crate::pods::{self, PodView};
use kube::ResourceExt;
use kube::runtime::watcher::Config as Watch;
use placement::keys;
use placement::names::RunKey;
use placement::plan::RequeueMark;
use placement::plan::WaitingPod;

/// Unbound task pods by namespace and name. A user can change the group of a pod, so that the group is not in the key: the pod
/// would stay in the cache under each of its groups.
pub(crate) type WaitingPods = Index<ObjectKey, OfGroup>;

/// A task pod of a group. A group belongs to one namespace: a user who can create pods in one namespace must not affect the runs of
/// another namespace. The pod of a nested run carries the name of the nested run, but is in the group of the root run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OfGroup {
    pub(crate) group: String,
    pub(crate) pod: OfRun<WaitingPod>,
}

/// Selects task pods by the phase Pending, which includes pods that are bound and not started. The cache drops bound pods.
pub(crate) fn pending() -> Watch {
    Watch::default()
        .labels(&pods::tasks())
        .fields("status.phase=Pending")
}

/// Reduces a task pod. The value is `None` if the pod has no group, has a node or is being deleted.
pub(crate) fn pod(pod: &PodView) -> Option<Reduced<ObjectKey, OfGroup>> {
    let key = (pod.metadata.namespace.clone()?, pod.metadata.name.clone()?);
    let group = pod.labels().get(keys::GROUP);
    let waits = pod.node().is_none() && !pod.is_deleting();
    let waiting = group.filter(|_| waits).map(|group| OfGroup {
        group: group.clone(),
        pod: of(&pod.metadata, waiting(pod, &key.1)),
    });
    Some((key, waiting))
}

fn waiting(pod: &PodView, name: &str) -> WaitingPod {
    WaitingPod {
        name: name.to_owned(),
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
    }
}

/// The task pods of a run's group that wait for a node.
pub(crate) fn waiting_in(pods: &WaitingPods, run: &RunKey) -> Vec<WaitingPod> {
    let waiting = pods.read();
    let of_namespace = waiting
        .range((run.namespace.clone(), String::new())..)
        .take_while(|((namespace, _), _)| *namespace == run.namespace);
    let members = of_namespace.filter(|(_, waiting)| waiting.group == run.uid);
    members.map(|(_, waiting)| waiting.pod.it.clone()).collect()
}

#[cfg(test)]
mod tests;
