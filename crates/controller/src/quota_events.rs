//! Pods of tasks that a quota rejected: Tekton reports each by an event on the TaskRun, and retries after a minute.
//!
//! The watch selects these events only. An event names the TaskRun and its namespace, but not the run: `read` lists the rejected
//! TaskRuns of a run if the decision needs them.

use crate::index::{Index, Reduced};
use k8s_openapi::api::core::v1::Event;

/// By namespace, the last refusal there: the version of its event.
pub(crate) type Refusals = Index<String, String>;

/// The reason that Tekton gives, also in the TaskRun's condition.
pub(crate) const REASON: &str = "ExceededResourceQuota";

/// Field selector of these events.
pub(crate) fn fields() -> String {
    format!("involvedObject.kind=TaskRun,reason={REASON}")
}

/// An event, reduced.
pub(crate) fn refusal(event: &Event) -> Option<Reduced<String, String>> {
    let version = event.metadata.resource_version.clone();
    Some((event.metadata.namespace.clone()?, version))
}
