//! The rows as a table or as CSV, and the explanation of gaps.

use super::{Report, Requested, Row, Share};
use crate::args::CostGroup;
use crate::table;
use crate::timeline::usage::Gap;
use crate::words::{count, list};
use std::collections::BTreeMap;

/// The most instance types that a note names.
const MOST_NAMES: usize = 5;

/// The rows and their sum as a table.
pub(crate) fn table(report: &Report, by: CostGroup, all_namespaces: bool) -> String {
    let name = match by {
        CostGroup::Run => "RUN",
        CostGroup::Pipeline => "PIPELINE",
        CostGroup::Namespace => "NAMESPACE",
    };
    let heads = [
        name,
        "RUNS",
        "NODE-SECONDS",
        "WAITING",
        "RUNNING",
        "KEPT",
        "CPU-PEAK",
        "CPU-AVERAGE",
        "MEMORY-PEAK",
        "MEMORY-AVERAGE",
        "COST",
        "GAPS",
    ];
    let rows = report
        .rows
        .iter()
        .map(|row| cells(&title(row, all_namespaces), row));
    let rows: Vec<_> = rows.chain([cells("TOTAL", &report.total)]).collect();
    table::table(&heads, &rows, true)
}

fn title(row: &Row, all_namespaces: bool) -> String {
    let namespace = row.namespace.as_deref().unwrap_or_default();
    match row.run.as_ref().or(row.pipeline.as_ref()) {
        Some(name) if all_namespaces => format!("{namespace}/{name}"),
        Some(name) => name.clone(),
        None => namespace.to_owned(),
    }
}

fn cells(title: &str, row: &Row) -> Vec<String> {
    let start = [title.to_owned(), row.runs.to_string()].into_iter();
    let cells = start
        .chain(seconds(row).map(|it| format!("{it:.0}")))
        .chain(shares(row));
    let cost = row.cost.map_or_else(dash, |cost| format!("{cost:.4}"));
    cells.chain([cost, gaps(row)]).collect()
}

fn seconds(row: &Row) -> [f64; 4] {
    [
        row.node_seconds,
        row.waiting_seconds,
        row.running_seconds,
        row.kept_seconds,
    ]
}

fn shares(row: &Row) -> [String; 4] {
    numbers(row.requested).map(|share| share.map_or_else(dash, |share| format!("{:.0}%", share * 100.0)))
}

fn numbers(requested: Option<Requested>) -> [Option<f64>; 4] {
    let of = |share: Share| [Some(share.peak), Some(share.average)];
    let [cpu, memory] = requested.map_or([[None; 2]; 2], |it| [of(it.cpu), of(it.memory)]);
    [cpu[0], cpu[1], memory[0], memory[1]]
}

/// The gaps of a run, or the number of runs with gaps.
fn gaps(row: &Row) -> String {
    let names: Vec<_> = row.gaps.keys().map(|gap| gap.as_str()).collect();
    match (row.runs, names.as_slice()) {
        (_, []) => dash(),
        (1, names) => names.join(","),
        (runs, names) => format!("{} of {runs} runs: {}", row.runs_with_gaps, names.join(",")),
    }
}

fn dash() -> String {
    "-".to_owned()
}

/// The rows as CSV, without their sum.
pub(crate) fn csv(rows: &[Row]) -> String {
    let head = "namespace,pipeline,run,runs,node_seconds,waiting_seconds,running_seconds,kept_seconds,cpu_peak,cpu_average,\
                memory_peak,memory_average,cost,runs_with_gaps,gaps";
    let lines = rows.iter().map(|row| {
        let names =
            [&row.namespace, &row.pipeline, &row.run].map(|name| cell(name.as_deref().unwrap_or_default()));
        let seconds = seconds(row).map(|it| format!("{it:.1}"));
        let amounts = numbers(row.requested).into_iter().chain([row.cost]);
        let amounts = amounts.map(|it| it.map(|it| format!("{it:.4}")).unwrap_or_default());
        let gaps: Vec<_> = row.gaps.keys().map(|gap| gap.as_str()).collect();
        let cells = names
            .into_iter()
            .chain([row.runs.to_string()])
            .chain(seconds)
            .chain(amounts);
        let cells = cells.chain([row.runs_with_gaps.to_string(), gaps.join(" ")]);
        cells.collect::<Vec<_>>().join(",")
    });
    std::iter::once(head.to_owned())
        .chain(lines)
        .map(|line| format!("{line}\n"))
        .collect()
}

/// A name as a value of CSV. The name of a resolver can have any characters.
fn cell(name: &str) -> String {
    if name.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", name.replace('"', "\"\""))
    } else {
        name.to_owned()
    }
}

/// A sentence about each kind of gap.
pub(crate) fn notes(report: &Report) -> Vec<String> {
    let gaps: &BTreeMap<Gap, usize> = &report.total.gaps;
    let notes = gaps.iter().map(|(gap, runs)| {
        let (name, runs) = (gap.as_str(), count(*runs, "run"));
        format!("gap {name}, {runs}: {}", explanation(*gap, report))
    });
    notes.collect()
}

fn explanation(gap: Gap, report: &Report) -> String {
    let types: Vec<_> = report.unpriced.iter().cloned().collect();
    let text = match gap {
        Gap::Node => "a node was deleted or is not known, so its size and its price are missing",
        Gap::Price => return format!("the price file has no price for {}", list(&types, MOST_NAMES)),
        Gap::Pods => "pods or TaskRuns were deleted, so requests or the running time are missing",
        Gap::Moves => {
            "events and pods were deleted, so only the last node is known, from the start of the run on"
        }
        Gap::Kept => "the time in which the run kept its node after its end is missing",
    };
    text.to_owned()
}

impl Gap {
    fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Price => "price",
            Self::Pods => "pods",
            Self::Moves => "moves",
            Self::Kept => "kept",
        }
    }
}
