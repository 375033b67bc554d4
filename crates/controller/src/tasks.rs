//! How many of a run's tasks live, read at the API server when a decision hangs on it.
//!
//! Caches will not do here: a node is given up only where nothing of the run is, and a task that a cache does not
//! show yet would be left behind.

use crate::pod_view::PodView;
use jiff::Timestamp;
use placement::node::NodeState;
use std::collections::BTreeSet;

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tasks {
    /// Names of the pods that have not ended, on the placeholder's node; if it has none, on any.
    pub(crate) live: Vec<String>,
    /// When the last of those ended that have.
    pub(crate) ended: Option<Timestamp>,
    /// The node that the placeholder is bound to.
    pub(crate) node: NodeState,
    /// Its label `kubernetes.io/hostname`.
    pub(crate) hostname: Option<String>,
    /// Names of the PVCs that they mount, or mounted.
    pub(crate) claims: BTreeSet<String>,
}

impl Tasks {
    /// With one more pod of a run whose placeholder is there.
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

/// Once its node is gone, the scheduler takes no account of the pods on it, and a run may have its next one elsewhere.
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
