//! Task pods that have no node yet, as they are watched.
//!
//! They are large, since a task's pod carries its scripts, and come several times before they have a node. Nothing
//! is kept of a pod that is bound, so that runs that are done, or busy, weigh nothing here.

use crate::index::{Index, Reduced};
use crate::placeholders::{Of, of};
use crate::pod_view::PodView;
use kube::ResourceExt;
use placement::keys;
use placement::names::RunKey;
use placement::placeholder::wake::Wake;
use placement::plan::WaitingPod;

/// Unbound task pods, by group and name. The run that Tekton made one for is, for a nested run's pod, not the one
/// whose group it is in.
pub(crate) type WaitingPods = Index<PodKey, Of<WaitingPod>>;

/// A pod of a group, sorted by group. Who may make pods in one namespace has no say over the runs of another, so that
/// a group is one namespace's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodKey {
    pub(crate) namespace: String,
    pub(crate) group: String,
    name: String,
}

/// A pod of a group, reduced: it matters as long as it has no node and may still get one.
pub(crate) fn pod(pod: &PodView) -> Option<Reduced<PodKey, Of<WaitingPod>>> {
    let key = PodKey {
        namespace: pod.metadata.namespace.clone()?,
        group: pod.labels().get(keys::GROUP)?.clone(),
        name: pod.metadata.name.clone()?,
    };
    if pod.node().is_some() || pod.is_going() {
        return Some((key, None));
    }
    let waiting = WaitingPod {
        name: key.name.clone(),
        requests: pod.asks(),
        unschedulable: pod.unschedulable(),
        tolerations: pod.spec.tolerations.clone(),
        woken: pod.labels().get(keys::WOKEN).and_then(|label| Wake::read(label)),
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
    let known = pods.read();
    let members = known.range(&from..).take_while(|(key, _)| key.is_beside(&from));
    members.map(|(_, waiting)| waiting.it.clone()).collect()
}

#[cfg(test)]
#[path = "waiting_pods_tests.rs"]
mod tests;
