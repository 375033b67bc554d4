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
