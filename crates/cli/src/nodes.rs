//! `nodes`: the runs on each node, and its free resources. Pure.

use crate::fit::neighbours::occupant;
use crate::fit::{Occupant, left, on, used};
use crate::table;
use crate::view::{is_kept_node, is_placeholder};
use k8s_openapi::api::core::v1::{Node, Pod};
use placement::node::NodeFacts;
use serde::Serialize;
use std::collections::BTreeMap;

/// A run on a node, or a node without runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) node: String,
    pub(crate) state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) strategy: Option<String>,
    pub(crate) task_pods: usize,
    pub(crate) free_cpu: String,
    pub(crate) free_memory: String,
}

/// How runs use a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// No run has pods on the node.
    Free,
    /// An isolated run has the node to itself.
    Taken,
    /// A run that allows other runs has pods on the node.
    Shared,
    /// A finished run keeps the node.
    Reserved,
    /// A run without the label has pods on the node.
    Unlabelled,
}

impl Use {
    fn of(occupant: &Occupant) -> Self {
        match occupant.strategy.as_deref() {
            _ if occupant.reserved => Self::Reserved,
            Some("colocateAlways") => Self::Shared,
            Some(_) => Self::Taken,
            None => Self::Unlabelled,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Free => "Free",
            Self::Taken => "Taken",
            Self::Shared => "Shared",
            Self::Reserved => "Reserved",
            Self::Unlabelled => "Unlabelled",
        }
    }
}

/// The rows of these nodes, by name.
pub(crate) fn rows(nodes: &[Node], pods: &[Pod]) -> Vec<Row> {
    let mut sorted: Vec<_> = nodes.iter().collect();
    sorted.sort_by_key(|node| node.metadata.name.clone());
    sorted.into_iter().flat_map(|node| rows_of(node, pods)).collect()
}

fn rows_of(node: &Node, pods: &[Pod]) -> Vec<Row> {
    let here: Vec<&Pod> = on(pods, node.metadata.name.as_deref()).collect();
    let occupants = occupants(&here);
    if occupants.is_empty() {
        return vec![row(node, &here, None, 0)];
    }
    occupants
        .iter()
        .map(|(occupant, pods)| row(node, &here, Some(occupant), *pods))
        .collect()
}

/// The runs of these pods, each with the number of its task pods. One pod with a strategy is enough to know the strategy of its run.
fn occupants(pods: &[&Pod]) -> Vec<(Occupant, usize)> {
    let mut found: BTreeMap<(String, String), (Occupant, usize)> = BTreeMap::new();
    for pod in pods {
        let Some(one) = occupant(pod) else { continue };
        let key = (one.namespace.clone(), one.name.clone());
        let (known, count) = found.entry(key).or_insert_with(|| (one.clone(), 0));
        known.strategy = known.strategy.take().or(one.strategy);
        known.reserved |= one.reserved;
        *count += usize::from(!is_placeholder(pod));
    }
    found.into_values().collect()
}

fn row(node: &Node, here: &[&Pod], occupant: Option<&Occupant>, task_pods: usize) -> Row {
    let facts = NodeFacts::from_node(node).unwrap_or_default();
    let used = used(here.iter().copied());
    let free = |name: &str| {
        left(
            facts.allocatable.get(name),
            used.get(name).copied().unwrap_or_default(),
        )
        .to_string()
    };
    Row {
        node: node.metadata.name.clone().unwrap_or_default(),
        state: state(&facts, occupant, here.iter().any(|pod| is_kept_node(pod))),
        run: occupant.map(|it| format!("{}/{}", it.namespace, it.name)),
        strategy: occupant.and_then(|it| it.strategy.clone()),
        task_pods,
        free_cpu: free("cpu"),
        free_memory: free("memory"),
    }
}

/// The use of the node, and the state that kubectl prints.
fn state(node: &NodeFacts, occupant: Option<&Occupant>, is_kept: bool) -> String {
    let used_by = occupant.map_or(Use::Free, Use::of);
    let more = [
        is_kept.then_some("Kept"),
        (!node.ready).then_some("NotReady"),
        node.unschedulable.then_some("SchedulingDisabled"),
    ];
    let words: Vec<_> = [used_by.as_str()]
        .into_iter()
        .chain(more.into_iter().flatten())
        .collect();
    words.join(",")
}

/// The rows as a table.
pub(crate) fn text(rows: &[Row], wide: bool, headed: bool) -> String {
    let mut heads = vec!["NODE", "STATE", "RUN", "TASK-PODS", "FREE-CPU", "FREE-MEMORY"];
    heads.extend(wide.then_some("STRATEGY"));
    let cells: Vec<_> = rows.iter().map(|row| cells(row, wide)).collect();
    table::table(&heads, &cells, headed)
}

fn cells(row: &Row, wide: bool) -> Vec<String> {
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let plain = [
        row.node.clone(),
        row.state.clone(),
        or_dash(&row.run),
        row.task_pods.to_string(),
        row.free_cpu.clone(),
        row.free_memory.clone(),
    ];
    plain
        .into_iter()
        .chain(wide.then(|| or_dash(&row.strategy)))
        .collect()
}

#[cfg(test)]
mod tests;
