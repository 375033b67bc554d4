//! What there is to say of a bar in words, for tooltips and for readers of the screen. Pure.

use super::model::{Bar, Mark, Place, Span, Standing, Task};
use crate::words::lasting;

/// Tasks that are listed; the rest is counted.
const LISTED: usize = 30;

/// Line by line: the run and its place, what it did when, its moves and its tasks.
pub(crate) fn details(bar: &Bar, place: &Place) -> Vec<String> {
    let segments = bar.segments.iter();
    let segments = segments.map(|it| format!("{}: {}", it.phase.words(), written(it.span)));
    let tasks = bar.tasks.iter().take(LISTED).map(task);
    let more = bar.tasks.len().saturating_sub(LISTED);
    let more = (more > 0).then(|| format!("and {more} more tasks"));
    [headline(bar, place), standing(bar)]
        .into_iter()
        .chain(segments)
        .chain(bar.marks.iter().map(of_mark))
        .chain(bar.notes.iter().cloned())
        .chain(tasks)
        .chain(more)
        .collect()
}

fn headline(bar: &Bar, place: &Place) -> String {
    let name = format!("{}/{}", bar.who.namespace, bar.who.name);
    match place {
        Place::Node(node) => format!("{name} on {node}"),
        Place::Nowhere => format!("{name}, without a node"),
        Place::Unknown => format!("{name}, node unknown"),
    }
}

fn standing(bar: &Bar) -> String {
    let who = &bar.who;
    let standing = match (who.standing, &who.strategy) {
        (Standing::Labelled, Some(strategy)) => format!("labelled, {strategy}"),
        (Standing::Labelled, None) => "labelled".to_owned(),
        (Standing::Nested, _) => "nested".to_owned(),
        (Standing::Unlabelled, _) => "not placed by pod-affinity".to_owned(),
    };
    let outcome = who
        .succeeded
        .map(|well| if well { "succeeded" } else { "failed" }.to_owned());
    let words: Vec<_> = [standing, who.state.to_string()]
        .into_iter()
        .chain(outcome)
        .collect();
    words.join(", ")
}

pub(crate) fn task(task: &Task) -> String {
    let failed = if task.failed { ", failed" } else { "" };
    format!("task {}: {}{failed}", task.name, written(task.span))
}

pub(crate) fn written(span: Span) -> String {
    let time = |time: jiff::Timestamp| time.strftime("%H:%M:%S").to_string();
    format!(
        "{} to {} ({})",
        time(span.from),
        time(span.to),
        lasting(span.from, span.to)
    )
}

pub(crate) fn of_mark(mark: &Mark) -> String {
    format!("{} {}", mark.at.strftime("%H:%M:%S"), mark.text)
}
