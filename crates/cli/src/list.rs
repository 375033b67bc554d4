//! `list`: one row for each labelled run. Pure.

use crate::args::Column;
use crate::observe::observation;
use crate::state::State;
use crate::table;
use crate::view::{PlaceholderObjects, RunView, full_name};
use crate::words::{after, age};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use placement::config::Config;
use placement::opt_in::OptIn;
use placement::queue::Member;
use placement::run::SpecStatus;
use placement::strategy::Strategy;
use serde::Serialize;
use std::collections::HashMap;

/// The row of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) namespace: String,
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) strategy: Option<String>,
    pub(crate) state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) placeholder: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) held_by: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) opted_in_by: Option<&'static str>,
    /// The position among the listed runs of the same kind that have no node. The oldest run has the position 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) position: Option<usize>,
    /// When the hold ends at the latest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hold_ends: Option<Timestamp>,
}

/// The columns of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) namespaces: bool,
    pub(crate) wide: bool,
    pub(crate) headed: bool,
}

/// The StatefulSets and pods of placeholders, by namespace and name.
#[derive(Debug, Default)]
pub(crate) struct PlaceholdersByName<'a> {
    sets: HashMap<String, &'a StatefulSet>,
    pods: HashMap<String, &'a Pod>,
}

impl<'a> PlaceholdersByName<'a> {
    pub(crate) fn of(
        sets: impl IntoIterator<Item = &'a StatefulSet>,
        pods: impl IntoIterator<Item = &'a Pod>,
    ) -> Self {
        let sets = sets.into_iter().map(|set| (full_name(&set.metadata), set));
        let pods = pods.into_iter().map(|pod| (full_name(&pod.metadata), pod));
        Self {
            sets: sets.collect(),
            pods: pods.collect(),
        }
    }

    pub(crate) fn of_run(&self, view: &RunView) -> PlaceholderObjects<'a> {
        let (namespace, name) = (&view.run.key.namespace, view.run.key.placeholder());
        PlaceholderObjects {
            set: self.sets.get(&format!("{namespace}/{name}")).copied(),
            pod: self.pods.get(&format!("{namespace}/{}", name.pod())).copied(),
        }
    }
}

/// The rows of these runs, sorted by namespace and name. `config` is the configuration, if it could be read.
pub(crate) fn rows<'a>(
    views: impl Iterator<Item = &'a RunView> + Clone,
    placeholders: &PlaceholdersByName<'_>,
    config: Option<&Config>,
) -> Vec<Row> {
    let positions = positions(views.clone(), placeholders, config);
    let row = |view: &RunView| Row {
        position: positions.get(&view.run.key.uid).copied(),
        ..row(view, &placeholders.of_run(view), config)
    };
    let mut rows: Vec<_> = views.map(row).collect();
    rows.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
    rows
}

/// The positions of the runs that wait for a node among the runs of their kind, by UID.
fn positions<'a>(
    views: impl Iterator<Item = &'a RunView>,
    placeholders: &PlaceholdersByName<'_>,
    config: Option<&Config>,
) -> HashMap<String, usize> {
    let member = |view: &RunView| {
        let config = config.cloned().unwrap_or_default();
        let observed = observation(
            &view.run,
            &placeholders.of_run(view),
            config,
            Timestamp::UNIX_EPOCH,
        );
        let member = Member::from_observation(&observed)?;
        let (kind, _) = member.waits?;
        Some((member.created, member.name, member.uid, kind))
    };
    let mut waiting: Vec<_> = views.filter_map(member).collect();
    waiting.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
    let mut counts = HashMap::<_, usize>::new();
    let position = |(_, _, uid, kind)| {
        let count = counts.entry(kind).or_default();
        *count += 1;
        (uid, *count)
    };
    waiting.into_iter().map(position).collect()
}

/// When the controller releases the run at the latest, while pod-affinity holds it. `None` without the configuration.
fn hold_ends(view: &RunView, config: Option<&Config>) -> Option<Timestamp> {
    let since = view
        .run
        .held_since()
        .filter(|_| view.run.is_held_by_us() && !view.run.done)?;
    Some(after(since, config?.hold_deadline))
}

/// The row of one run, without its position.
pub(crate) fn row(view: &RunView, placeholder: &PlaceholderObjects<'_>, config: Option<&Config>) -> Row {
    let default = config.map(|config| config.default_strategy);
    let state = State::of(view, placeholder);
    let run = &view.run;
    Row {
        namespace: run.key.namespace.clone(),
        name: run.key.name.clone(),
        strategy: strategy(view, default),
        state,
        node: placeholder.node().map(str::to_owned).or_else(|| run.node.clone()),
        since: state.since(view, placeholder),
        placeholder: placeholder.set.map(ResourceExt::name_any),
        group: run.group.clone(),
        held_by: held_by(view),
        opted_in_by: opted_in_by(view),
        position: None,
        hold_ends: hold_ends(view, config),
    }
}

/// Sorts by a column. Rows without a value come last; the order of equal rows stays.
pub(crate) fn sort(rows: &mut [Row], column: Column) {
    match column {
        Column::Namespace => rows.sort_by_key(|row| row.namespace.clone()),
        Column::Name => rows.sort_by_key(|row| row.name.clone()),
        Column::Strategy => rows.sort_by_key(|row| last(row.strategy.clone())),
        Column::State => rows.sort_by_key(|row| row.state.to_string()),
        Column::Node => rows.sort_by_key(|row| last(row.node.clone())),
        Column::Since => rows.sort_by_key(|row| last(row.since)),
    }
}

fn last<T>(cell: Option<T>) -> (bool, Option<T>) {
    (cell.is_none(), cell)
}

fn strategy(view: &RunView, default: Option<Strategy>) -> Option<String> {
    let enrolled = view.run.strategy.clone().filter(|_| view.run.is_enrolled());
    enrolled.or_else(|| match OptIn::parse(view.run.opt_in.as_deref()) {
        Ok(OptIn::Chosen(strategy)) => Some(strategy.to_string()),
        Ok(OptIn::Default) => Some(default.map_or("(default)".to_owned(), |it| it.to_string())),
        Ok(OptIn::Absent | OptIn::Declined) | Err(_) => None,
    })
}

fn opted_in_by(view: &RunView) -> Option<&'static str> {
    match OptIn::parse(view.run.opt_in.as_deref()) {
        Ok(OptIn::Default | OptIn::Chosen(_)) if view.by_namespace => Some("namespace"),
        Ok(OptIn::Default | OptIn::Chosen(_)) => Some("run"),
        Ok(OptIn::Absent | OptIn::Declined) | Err(_) => None,
    }
}

fn held_by(view: &RunView) -> Option<&'static str> {
    let run = &view.run;
    match run.status {
        _ if run.done => None,
        _ if run.is_held_by_us() => Some("pod-affinity"),
        SpecStatus::Pending if run.queued_by_kueue => Some("Kueue"),
        SpecStatus::Pending => Some("other"),
        SpecStatus::Unset | SpecStatus::Other(_) => None,
    }
}

impl Layout {
    /// The names of the columns.
    pub(crate) fn heads(self) -> Vec<&'static str> {
        let namespace = self.namespaces.then_some("NAMESPACE");
        let wide = [
            "PLACEHOLDER",
            "GROUP",
            "HELD-BY",
            "OPTED-IN-BY",
            "POSITION",
            "TIME-LEFT",
        ]
        .into_iter()
        .filter(|_| self.wide);
        namespace
            .into_iter()
            .chain(["NAME", "STRATEGY", "STATE", "NODE", "SINCE"])
            .chain(wide)
            .collect()
    }

    /// The cells of one row.
    pub(crate) fn cells(self, row: &Row, now: Timestamp) -> Vec<String> {
        let or_dash = |text: Option<&str>| text.unwrap_or("-").to_owned();
        let since = row.since.map(|since| age(since, now));
        let plain = [
            row.name.clone(),
            or_dash(row.strategy.as_deref()),
            row.state.to_string(),
            or_dash(row.node.as_deref()),
            or_dash(since.as_deref()),
        ];
        let position = row.position.map(|position| position.to_string());
        let left = row.hold_ends.map(|end| age(now, end));
        let wide = [
            row.placeholder.as_deref(),
            row.group.as_deref(),
            row.held_by,
            row.opted_in_by,
            position.as_deref(),
            left.as_deref(),
        ];
        let wide = wide.into_iter().filter(|_| self.wide).map(or_dash);
        let namespace = self.namespaces.then(|| row.namespace.clone());
        namespace.into_iter().chain(plain).chain(wide).collect()
    }

    /// All rows as a table.
    pub(crate) fn table(self, rows: &[Row], now: Timestamp) -> String {
        let cells: Vec<_> = rows.iter().map(|row| self.cells(row, now)).collect();
        table::table(&self.heads(), &cells, self.headed)
    }
}

#[cfg(test)]
mod tests;
