//! The node, the requests, the start and the end of each of a run's pods. Read once, after the run has succeeded.

use crate::pod_view::PodView;
use jiff::Timestamp;
use placement::need::Stint;

/// `None` for a pod that never had a node.
pub(crate) fn stint(pod: &PodView, now: Timestamp) -> Option<Stint> {
    let from = pod.bound_since()?;
    Some(Stint {
        node: pod.node()?.to_owned(),
        from,
        to: ended(pod).unwrap_or(now).max(from),
        asks: pod.asks(),
    })
}

/// When the last container ended, if all containers have ended.
fn ended(pod: &PodView) -> Option<Timestamp> {
    pod.ends().collect::<Option<Vec<_>>>()?.into_iter().max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::at;
    use serde_json::{Value, json};

    fn pod(status: &Value) -> PodView {
        let spec = json!({"nodeName": "n1", "containers": [{"name": "step", "resources": {"requests": {"cpu": "2"}}}]});
        serde_json::from_value(json!({"metadata": {}, "spec": spec, "status": status})).unwrap()
    }

    fn bound() -> Value {
        json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": at(5).to_string()}])
    }

    #[test]
    fn a_pod_counts_from_its_node_to_the_end_of_its_last_container() {
        let ended = |second: i64| json!({"state": {"terminated": {"finishedAt": at(second).to_string(), "exitCode": 0}}});
        let containers = json!([ended(9), ended(7)]);
        let stint = stint(
            &pod(&json!({"conditions": bound(), "containerStatuses": containers})),
            at(60),
        )
        .unwrap();
        assert_eq!((stint.node.as_str(), stint.from, stint.to), ("n1", at(5), at(9)));
        assert_eq!(stint.asks.to_string(), "cpu=2");
    }

    #[test]
    fn a_pod_that_has_not_ended_counts_until_now_and_one_without_a_node_not_at_all() {
        let containers = json!([{"state": {"running": {}}}]);
        let running = stint(
            &pod(&json!({"conditions": bound(), "containerStatuses": containers})),
            at(60),
        );
        assert_eq!(running.unwrap().to, at(60));
        assert_eq!(stint(&pod(&json!({})), at(60)), None);
    }
}
