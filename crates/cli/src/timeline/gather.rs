//! Reads what the API server still has of the runs of a namespace, or of one run. Reads only.

use super::node_end::{NodeEnd, REASONS};
use super::task_run::TaskRun;
use crate::ask::{Gap, Seen, Server};
use crate::events::Told;
use crate::filter::Filter;
use crate::gather::placeholder_selector;
use crate::view::PipelineRun;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::ListParams;
use placement::keys;
use tokio::join;

/// Where events about nodes are: they have no namespace, and their events need one.
const NODE_EVENTS: &str = "default";

/// Which runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope<'a> {
    /// `None`: all namespaces.
    pub(crate) namespace: Option<&'a str>,
    pub(crate) run: Option<&'a str>,
}

/// What was read.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) now: Timestamp,
    pub(crate) runs: Vec<PipelineRun>,
    pub(crate) sets: Seen<Vec<StatefulSet>>,
    /// Pods of runs, placeholders among them.
    pub(crate) pods: Seen<Vec<Pod>>,
    pub(crate) task_runs: Seen<Vec<TaskRun>>,
    /// Events of ours on runs.
    pub(crate) told: Seen<Vec<Told>>,
    pub(crate) nodes: Seen<Vec<Node>>,
    pub(crate) node_ends: Seen<Vec<NodeEnd>>,
}

impl Facts {
    /// What was not seen, and why.
    pub(crate) fn gaps(&self) -> Vec<&Gap> {
        let gaps = [
            self.sets.as_ref().err(),
            self.pods.as_ref().err(),
            self.task_runs.as_ref().err(),
            self.told.as_ref().err(),
            self.nodes.as_ref().err(),
            self.node_ends.as_ref().err(),
        ];
        gaps.into_iter().flatten().collect()
    }
}

/// Everything that these runs left.
pub(crate) async fn facts(server: &Server, scope: Scope<'_>) -> Seen<Facts> {
    let runs = server.reach::<PipelineRun>(scope.namespace);
    let task_runs = server.reach::<TaskRun>(scope.namespace);
    let pods = server.reach::<Pod>(scope.namespace);
    let sets = server.reach::<StatefulSet>(scope.namespace);
    let nodes = server.cluster::<Node>();
    let (now, runs, task_runs, pods, sets, nodes, told, node_ends) = join!(
        server.clock(),
        runs.list(of_name(scope)),
        task_runs.list(of_label(scope)),
        pods.list(of_label(scope)),
        sets.list(ListParams::default().labels(&placeholder_selector())),
        nodes.list(ListParams::default()),
        told(server, scope),
        node_ends(server)
    );
    Ok(Facts {
        now: now?,
        runs: runs?,
        sets,
        pods,
        task_runs,
        told,
        nodes,
        node_ends,
    })
}

fn of_name(scope: Scope<'_>) -> ListParams {
    scope.run.map(Filter::name).unwrap_or_default().list()
}

fn of_label(scope: Scope<'_>) -> ListParams {
    let key = keys::TEKTON_PIPELINE_RUN;
    let selector = scope.run.map(|name| format!("{key}={name}"));
    ListParams::default().labels(selector.as_deref().unwrap_or(key))
}

async fn told(server: &Server, scope: Scope<'_>) -> Seen<Vec<Told>> {
    let name = scope.run.map(|name| format!(",involvedObject.name={name}"));
    let fields = format!("involvedObject.kind=PipelineRun{}", name.unwrap_or_default());
    let events = server.reach::<Event>(scope.namespace);
    let events = events.list(ListParams::default().fields(&fields)).await?;
    let told = events.iter().filter_map(Told::of).filter(Told::is_ours);
    Ok(told.collect())
}

async fn node_ends(server: &Server) -> Seen<Vec<NodeEnd>> {
    let events = server.within::<Event>(NODE_EVENTS);
    let mut ends = Vec::new();
    for reason in REASONS {
        let fields = format!("involvedObject.kind=Node,reason={reason}");
        let found = events.list(ListParams::default().fields(&fields)).await?;
        ends.extend(found.iter().filter_map(NodeEnd::of));
    }
    Ok(ends)
}
