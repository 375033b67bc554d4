//! `nodes`: which run is on which node, and what is left of it. Pure.

use crate::fit::neighbours::tenant;
use crate::fit::{Tenant, allocatable, is_cordoned, is_ready, left, on, used};
use crate::table;
use crate::view::is_placeholder;
use k8s_openapi::api::core::v1::{Node, Pod};
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

/// How a run has a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tenure {
    /// Nobody has it.
    Free,
    /// An isolated run has it for itself.
    Taken,
    /// A run that lets others in has pods on it.
    Shared,
    /// A finished run keeps it.
    Reserved,
    /// A run without the label has pods on it.
    Unlabelled,
}

impl Tenure {
    fn of(tenant: &Tenant) -> Self {
        match tenant.strategy.as_deref() {
            _ if tenant.reserved => Self::Reserved,
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
    let tenants = tenants(&here);
    if tenants.is_empty() {
        return vec![row(node, &here, None, 0)];
    }
    tenants
        .iter()
        .map(|(tenant, pods)| row(node, &here, Some(tenant), *pods))
        .collect()
}

/// A run with a strategy on one of its pods has it on all.
fn tenants(pods: &[&Pod]) -> Vec<(Tenant, usize)> {
    let mut found: BTreeMap<(String, String), (Tenant, usize)> = BTreeMap::new();
    for pod in pods {
        let Some(one) = tenant(pod) else { continue };
        let key = (one.namespace.clone(), one.name.clone());
        let (known, count) = found.entry(key).or_insert_with(|| (one.clone(), 0));
        known.strategy = known.strategy.take().or(one.strategy);
        known.reserved |= one.reserved;
        *count += usize::from(!is_placeholder(pod));
    }
    found.into_values().collect()
}

fn row(node: &Node, here: &[&Pod], tenant: Option<&Tenant>, task_pods: usize) -> Row {
    let (offered, used) = (allocatable(node), used(here.iter().copied()));
    let free = |name: &str| left(offered.get(name), used.get(name).copied().unwrap_or_default()).to_string();
    Row {
        node: node.metadata.name.clone().unwrap_or_default(),
        state: state(node, tenant),
        run: tenant.map(|it| format!("{}/{}", it.namespace, it.name)),
        strategy: tenant.and_then(|it| it.strategy.clone()),
        task_pods,
        free_cpu: free("cpu"),
        free_memory: free("memory"),
    }
}

/// The tenure, and what kubectl says of such a node.
fn state(node: &Node, tenant: Option<&Tenant>) -> String {
    let tenure = tenant.map_or(Tenure::Free, Tenure::of);
    let flaws = [
        (!is_ready(node)).then_some("NotReady"),
        is_cordoned(node).then_some("SchedulingDisabled"),
    ];
    let words: Vec<_> = [tenure.as_str()]
        .into_iter()
        .chain(flaws.into_iter().flatten())
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
