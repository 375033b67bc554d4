//! Conditions of pods, of which two are read.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use placement::plan::Unschedulable;
use serde::Deserialize;

/// What a kubelet says of a resize that it will never carry out.
pub(crate) const INFEASIBLE: &str = "Infeasible";

/// A condition.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    reason: Option<String>,
    message: Option<String>,
    last_transition_time: Option<Time>,
}

impl Condition {
    fn is_unschedulable(&self) -> bool {
        self.type_ == "PodScheduled"
            && self.status == "False"
            && self.reason.as_deref() == Some("Unschedulable")
    }

    /// The resize that was asked for will never be carried out.
    pub(crate) fn is_infeasible_resize(&self) -> bool {
        self.type_ == "PodResizePending" && self.reason.as_deref() == Some(INFEASIBLE)
    }
}

/// That the scheduler finds no node for a pod, and since when.
pub(crate) fn unschedulable(conditions: &[Condition]) -> Option<Unschedulable> {
    let condition = conditions.iter().find(|condition| condition.is_unschedulable())?;
    let since = condition.last_transition_time.as_ref();
    Some(Unschedulable {
        message: condition.message.clone().unwrap_or_default(),
        since: since.map_or(Timestamp::UNIX_EPOCH, |time| time.0),
    })
}
