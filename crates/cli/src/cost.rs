//! `cost`: how long runs had nodes, which share of the nodes their tasks requested, and the price. Pure.
//!
//! [`crate::timeline::usage`] finds the nodes of each run. [`prices`] reads the price file, and [`text`] prints the rows.

pub(crate) mod prices;
pub(crate) mod text;

use crate::args::CostGroup;
use crate::timeline::History;
use crate::timeline::usage::{Gap, NodeUsage, RunUsage, seconds};
use crate::view::{created, label};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use placement::automatic_reserve::peak;
use placement::node::NodeFacts;
use placement::resources::Resources;
use prices::Prices;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The label in which a cloud provider records the instance type of a node.
const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
/// The text for a node without this label.
const UNLABELLED: &str = "a node without the label node.kubernetes.io/instance-type";
const SECONDS_PER_HOUR: f64 = 3600.0;

/// What a run, or a group of runs, used.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pipeline: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run: Option<String>,
    pub(crate) runs: usize,
    pub(crate) node_seconds: f64,
    pub(crate) waiting_seconds: f64,
    pub(crate) running_seconds: f64,
    pub(crate) kept_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) requested: Option<Requested>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cost: Option<f64>,
    /// How many runs have a gap.
    pub(crate) runs_with_gaps: usize,
    /// How many runs have this gap.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) gaps: BTreeMap<Gap, usize>,
}

/// The requests of tasks as shares of the allocatable resources of their nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Requested {
    pub(crate) cpu: Share,
    pub(crate) memory: Share,
    /// The node seconds of these averages.
    #[serde(skip)]
    seconds: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Share {
    pub(crate) peak: f64,
    pub(crate) average: f64,
}

/// The nodes that exist, and the prices of their types.
struct Nodes<'a> {
    nodes: BTreeMap<&'a str, (&'a Node, Resources)>,
    prices: Option<&'a Prices>,
}

/// The rows, and instance types without a price.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) rows: Vec<Row>,
    pub(crate) total: Row,
    /// The instance types of nodes that have no price.
    pub(crate) unpriced: BTreeSet<String>,
}

/// The report on these runs.
pub(crate) fn report(runs: &[RunUsage], history: &History, prices: Option<&Prices>, by: CostGroup) -> Report {
    let nodes = Nodes::new(history, prices);
    let mut groups: BTreeMap<(&str, &str), Row> = BTreeMap::new();
    let mut total = Row::default();
    for run in runs {
        let row = nodes.row(run);
        total.add(&row);
        let key = match by {
            CostGroup::Run => (run.namespace.as_str(), run.name.as_str()),
            CostGroup::Pipeline => (run.namespace.as_str(), run.pipeline.as_str()),
            CostGroup::Namespace => (run.namespace.as_str(), ""),
        };
        groups.entry(key).or_insert_with(|| head(run, by)).add(&row);
    }
    Report {
        rows: groups.into_values().collect(),
        total,
        unpriced: nodes.unpriced(runs),
    }
}

/// An empty row with the names of its group.
fn head(run: &RunUsage, by: CostGroup) -> Row {
    Row {
        namespace: Some(run.namespace.clone()),
        pipeline: (by != CostGroup::Namespace).then(|| run.pipeline.clone()),
        run: (by == CostGroup::Run).then(|| run.name.clone()),
        ..Row::default()
    }
}

impl<'a> Nodes<'a> {
    fn new(history: &'a History, prices: Option<&'a Prices>) -> Self {
        let nodes = history.nodes.iter().flatten().filter_map(|node| {
            let allocatable = NodeFacts::from_node(node)?.allocatable;
            Some((node.metadata.name.as_deref()?, (node, allocatable)))
        });
        Self {
            nodes: nodes.collect(),
            prices,
        }
    }

    /// The node of a stay. A node that was created after the stay is another node with the same name.
    fn find(&self, usage: &NodeUsage) -> Option<&(&'a Node, Resources)> {
        let found = self.nodes.get(usage.node.as_deref()?)?;
        let is_later = |at: Timestamp| at > usage.span.to;
        (!created(&found.0.metadata).is_some_and(is_later)).then_some(found)
    }

    fn price(&self, node: &Node) -> Option<f64> {
        self.prices?.get(label(&node.metadata, INSTANCE_TYPE)?)
    }

    fn unpriced(&self, runs: &[RunUsage]) -> BTreeSet<String> {
        let used = runs
            .iter()
            .flat_map(|run| &run.nodes)
            .filter_map(|usage| self.find(usage));
        let without_price = used.filter(|(node, _)| self.prices.is_some() && self.price(node).is_none());
        let types = without_price.map(|(node, _)| label(&node.metadata, INSTANCE_TYPE).unwrap_or(UNLABELLED));
        types.map(str::to_owned).collect()
    }

    fn row(&self, run: &RunUsage) -> Row {
        let mut gaps: BTreeSet<_> = run.gaps.iter().copied().collect();
        let mut row = Row {
            runs: 1,
            waiting_seconds: run.waiting,
            ..Row::default()
        };
        for usage in &run.nodes {
            row.node_seconds += seconds(usage.span);
            row.running_seconds += usage.running;
            row.kept_seconds += usage.kept;
            let Some((node, allocatable)) = self.find(usage) else {
                gaps.insert(Gap::Node);
                continue;
            };
            let hours = (seconds(usage.span) + usage.kept) / SECONDS_PER_HOUR;
            match self.price(node) {
                Some(price) => *row.cost.get_or_insert_default() += price * hours,
                None => gaps.extend(self.prices.map(|_| Gap::Price)),
            }
            if !gaps.contains(&Gap::Pods) {
                add_requested(&mut row.requested, Some(Requested::on_node(usage, allocatable)));
            }
        }
        row.runs_with_gaps = usize::from(!gaps.is_empty());
        row.gaps = gaps.into_iter().map(|gap| (gap, 1)).collect();
        row
    }
}

impl Row {
    fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.node_seconds += other.node_seconds;
        self.waiting_seconds += other.waiting_seconds;
        self.running_seconds += other.running_seconds;
        self.kept_seconds += other.kept_seconds;
        self.runs_with_gaps += other.runs_with_gaps;
        if let Some(cost) = other.cost {
            *self.cost.get_or_insert_default() += cost;
        }
        add_requested(&mut self.requested, other.requested);
        for (gap, runs) in &other.gaps {
            *self.gaps.entry(*gap).or_default() += runs;
        }
    }
}

fn add_requested(sum: &mut Option<Requested>, other: Option<Requested>) {
    let Some(other) = other.filter(|it| it.seconds > 0.0) else {
        return;
    };
    let own = sum.get_or_insert_default();
    let seconds = own.seconds + other.seconds;
    let weight = other.seconds / seconds;
    let add = |own: Share, more: Share| Share {
        peak: own.peak.max(more.peak),
        average: own.average * (1.0 - weight) + more.average * weight,
    };
    *own = Requested {
        cpu: add(own.cpu, other.cpu),
        memory: add(own.memory, other.memory),
        seconds,
    };
}

impl Requested {
    fn on_node(usage: &NodeUsage, allocatable: &Resources) -> Self {
        let most = peak(&usage.pods);
        let share = |name: &str| {
            let of_node = |requests: &Resources| {
                let share = requests.get(name).share_of(allocatable.get(name));
                share.unwrap_or_default()
            };
            let pods = usage.pods.iter();
            let used = pods.map(|pod| of_node(&pod.requests) * pod.to.duration_since(pod.from).as_secs_f64());
            Share {
                peak: of_node(&most),
                average: used.sum::<f64>() / seconds(usage.span).max(f64::MIN_POSITIVE),
            }
        };
        Self {
            cpu: share("cpu"),
            memory: share("memory"),
            seconds: seconds(usage.span),
        }
    }
}

#[cfg(test)]
mod tests;
