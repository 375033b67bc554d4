//! Counts a run's live tasks. The pods come from the API server, and only if a decision depends on the count.
//!
//! A cache is not enough: a run gives up a node only if none of its tasks is there. The cache may lack a new task, which would
//! stay behind on the node.

use crate::pod_view::PodView;
use jiff::Timestamp;
use placement::node::NodeState;
use std::collections::BTreeSet;

/// The result of a count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tasks {
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
}

impl Tasks {
    /// Adds a pod to the count. `there` is the node of the run's placeholder.
    #[must_use]
    pub(crate) fn and(mut self, pod: &PodView, there: Option<&str>) -> Self {
        self.claims.extend(pod.claims().map(str::to_owned));
        if lives(pod, there) {
            self.live.push(pod.metadata.name.clone().unwrap_or_default());
        }
        Self {
            ended: self.ended.max(ended(pod)),
            ..self
        }
    }
}

/// Counts only pods on the placeholder's node. The scheduler ignores pods on a deleted node, so that the run's next pod may be on
/// another node.
fn lives(pod: &PodView, there: Option<&str>) -> bool {
    let is_there = |node| there.is_none_or(|there| there == node);
    pod.node().is_some_and(is_there) && !pod.has_ended()
}

fn ended(pod: &PodView) -> Option<Timestamp> {
    pod.ends().flatten().max().filter(|_| pod.has_ended())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::at;
    use serde_json::{Value, json};

    fn count(pods: &[Value]) -> Tasks {
        count_at(pods, Some("n1"))
    }

    fn count_at(pods: &[Value], there: Option<&str>) -> Tasks {
        let pods = pods
            .iter()
            .map(|pod| serde_json::from_value::<PodView>(pod.clone()).unwrap());
        pods.fold(Tasks::default(), |count, pod| count.and(&pod, there))
    }

    fn pod(node: Option<&str>, phase: &str, ended: Option<i64>) -> Value {
        let state = ended.map(|second| json!({"terminated": {"finishedAt": at(second).to_string()}}));
        json!({
            "metadata": {}, "spec": {"nodeName": node},
            "status": {"phase": phase, "containerStatuses": [{"state": state.unwrap_or_else(|| json!({}))}]},
        })
    }

    #[test]
    fn a_pod_lives_from_being_bound_until_it_has_ended() {
        let mut leaving = pod(Some("n1"), "Running", None);
        leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let pods = [
            pod(None, "Pending", None),
            pod(Some("n1"), "Pending", None),
            pod(Some("n1"), "Running", None),
            leaving,
            pod(Some("n1"), "Failed", None),
            pod(Some("n1"), "Succeeded", Some(1)),
        ];
        assert_eq!(count(&pods).live.len(), 3);
    }

    #[test]
    fn a_pod_on_another_node_than_the_placeholder_is_no_reason_to_keep_that() {
        let pods = [pod(Some("n2"), "Running", None), pod(Some(""), "Pending", None)];
        assert_eq!(
            (
                count_at(&pods, Some("n1")).live.len(),
                count_at(&pods, None).live.len()
            ),
            (0, 1)
        );
    }

    #[test]
    fn the_end_is_that_of_the_last_pod_that_ended() {
        let pods = [
            pod(Some("n1"), "Succeeded", Some(5)),
            pod(Some("n1"), "Failed", Some(7)),
            pod(Some("n1"), "Running", Some(9)),
        ];
        assert_eq!(count(&pods).ended, Some(at(7)));
        assert_eq!(count(&[]).ended, None);
    }
}
