//! `timeline`: reads the runs, and prints a picture.

use super::read::unknown;
use super::{notes, printed};
use crate::args::{Limit, Picture, TimelineArgs};
use crate::client::Cluster;
use crate::output;
use crate::requests::RequestResult;
use crate::timeline::model::Timeline;
use crate::timeline::{History, Selection, TimeRange, html, read, svg, text, timeline};
use crate::words::span;
use std::process::ExitCode;
use std::time::Duration;

/// How far back the picture goes without `--since`.
const HOUR: Duration = Duration::from_hours(1);

/// Runs the verb.
pub(super) async fn timeline_of(cluster: &Cluster, args: &TimelineArgs) -> RequestResult<ExitCode> {
    let target = args.target()?;
    let own = target.as_ref().and_then(|target| target.namespace.as_deref());
    let namespace = own.or((!args.all_namespaces).then_some(&cluster.namespace));
    let selection = Selection {
        namespace,
        run: target.as_ref().map(|target| target.name.as_str()),
        labels: None,
    };
    let history = Box::pin(read::history(&cluster.server, selection)).await?;
    if let (Some(name), Some(namespace), []) = (selection.run, namespace, history.runs.as_slice()) {
        return Ok(unknown(cluster, namespace, name).await);
    }
    Ok(shown(&history, selection, args))
}

fn shown(history: &History, selection: Selection<'_>, args: &TimelineArgs) -> ExitCode {
    let reach = reach(args);
    let timeline = timeline(history, selection, reach);
    notes(history.errors());
    if timeline.is_empty() {
        output::note(&nothing(selection, reach));
    }
    match args.output {
        Picture::Text if timeline.is_empty() => ExitCode::SUCCESS,
        format => printed(&drawn(&timeline, format)),
    }
}

fn reach(args: &TimelineArgs) -> TimeRange {
    match (args.since, &args.run) {
        (Some(Limit(Some(duration))), _) => TimeRange::Last(duration),
        (Some(Limit(None)), _) => TimeRange::All,
        (None, Some(_)) => TimeRange::Whole,
        (None, None) => TimeRange::Last(HOUR),
    }
}

fn drawn(timeline: &Timeline, format: Picture) -> String {
    match format {
        Picture::Text => text(timeline, output::width(), output::ink),
        Picture::Svg => svg(timeline),
        Picture::Html => html(timeline),
    }
}

/// The note on a timeline or a report without runs, with the options that show more runs.
pub(super) fn nothing(selection: Selection<'_>, reach: TimeRange) -> String {
    let what = match (selection.run, selection.namespace) {
        (Some(run), _) => format!("PipelineRun {run} was not there"),
        (None, Some(namespace)) => format!("No PipelineRuns in namespace {namespace}"),
        (None, None) => "No PipelineRuns in any namespace".to_owned(),
    };
    let when = match reach {
        TimeRange::Last(duration) => format!(" in the last {}", span(duration)),
        TimeRange::All | TimeRange::Whole => String::new(),
    };
    let further = (when.is_empty(), selection.run, selection.namespace);
    let further = match further {
        (false, None, Some(_)) => " Use a longer --since, or -A for all namespaces.",
        (false, _, _) => " Use a longer --since; 0 shows all that is left.",
        (true, _, Some(_)) => " Use -A for all namespaces.",
        (true, _, None) => " Create one, and try again.",
    };
    format!("{what}{when}.{further}")
}

#[cfg(test)]
mod tests;
