//! `cost`.

use super::timeline::nothing;
use super::{USAGE, notes, printed};
use crate::args::{CostArgs, CostFormat};
use crate::client::Cluster;
use crate::cost::prices::Prices;
use crate::cost::text::{csv, notes as gaps, table};
use crate::cost::{Report, Row, report};
use crate::output;
use crate::requests::RequestResult;
use crate::timeline::usage::usage;
use crate::timeline::{History, Selection, TimeRange, read};
use placement::keys;
use serde::Serialize;
use std::process::ExitCode;

/// The report as JSON.
#[derive(Serialize)]
struct Data<'a> {
    items: &'a [Row],
    total: &'a Row,
}

/// Runs the command.
pub(super) async fn cost(cluster: &Cluster, args: &CostArgs) -> RequestResult<ExitCode> {
    let prices = match args.prices.as_deref().map(Prices::read).transpose() {
        Ok(prices) => prices,
        Err(wrong) => {
            output::note(&format!("error: {wrong}"));
            return Ok(ExitCode::from(USAGE));
        }
    };
    let labels = [Some(keys::OPT_IN), args.selector.as_deref()];
    let labels: Vec<_> = labels.into_iter().flatten().collect();
    let labels = labels.join(",");
    let selection = Selection {
        namespace: (!args.all_namespaces).then_some(&cluster.namespace),
        run: None,
        labels: Some(&labels),
    };
    let history = Box::pin(read::history(&cluster.server, selection)).await?;
    notes(history.errors());
    let report = of_history(&history, prices.as_ref(), args);
    if report.rows.is_empty() {
        let range = args.since.0.map_or(TimeRange::All, TimeRange::Last);
        output::note(&nothing(selection, range));
    }
    for gap in gaps(&report) {
        output::note(&format!("note: {gap}"));
    }
    Ok(printed(&rendered(&report, args)))
}

fn of_history(history: &History, prices: Option<&Prices>, args: &CostArgs) -> Report {
    report(&usage(history, args.since.0), history, prices, args.by)
}

fn rendered(report: &Report, args: &CostArgs) -> String {
    match args.output {
        CostFormat::Table if report.rows.is_empty() => String::new(),
        CostFormat::Table => table(report, args.by, args.all_namespaces),
        CostFormat::Csv => csv(&report.rows),
        CostFormat::Json => {
            let (items, total) = (report.rows.as_slice(), &report.total);
            output::data(&Data { items, total }, false)
        }
    }
}

#[cfg(test)]
mod tests;
