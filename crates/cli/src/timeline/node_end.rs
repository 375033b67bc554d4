//! The events of a node that say when it was removed. Pure.

use crate::events::Told;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use placement::messages;

/// Of the node lifecycle controller, of a cloud's controller, and of the cluster autoscaler.
pub(crate) const REASONS: [&str; 3] = ["RemovingNode", "DeletingNode", "ScaleDown"];

/// A node was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeEnd {
    pub(crate) node: String,
    pub(crate) at: Timestamp,
}

impl NodeEnd {
    pub(crate) fn of(event: &Event) -> Option<Self> {
        let about = &event.involved_object;
        let reason = event.reason.as_deref()?;
        let is_it = about.kind.as_deref() == Some("Node") && REASONS.contains(&reason);
        let text = event.message.as_deref().unwrap_or_default();
        let is_it = is_it && (reason != "ScaleDown" || messages::is_node_removed(text));
        let told = Told::of(event);
        let at = told.map_or_else(
            || event.metadata.creation_timestamp.as_ref().map(|it| it.0),
            |it| Some(it.at),
        );
        is_it.then_some(Self {
            node: about.name.clone()?,
            at: at?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn end(reason: &str, message: &str) -> Option<String> {
        let event = json!({
            "metadata": {"creationTimestamp": "2026-11-22T04:17:42Z"},
            "involvedObject": {"kind": "Node", "name": "node-1"},
            "reason": reason,
            "message": message,
        });
        let event: Event = serde_json::from_value(event).unwrap();
        NodeEnd::of(&event).map(|end| end.node)
    }

    #[test]
    fn a_scale_down_ends_a_node_only_when_the_node_was_removed() {
        let node = Some("node-1".to_owned());
        assert_eq!(end("ScaleDown", "nodes removed by cluster autoscaler"), node);
        assert_eq!(
            end("ScaleDown", "marked the node as toBeDeleted/unschedulable"),
            None
        );
        assert_eq!(end("RemovingNode", "Removing Node node-1 from Controller"), node);
        assert_eq!(
            end("NodeNotReady", "Node node-1 status is now: NodeNotReady"),
            None
        );
    }
}
