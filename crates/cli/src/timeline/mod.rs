//! `timeline`: which run was where and when, as a picture.
//!
//! [`gather`] reads what the API server still has. [`evidence`] puts together what belongs to one run, [`placed`] and
//! [`loose`] make bars of it, and [`lanes`] sorts them by node. [`text`], [`svg`] and [`html`] draw the same [`model`].

mod details;
mod escape;
mod evidence;
pub(crate) mod gather;
mod html;
mod lanes;
mod loose;
pub(crate) mod model;
mod node_end;
mod placed;
mod rows;
mod sightings;
mod svg;
mod task_run;
pub(crate) mod text;
mod ticks;

pub(crate) use gather::{Facts, Scope};
pub(crate) use html::html;
pub(crate) use svg::svg;
pub(crate) use text::text;

use crate::view::RunView;
use crate::words::{count, span as lasting};
use evidence::{Evidence, Index};
use jiff::{SignedDuration, Timestamp};
use lanes::{Nodes, lanes};
use model::{Bar, Place, Span, Standing, Timeline, Who};
use std::time::Duration;

/// A picture of less time would show nothing but rounded seconds.
const SHORTEST: SignedDuration = SignedDuration::from_secs(10);

/// How far back the picture reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Last(Duration),
    /// From the first thing that is known to now.
    All,
    /// From the first thing to the last: for one run, which may have ended long ago.
    Whole,
}

/// The timeline of what was read.
pub(crate) fn timeline(facts: &Facts, scope: Scope<'_>, reach: Reach) -> Timeline {
    let index = Index::of(facts);
    let views = facts.runs.iter().filter_map(RunView::of);
    let bars: Vec<_> = views
        .flat_map(|view| bars(&index.evidence(view), scope.namespace.is_none()))
        .collect();
    let window = window(&bars, facts.now, reach);
    let nodes = Nodes::of(facts);
    let changed = if scope.run.is_none() {
        nodes.changed(window)
    } else {
        Vec::new()
    };
    Timeline {
        window,
        about: about(scope),
        lanes: lanes(bars, changed, &nodes, window),
        missing: facts.gaps().iter().map(ToString::to_string).collect(),
    }
}

fn about(scope: Scope<'_>) -> String {
    match (scope.run, scope.namespace) {
        (Some(run), Some(namespace)) => format!("PipelineRun {namespace}/{run}"),
        (_, Some(namespace)) => format!("PipelineRuns of namespace {namespace}"),
        (_, None) => "PipelineRuns of all namespaces".to_owned(),
    }
}

fn bars(evidence: &Evidence<'_>, full_names: bool) -> Vec<(Place, Bar)> {
    let who = who(evidence, full_names);
    match who.standing {
        Standing::Labelled => placed::bars(evidence, &who),
        Standing::Nested | Standing::Unlabelled => loose::bars(evidence, &who),
    }
}

fn who(evidence: &Evidence<'_>, full_names: bool) -> Who {
    let run = &evidence.view.run;
    let standing = evidence.standing();
    let strategy = run.strategy.clone().filter(|_| standing == Standing::Labelled);
    Who {
        namespace: run.key.namespace.clone(),
        name: run.key.name.clone(),
        label: if full_names {
            run.key.to_string()
        } else {
            run.key.name.clone()
        },
        standing,
        strategy,
        state: evidence.state,
        succeeded: evidence.view.verdict.as_ref().map(|(well, _)| *well),
    }
}

fn window(bars: &[(Place, Bar)], now: Timestamp, reach: Reach) -> Span {
    let first = bars.iter().map(|(_, bar)| bar.span.from).min().unwrap_or(now);
    let last = bars.iter().map(|(_, bar)| bar.span.to).max().unwrap_or(now);
    let back = |from: Timestamp, by| from.checked_sub(by).unwrap_or(from);
    let (from, to) = match reach {
        Reach::Last(duration) => {
            let duration = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
            (now.checked_sub(duration).unwrap_or(Timestamp::MIN), now)
        }
        Reach::All => (first, now),
        Reach::Whole => (first, last),
    };
    Span::new(from.min(back(to, SHORTEST)), to)
}

/// `PipelineRuns of namespace ci: 3 runs in 60m, until 2027-01-15 09:00:00 UTC`.
pub(crate) fn title(timeline: &Timeline) -> String {
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
