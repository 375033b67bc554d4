//! Reads the objects and events that the API server still has of the runs of a namespace, or of a run.

use crate::events::RunEvent;
use crate::filter::Filter;
use crate::gather::{self, placeholder_selector};
use crate::requests::{RequestError, RequestResult, Server};
use crate::view::{PipelineRun, annotation, label};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{ListParams, ObjectMeta};
use placement::config::Config;
use placement::{keys, messages};
use serde::Deserialize;
use tokio::join;

/// The namespace of the events of nodes, which have no namespace.
const NODE_EVENTS: &str = "default";
/// Reasons of events about a removed node: from the node lifecycle controller, a cloud controller, and the cluster autoscaler.
const NODE_END_REASONS: [&str; 3] = ["RemovingNode", "DeletingNode", "ScaleDown"];
/// The label with the name of the task in the Pipeline.
pub(super) const TASK: &str = "tekton.dev/pipelineTask";

/// The runs that a timeline shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selection<'a> {
    /// `None`: all namespaces.
    pub(crate) namespace: Option<&'a str>,
    pub(crate) run: Option<&'a str>,
    /// A selector of the labels of runs.
    pub(crate) labels: Option<&'a str>,
}

/// The objects and events from which a timeline is made.
#[derive(Clone, Debug)]
pub(crate) struct History {
    pub(crate) now: Timestamp,
    pub(crate) runs: Vec<PipelineRun>,
    pub(crate) sets: RequestResult<Vec<StatefulSet>>,
    /// Pods of runs, including the placeholders.
    pub(crate) pods: RequestResult<Vec<Pod>>,
    pub(crate) task_runs: RequestResult<Vec<TaskRun>>,
    /// pod-affinity's events about runs.
    pub(crate) events: RequestResult<Vec<RunEvent>>,
    pub(crate) nodes: RequestResult<Vec<Node>>,
    pub(crate) node_ends: RequestResult<Vec<NodeEnd>>,
    /// The configuration, by which the annotation `kept-until` is checked; the defaults if no run has the annotation.
    pub(crate) config: RequestResult<Config>,
}

/// The fields of a TaskRun that a timeline needs. A TaskRun outlives its pod, but does not name the node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TaskRun {
    pub(crate) metadata: ObjectMeta,
    status: TaskRunStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TaskRunStatus {
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

/// The removal of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeEnd {
    pub(crate) node: String,
    pub(crate) at: Timestamp,
}

tekton::read_only!(TaskRun, "taskruns");

impl History {
    /// What could not be read.
    pub(crate) fn errors(&self) -> Vec<&RequestError> {
        let errors = [
            self.sets.as_ref().err(),
            self.pods.as_ref().err(),
            self.task_runs.as_ref().err(),
            self.events.as_ref().err(),
            self.nodes.as_ref().err(),
            self.node_ends.as_ref().err(),
            self.config.as_ref().err(),
        ];
        errors.into_iter().flatten().collect()
    }
}

impl TaskRun {
    /// The UID of its PipelineRun.
    pub(super) fn run(&self) -> Option<&str> {
        let mut owners = self.metadata.owner_references.iter().flatten();
        let run = owners.find(|owner| owner.kind == "PipelineRun");
        run.map(|owner| owner.uid.as_str())
    }

    pub(super) fn task(&self) -> &str {
        let name = label(&self.metadata, TASK).or(self.metadata.name.as_deref());
        name.unwrap_or_default()
    }

    pub(super) fn pod(&self) -> Option<&str> {
        self.status.pod_name.as_deref().filter(|name| !name.is_empty())
    }

    pub(super) fn started(&self) -> Option<Timestamp> {
        self.status.start_time.as_ref()?.parse().ok()
    }

    pub(super) fn ended(&self) -> Option<Timestamp> {
        self.status.completion_time.as_ref()?.parse().ok()
    }

    pub(super) fn failed(&self) -> bool {
        let mut conditions = self.status.conditions.iter();
        conditions.any(|it| it.kind == "Succeeded" && it.status == "False")
    }
}

impl NodeEnd {
    /// `None` for an event that does not report a removal.
    fn parse(event: &Event) -> Option<Self> {
        let about = &event.involved_object;
        let reason = event.reason.as_deref()?;
        let is_removal = about.kind.as_deref() == Some("Node") && NODE_END_REASONS.contains(&reason);
        let message = event.message.as_deref().unwrap_or_default();
        let is_removal = is_removal && (reason != "ScaleDown" || messages::is_node_removed(message));
        let created = || event.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let at = RunEvent::of(event).map_or_else(created, |told| Some(told.at));
        is_removal.then_some(Self {
            node: about.name.clone()?,
            at: at?,
        })
    }
}

/// Reads all lists at the same time, and then the configuration. Only the time and the runs are necessary.
pub(crate) async fn history(server: &Server, selection: Selection<'_>) -> RequestResult<History> {
    let key = keys::TEKTON_PIPELINE_RUN;
    let of_run = selection.run.map(|name| format!("{key}={name}"));
    let of_runs = ListParams::default().labels(of_run.as_deref().unwrap_or(key));
    let named = selection.run.map(Filter::name);
    let wanted = named.or(selection.labels.map(Filter::labels));
    let wanted = wanted.unwrap_or_default().list();
    let runs = server.reach::<PipelineRun>(selection.namespace);
    let task_runs = server.reach::<TaskRun>(selection.namespace);
    let pods = server.reach::<Pod>(selection.namespace);
    let sets = server.reach::<StatefulSet>(selection.namespace);
    let nodes = server.cluster::<Node>();
    let (now, runs, task_runs, pods, sets, nodes, events, node_ends) = join!(
        server.clock(),
        runs.list(wanted),
        task_runs.list(of_runs.clone()),
        pods.list(of_runs),
        sets.list(ListParams::default().labels(&placeholder_selector())),
        nodes.list(ListParams::default()),
        events(server, selection),
        node_ends(server)
    );
    let runs = runs?;
    Ok(History {
        now: now?,
        config: config(server, &runs).await,
        runs,
        sets,
        pods,
        task_runs,
        events,
        nodes,
        node_ends,
    })
}

async fn config(server: &Server, runs: &[PipelineRun]) -> RequestResult<Config> {
    let is_kept = |run: &PipelineRun| annotation(&run.metadata, keys::KEPT_UNTIL).is_some();
    if runs.iter().any(is_kept) {
        gather::config(server).await
    } else {
        Ok(Config::default())
    }
}

async fn events(server: &Server, selection: Selection<'_>) -> RequestResult<Vec<RunEvent>> {
    let name = selection.run.map(|name| format!(",involvedObject.name={name}"));
    let fields = format!("involvedObject.kind=PipelineRun{}", name.unwrap_or_default());
    let events = server.reach::<Event>(selection.namespace);
    let events = events.list(ListParams::default().fields(&fields)).await?;
    Ok(events
        .iter()
        .filter_map(RunEvent::of)
        .filter(RunEvent::is_ours)
        .collect())
}

async fn node_ends(server: &Server) -> RequestResult<Vec<NodeEnd>> {
    let events = server.within::<Event>(NODE_EVENTS);
    let mut ends = Vec::new();
    for reason in NODE_END_REASONS {
        let fields = format!("involvedObject.kind=Node,reason={reason}");
        let found = events.list(ListParams::default().fields(&fields)).await?;
        ends.extend(found.iter().filter_map(NodeEnd::parse));
    }
    Ok(ends)
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
        NodeEnd::parse(&event).map(|end| end.node)
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
