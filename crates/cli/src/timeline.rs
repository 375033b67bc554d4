//! `timeline`: on which nodes runs were, and when, as text, SVG or HTML.
//!
//! [`read`] reads the objects that the API server still has. [`evidence`] groups them by run, [`stays`] finds the nodes of a run,
//! [`bars`] and [`lanes`] make the [`model`], and [`text`] and [`svg`] draw the model.

mod bars;
mod evidence;
mod labels;
mod lanes;
pub(crate) mod model;
pub(crate) mod read;
mod stays;
mod svg;
pub(crate) mod text;
pub(crate) mod usage;

pub(crate) use read::{History, Selection};
pub(crate) use svg::{html, svg};
pub(crate) use text::text;

use crate::view::RunView;
use crate::words::{count, span as lasting};
use evidence::{Evidence, Index};
use jiff::{SignedDuration, Timestamp};
use lanes::{Nodes, lanes};
use model::{Bar, Enrollment, Place, RunInfo, Span, Timeline};
use std::time::Duration;

/// The shortest window: events and tasks have whole seconds.
const SHORTEST: SignedDuration = SignedDuration::from_secs(10);

/// How far back the picture goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeRange {
    Last(Duration),
    /// From the oldest bar to now.
    All,
    /// From the oldest bar to the end of the last bar, for a run that may have ended long ago.
    Whole,
}

/// The timeline of these objects.
pub(crate) fn timeline(history: &History, selection: Selection<'_>, reach: TimeRange) -> Timeline {
    let index = Index::new(history);
    let views = history.runs.iter().filter_map(RunView::of);
    let bars = views.flat_map(|view| bars(&index.evidence(view), selection.namespace.is_none()));
    let bars: Vec<_> = bars.collect();
    let window = window(&bars, history.now, reach);
    let nodes = Nodes::new(history);
    let changed = selection.run.is_none().then(|| nodes.changed(window));
    Timeline {
        window,
        about: about(selection),
        lanes: lanes(bars, changed.unwrap_or_default(), &nodes, window),
        missing: history.errors().iter().map(ToString::to_string).collect(),
    }
}

fn about(selection: Selection<'_>) -> String {
    match (selection.run, selection.namespace) {
        (Some(run), Some(namespace)) => format!("PipelineRun {namespace}/{run}"),
        (_, Some(namespace)) => format!("PipelineRuns of namespace {namespace}"),
        (_, None) => "PipelineRuns of all namespaces".to_owned(),
    }
}

fn bars(evidence: &Evidence<'_>, full_names: bool) -> Vec<(Place, Bar)> {
    let run = run_info(evidence, full_names);
    match run.enrollment {
        Enrollment::Labelled => bars::of_placed_run(evidence, &run),
        Enrollment::Nested | Enrollment::Unlabelled => bars::of_other_run(evidence, &run),
    }
}

fn run_info(evidence: &Evidence<'_>, full_names: bool) -> RunInfo {
    let run = &evidence.view.run;
    let enrollment = evidence.enrollment();
    let full_name = run.key.to_string();
    RunInfo {
        namespace: run.key.namespace.clone(),
        name: run.key.name.clone(),
        label: if full_names {
            full_name
        } else {
            run.key.name.clone()
        },
        enrollment,
        strategy: run
            .strategy
            .clone()
            .filter(|_| enrollment == Enrollment::Labelled),
        state: evidence.state,
        succeeded: evidence.view.verdict.as_ref().map(|(succeeded, _)| *succeeded),
    }
}

fn window(bars: &[(Place, Bar)], now: Timestamp, reach: TimeRange) -> Span {
    let first = bars.iter().map(|(_, bar)| bar.span.from).min().unwrap_or(now);
    let last = bars.iter().map(|(_, bar)| bar.span.to).max().unwrap_or(now);
    let (from, to) = match reach {
        TimeRange::Last(duration) => {
            let duration = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
            (now.checked_sub(duration).unwrap_or(Timestamp::MIN), now)
        }
        TimeRange::All => (first, now),
        TimeRange::Whole => (first, last),
    };
    Span::new(from.min(to.checked_sub(SHORTEST).unwrap_or(to)), to)
}

/// `PipelineRuns of namespace ci: 3 runs in 60m, until 2027-01-15 09:00:00 UTC`.
fn title(timeline: &Timeline) -> String {
    let lasted = lasting(Duration::try_from(timeline.window.length()).unwrap_or_default());
    format!(
        "{}: {} in {lasted}, until {} UTC",
        timeline.about,
        count(timeline.runs(), "run"),
        timeline.window.to.strftime("%Y-%m-%d %H:%M:%S")
    )
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
