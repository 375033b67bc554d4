//! The few fields of a TaskRun that a timeline needs: a TaskRun outlives its pod, but does not name the node.

use crate::view::label;
use jiff::Timestamp;
use kube::api::ObjectMeta;
use serde::Deserialize;

pub(crate) const TASK: &str = "tekton.dev/pipelineTask";

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TaskRun {
    pub(crate) metadata: ObjectMeta,
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    pod_name: Option<String>,
    start_time: Option<String>,
    completion_time: Option<String>,
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

impl TaskRun {
    /// UID of the run that it belongs to.
    pub(crate) fn run(&self) -> Option<&str> {
        let owners = self.metadata.owner_references.as_deref().unwrap_or_default();
        let run = owners.iter().find(|owner| owner.kind == "PipelineRun");
        run.map(|owner| owner.uid.as_str())
    }

    pub(crate) fn task(&self) -> &str {
        let name = label(&self.metadata, TASK).or(self.metadata.name.as_deref());
        name.unwrap_or_default()
    }

    pub(crate) fn pod(&self) -> Option<&str> {
        self.status.pod_name.as_deref().filter(|name| !name.is_empty())
    }

    pub(crate) fn started(&self) -> Option<Timestamp> {
        self.status.start_time.as_ref()?.parse().ok()
    }

    pub(crate) fn ended(&self) -> Option<Timestamp> {
        self.status.completion_time.as_ref()?.parse().ok()
    }

    pub(crate) fn failed(&self) -> bool {
        let mut verdicts = self.status.conditions.iter();
        verdicts.any(|it| it.kind == "Succeeded" && it.status == "False")
    }
}

tekton::read_only!(TaskRun, "taskruns");
