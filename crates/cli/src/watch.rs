//! `list --watch`: prints all rows, and then each row again when it changes.

use crate::args::Output;
use crate::filter::Filter;
use crate::follow::{CachedObjects, Change, changes};
use crate::gather::{config, placeholder_selector};
use crate::list::{Layout, Row};
use crate::output;
use crate::requests::{RequestResult, Server};
use crate::table;
use crate::view::PipelineRun;
use futures::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use placement::config::Config;
use std::collections::BTreeMap;
use std::process::ExitCode;

/// Prints rows that differ from the rows before.
struct Printer {
    layout: Layout,
    format: Output,
    /// The time of the API server, less the time of this machine.
    ahead: SignedDuration,
    config: Option<Config>,
    shown: BTreeMap<String, Row>,
    widths: Vec<usize>,
}

/// Watches until the user interrupts the program, or the API server rejects a watch.
pub(crate) async fn watch(
    server: &Server,
    namespace: Option<&str>,
    runs: &Filter,
    layout: Layout,
    format: Output,
) -> RequestResult<ExitCode> {
    // A watch waits for long. This request soon fails if the API server is unavailable.
    let ahead = server.clock().await?.duration_since(Timestamp::now());
    let placeholders = Filter::labels(&placeholder_selector());
    let changes = stream::select_all([
        changes::<PipelineRun>(server, namespace, runs, Change::Run),
        changes::<StatefulSet>(server, namespace, &placeholders, Change::Set),
        changes::<Pod>(server, namespace, &placeholders, Change::Pod),
    ]);
    let config = config(server).await;
    if let Some(error) = config.as_ref().err().filter(|_| format.has_deadlines()) {
        output::note(&format!("note: {error}"));
    }
    let mut printer = Printer {
        layout,
        format,
        ahead,
        config: config.ok(),
        shown: BTreeMap::new(),
        widths: Vec::new(),
    };
    let mut known = CachedObjects::default();
    let mut changes = std::pin::pin!(changes);
    while let Some(change) = changes.next().await {
        if known.take(change?) && output::print(&printer.new_lines(&known)).is_err() {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Printer {
    /// The rows that differ from the rows that were printed last.
    fn new_lines(&mut self, known: &CachedObjects) -> String {
        let rows: Vec<_> = known
            .rows(self.config.as_ref())
            .into_iter()
            .map(|row| self.visible(row))
            .collect();
        let is_new = |row: &&Row| {
            let shown = self.shown.get(&key(row));
            shown.is_none_or(|shown| self.differ(shown, row))
        };
        let new_lines: Vec<Row> = rows.iter().filter(is_new).cloned().collect();
        self.shown = rows.into_iter().map(|row| (key(&row), row)).collect();
        self.text(&new_lines)
    }

    /// The row without the columns that are not printed, so that they cause no new line.
    fn visible(&self, row: Row) -> Row {
        match self.format {
            Output::Wide | Output::Json | Output::Yaml => row,
            Output::Table | Output::Name => Row {
                placeholder: None,
                group: None,
                held_by: None,
                opted_in_by: None,
                position: None,
                hold_ends: None,
                ..row
            },
        }
    }

    /// A table shows how long a run is in its state. This becomes more exact when Tekton has written the start of the run, which is
    /// no reason for a new line.
    fn differ(&self, shown: &Row, row: &Row) -> bool {
        match self.format {
            Output::Table | Output::Wide | Output::Name => {
                let since = row.since;
                *row != Row {
                    since,
                    ..shown.clone()
                }
            }
            Output::Json | Output::Yaml => row != shown,
        }
    }

    fn text(&mut self, new_lines: &[Row]) -> String {
        match self.format {
            Output::Table | Output::Wide => self.table(new_lines),
            Output::Json => new_lines.iter().map(|row| output::data(row, false)).collect(),
            Output::Yaml => new_lines
                .iter()
                .map(|row| format!("---\n{}", output::data(row, true)))
                .collect(),
            Output::Name => new_lines
                .iter()
                .map(|row| format!("pipelinerun.tekton.dev/{}\n", row.name))
                .collect(),
        }
    }

    /// The names of the columns are printed once. A column never becomes narrower.
    fn table(&mut self, new_lines: &[Row]) -> String {
        if new_lines.is_empty() {
            return String::new();
        }
        let now = Timestamp::now()
            .saturating_add(self.ahead)
            .unwrap_or(Timestamp::MAX);
        let heads = self.layout.heads();
        let cells: Vec<_> = new_lines.iter().map(|row| self.layout.cells(row, now)).collect();
        let head: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
        let first = (self.layout.headed && self.widths.is_empty()).then_some(&head);
        self.widths = wider(&self.widths, table::widths(&heads, &cells));
        let lines = first.into_iter().chain(&cells);
        lines.map(|row| table::line(row, &self.widths)).collect()
    }
}

fn wider(known: &[usize], wanted: Vec<usize>) -> Vec<usize> {
    let known = known.iter().copied().chain(std::iter::repeat(0));
    wanted
        .into_iter()
        .zip(known)
        .map(|(one, other)| one.max(other))
        .collect()
}

fn key(row: &Row) -> String {
    format!("{}/{}", row.namespace, row.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{UID, merged, placeholder, released, run};
    use kube::runtime::watcher::Event;
    use serde_json::json;

    fn printer(format: Output) -> Printer {
        let layout = Layout {
            namespaces: false,
            wide: false,
            headed: true,
        };
        Printer {
            layout,
            format,
            ahead: SignedDuration::ZERO,
            config: Some(Config::default()),
            shown: BTreeMap::new(),
            widths: Vec::new(),
        }
    }

    fn known(runs: &[PipelineRun], pods: &[Pod]) -> CachedObjects {
        let mut known = CachedObjects::default();
        known.take(Change::Set(Box::new(Event::InitDone)));
        for pod in pods {
            known.take(Change::Pod(Box::new(Event::InitApply(pod.clone()))));
        }
        known.take(Change::Pod(Box::new(Event::InitDone)));
        for run in runs {
            assert!(!known.take(Change::Run(Box::new(Event::InitApply(run.clone())))));
        }
        assert!(known.take(Change::Run(Box::new(Event::InitDone))));
        known
    }

    #[test]
    fn a_row_comes_again_only_when_it_changes_and_the_heads_never() {
        let mut printer = printer(Output::Table);
        let mut known = known(&[run(&json!({}))], &[]);
        let first = printer.new_lines(&known);
        assert!(first.starts_with("NAME ") && first.contains("Held"), "{first}");
        assert_eq!(printer.new_lines(&known), "");
        known.take(Change::Run(Box::new(Event::Apply(run(&released())))));
        let second = printer.new_lines(&known);
        assert!(
            second.starts_with("build ") && second.contains("Running"),
            "{second}"
        );
    }

    #[test]
    fn a_start_that_tekton_writes_later_is_no_change_of_a_table_but_one_of_the_data() {
        for (format, rows) in [(Output::Table, 0), (Output::Json, 1)] {
            let mut printer = printer(format);
            let unstarted = merged(released(), &json!({"status": {"startTime": null}}));
            let mut known = known(&[run(&unstarted)], &[]);
            printer.new_lines(&known);
            known.take(Change::Run(Box::new(Event::Apply(run(&released())))));
            assert_eq!(printer.new_lines(&known).matches("Running").count(), rows);
        }
    }

    #[test]
    fn a_placeholder_that_changes_is_a_change_of_its_run() {
        let mut printer = printer(Output::Json);
        let mut known = known(&[run(&json!({}))], &[]);
        printer.new_lines(&known);
        let bound = placeholder("build", UID, Some("node-7"), &json!({}));
        known.take(Change::Pod(Box::new(Event::Apply(bound))));
        assert!(printer.new_lines(&known).contains("\"node\": \"node-7\""));
    }

    #[test]
    fn a_list_that_comes_again_is_no_change_and_what_is_gone_is_forgotten() {
        let mut printer = printer(Output::Name);
        let other = run(&json!({"metadata": {"name": "other", "uid": "u2"}}));
        let mut known = known(&[run(&json!({})), other.clone()], &[]);
        assert_eq!(printer.new_lines(&known).lines().count(), 2);
        known.take(Change::Run(Box::new(Event::Init)));
        assert_eq!(printer.new_lines(&known), "");
        known.take(Change::Run(Box::new(Event::InitApply(other.clone()))));
        known.take(Change::Run(Box::new(Event::InitDone)));
        assert_eq!(printer.new_lines(&known), "");
        known.take(Change::Run(Box::new(Event::Delete(other.clone()))));
        printer.new_lines(&known);
        known.take(Change::Run(Box::new(Event::Apply(other))));
        assert_eq!(printer.new_lines(&known), "pipelinerun.tekton.dev/other\n");
    }

    #[test]
    fn documents_of_yaml_are_told_apart() {
        let text = printer(Output::Yaml).new_lines(&known(&[run(&merged(released(), &json!({})))], &[]));
        assert!(text.starts_with("---\nnamespace: ci\n"), "{text}");
    }
}
