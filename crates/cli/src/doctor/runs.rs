//! Whether a labelled run waits for longer than expected.

use super::Snapshot;
use super::finding::{Check, CheckResult, Finding, Level};
use crate::list::PlaceholdersByName;
use crate::state::State;
use crate::view::{RunView, created, full_name, label, unschedulable};
use crate::words::{after, count, span};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use placement::keys;
use std::collections::BTreeSet;
use std::time::Duration;

const RUNS: Check = Check("runs");
/// A release takes less than a second: a run that is held for this much longer than the deadline needs help.
const GRACE: Duration = Duration::from_secs(15);
/// A wait that a user should examine, although an autoscaler may need this time.
const LONG: Duration = Duration::from_mins(2);

pub(super) fn runs(snapshot: &Snapshot) -> CheckResult {
    let views = RUNS.read(&snapshot.runs)?;
    let well = format!(
        "{}; none waits for longer than it should.",
        count(views.len(), "labelled run")
    );
    let findings = [
        overdue(snapshot, views),
        waiting(snapshot, views),
        unschedulable_tasks(snapshot),
    ];
    Ok(RUNS.or_ok(findings.into_iter().flatten(), well))
}

/// Runs that no controller releases.
fn overdue(snapshot: &Snapshot, views: &[RunView]) -> Option<Finding> {
    let deadline = snapshot.known_config()?.hold_deadline;
    let is_overdue = |view: &&RunView| {
        let is_held = view.run.is_held_by_us() && !view.run.done && !view.run.deleting;
        is_held && end_of_hold(view, deadline).is_some_and(|end| end < snapshot.now)
    };
    let what = format!("Held for longer than hold-deadline ({})", span(deadline));
    finding(Level::Bad, &what, &names(views.iter().filter(is_overdue)))
}

/// The latest time of the run's release.
fn end_of_hold(view: &RunView, deadline: Duration) -> Option<Timestamp> {
    view.run.held_since().map(|since| after(since, deadline + GRACE))
}

fn waiting(snapshot: &Snapshot, views: &[RunView]) -> Option<Finding> {
    let deadline = snapshot.known_config().map(|config| config.hold_deadline);
    let is_overdue = |view: &RunView| {
        let end = deadline.and_then(|deadline| end_of_hold(view, deadline));
        end.is_some_and(|end| end < snapshot.now)
    };
    let sets = snapshot.sets.as_deref().unwrap_or_default();
    let placeholders = PlaceholdersByName::of(sets, snapshot.placeholders.as_deref().unwrap_or_default());
    let waits = |view: &&RunView| {
        let placeholder = placeholders.of_run(view);
        let state = State::of(view, &placeholder);
        let since = state.since(view, &placeholder);
        state == State::WaitingForNode
            && since.is_some_and(|since| after(since, LONG) < snapshot.now)
            && !is_overdue(view)
    };
    let what = format!("Waiting for a node for longer than {}", span(LONG));
    finding(Level::Warning, &what, &names(views.iter().filter(waits)))
}

fn names<'a>(views: impl Iterator<Item = &'a RunView>) -> Vec<String> {
    views.map(|view| view.run.key.to_string()).collect()
}

/// Runs that were released and have a task whose pod fits on no node.
fn unschedulable_tasks(snapshot: &Snapshot) -> Option<Finding> {
    let pods = snapshot.waiting.iter().flatten();
    let waits = |pod: &&Pod| {
        let since = created(&pod.metadata);
        unschedulable(pod).is_some() && since.is_some_and(|since| after(since, LONG) < snapshot.now)
    };
    let runs: BTreeSet<_> = pods.filter(waits).map(run_of).collect();
    let runs: Vec<_> = runs.into_iter().collect();
    let what = format!("A task has found no room for longer than {}", span(LONG));
    finding(Level::Warning, &what, &runs)
}

fn run_of(pod: &Pod) -> String {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    match label(&pod.metadata, keys::TEKTON_PIPELINE_RUN) {
        Some(run) => format!("{namespace}/{run}"),
        None => full_name(&pod.metadata),
    }
}

/// The finding on these runs, with the command that explains the first run.
fn finding(level: Level, what: &str, runs: &[String]) -> Option<Finding> {
    let (namespace, name) = runs.first().and_then(|name| name.split_once('/'))?;
    let remedy = format!("`kubectl pod-affinity explain -n {namespace} {name}`");
    RUNS.about(level, what, runs, remedy)
}
