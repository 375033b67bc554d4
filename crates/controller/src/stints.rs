//! A run's pods as they ran: what they asked for, where, and from when until when. Read once, when a run has ended well.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use placement::need::Stint;
use placement::resources::Resources;

/// Of a pod that had a node.
pub(crate) fn stint(pod: &Pod, now: Timestamp) -> Option<Stint> {
    let (spec, status) = (pod.spec.as_ref()?, pod.status.as_ref()?);
    let from = bound(status)?;
    Some(Stint {
        node: spec.node_name.clone().filter(|node| !node.is_empty())?,
        from,
        to: ended(status).unwrap_or(now).max(from),
        asks: Resources::of_pod(spec),
    })
}

fn bound(status: &PodStatus) -> Option<Timestamp> {
    let mut conditions = status.conditions.iter().flatten();
    let bound = conditions.find(|it| it.type_ == "PodScheduled" && it.status == "True");
    let bound = bound.and_then(|it| it.last_transition_time.as_ref());
    bound.or(status.start_time.as_ref()).map(|time| time.0)
}

/// When the last of its containers ended, if all have.
fn ended(status: &PodStatus) -> Option<Timestamp> {
    let containers = status.container_statuses.iter().flatten();
    let ends = containers.map(|it| Some(it.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref()?.0));
    ends.collect::<Option<Vec<_>>>()?.into_iter().max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::at;
    use serde_json::{Value, json};

    fn pod(status: &Value) -> Pod {
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
