//! Does a run wait for longer than it should?

use super::{Exam, Finding};
use crate::list::Seats;
use crate::state::State;
use crate::view::{RunView, created, full_name, unschedulable};
use crate::words::{after, count, list, span};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use placement::config::Config;
use placement::keys;
use std::collections::BTreeSet;
use std::time::Duration;

const CHECK: &str = "runs";
const NAMED: usize = 5;
/// A release takes less than a second; what takes this much longer than the deadline does not come by itself.
const GRACE: Duration = Duration::from_secs(15);
/// From then on somebody should have a look, also where an autoscaler needs its time.
const LONG: Duration = Duration::from_mins(2);

pub(super) fn findings(exam: &Exam) -> Vec<Finding> {
    let runs = match &exam.runs {
        Err(gap) => return vec![Finding::unseen(CHECK, gap)],
        Ok(runs) => runs,
    };
    let views: Vec<_> = runs.iter().filter_map(RunView::of).collect();
    let seats = Seats::of(
        exam.sets.as_deref().unwrap_or_default(),
        exam.pods.as_deref().unwrap_or_default(),
    );
    let found = [overdue(exam, &views), waiting(exam, &views, &seats), unfit(exam)];
    let found: Vec<_> = found.into_iter().flatten().collect();
    if found.is_empty() {
        let sentence = format!(
            "{}; none waits for longer than it should.",
            count(views.len(), "labelled run")
        );
        return vec![Finding::ok(CHECK, sentence)];
    }
    found
}

pub(super) fn config(exam: &Exam) -> Config {
    let data = exam
        .config
        .as_ref()
        .ok()
        .and_then(Option::as_ref)
        .and_then(|map| map.data.clone());
    Config::parse(&data.unwrap_or_default()).unwrap_or_default()
}

/// Nobody releases it.
fn overdue(exam: &Exam, views: &[RunView]) -> Option<Finding> {
    let deadline = config(exam).hold_deadline;
    let names = names(views, |view| {
        let end = end_of_hold(view, deadline);
        is_overdue_hold(view) && end.is_some_and(|end| end < exam.now)
    });
    (!names.is_empty()).then(|| {
        Finding::bad(
            CHECK,
            format!(
                "Held for longer than hold-deadline ({}): {}.",
                span(deadline),
                list(&names, NAMED)
            ),
            explain(&names),
        )
    })
}

/// By when it ought to have been released.
fn end_of_hold(view: &RunView, deadline: Duration) -> Option<Timestamp> {
    view.run.held_since().map(|since| after(since, deadline + GRACE))
}

fn is_overdue_hold(view: &RunView) -> bool {
    view.run.is_held_by_us() && !view.run.done && !view.run.deleting
}

fn waiting(exam: &Exam, views: &[RunView], seats: &Seats<'_>) -> Option<Finding> {
    let deadline = config(exam).hold_deadline;
    let names = names(views, |view| {
        let seat = seats.of_run(view);
        let state = State::of(view, &seat);
        let since = state.since(view, &seat).map(|since| after(since, LONG));
        let end = end_of_hold(view, deadline);
        state == State::WaitingForNode
            && since.is_some_and(|since| since < exam.now)
            && end.is_some_and(|end| end >= exam.now)
    });
    (!names.is_empty()).then(|| {
        Finding::warning(
            CHECK,
            format!(
                "Waiting for a node for longer than {}: {}.",
                span(LONG),
                list(&names, NAMED)
            ),
            explain(&names),
        )
    })
}

fn names(views: &[RunView], is: impl Fn(&RunView) -> bool) -> Vec<String> {
    views
        .iter()
        .filter(|view| is(view))
        .map(|view| view.run.key.to_string())
        .collect()
}

/// Tasks of enrolled runs that find no room.
fn unfit(exam: &Exam) -> Option<Finding> {
    let pods = exam.waiting.as_deref().ok()?;
    let runs: BTreeSet<_> = pods
        .iter()
        .filter(|pod| waits_long(exam, pod))
        .map(run_of)
        .collect();
    let names: Vec<_> = runs.into_iter().collect();
    (!names.is_empty()).then(|| {
        Finding::warning(
            CHECK,
            format!(
                "A task has found no room for longer than {}: {}.",
                span(LONG),
                list(&names, NAMED)
            ),
            explain(&names),
        )
    })
}

fn waits_long(exam: &Exam, pod: &Pod) -> bool {
    let since = created(&pod.metadata).map(|created| after(created, LONG));
    unschedulable(pod).is_some() && since.is_some_and(|since| since < exam.now)
}

fn run_of(pod: &Pod) -> String {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    match crate::view::label(&pod.metadata, keys::TEKTON_PIPELINE_RUN) {
        Some(run) => format!("{namespace}/{run}"),
        None => full_name(&pod.metadata),
    }
}

fn explain(names: &[String]) -> String {
    let (namespace, name) = names
        .first()
        .and_then(|name| name.split_once('/'))
        .unwrap_or_default();
    format!("`kubectl pod-affinity explain -n {namespace} {name}`")
}
