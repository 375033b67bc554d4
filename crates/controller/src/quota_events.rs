//! The watch of task pods that a ResourceQuota rejected. Tekton emits an event on the TaskRun, and retries after a minute.
//!
//! The watch selects these events only. An event names the TaskRun and its namespace, but not the run: `read` lists the rejected
//! TaskRuns of a run if the decision needs them.

use crate::index::{Index, Reduced};
use k8s_openapi::api::core::v1::Event;

/// The last refusal in each namespace, as the resource version of its event.
pub(crate) type Refusals = Index<String, String>;

/// The reason of Tekton's event, and of the TaskRun's condition.
pub(crate) const REASON: &str = "ExceededResourceQuota";

/// Field selector of these events.
pub(crate) fn fields() -> String {
    format!("involvedObject.kind=TaskRun,reason={REASON}")
}

/// Reduces an event.
pub(crate) fn refusal(event: &Event) -> Option<Reduced<String, String>> {
    let version = event.metadata.resource_version.clone();
    Some((event.metadata.namespace.clone()?, version))
}
