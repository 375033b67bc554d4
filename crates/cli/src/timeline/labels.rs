//! The texts of a picture: descriptions of bars for tooltips and screen readers, times of the axis, and shortened names.

use super::model::{Bar, Enrollment, Mark, Place, Span, TaskSpan};
use crate::words::lasting;
use jiff::Timestamp;

/// Tasks that a description lists; the rest is counted.
const LISTED: usize = 30;
/// From this length on, a shortened name keeps its beginning and its end.
const BOTH_ENDS: usize = 10;
/// Seconds between two times of the axis.
const STEPS: [i64; 18] = [
    1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400, 172_800, 604_800,
    2_592_000,
];
const MINUTE: i64 = 60;
const DAY: i64 = 86_400;

/// The lines of a bar's description: the run and its place, the phases, the moves, the notes and the tasks.
pub(super) fn description(bar: &Bar, place: &Place) -> Vec<String> {
    let segments = bar.segments.iter();
    let segments = segments.map(|it| format!("{}: {}", it.phase.description(), times(it.span)));
    let tasks = bar.tasks.iter().take(LISTED).map(of_task);
    let more = bar.tasks.len().saturating_sub(LISTED);
    let more = (more > 0).then(|| format!("and {more} more tasks"));
    [headline(bar, place), enrollment(bar)]
        .into_iter()
        .chain(segments)
        .chain(bar.marks.iter().map(of_mark))
        .chain(bar.notes.iter().cloned())
        .chain(tasks)
        .chain(more)
        .collect()
}

fn headline(bar: &Bar, place: &Place) -> String {
    let (namespace, name) = bar.key();
    match place {
        Place::Node(node) => format!("{namespace}/{name} on {node}"),
        Place::Nowhere | Place::Unknown => format!("{namespace}/{name}, {}", place.title()),
    }
}

fn enrollment(bar: &Bar) -> String {
    let run = &bar.run;
    let enrollment = match (run.enrollment, &run.strategy) {
        (Enrollment::Labelled, Some(strategy)) => format!("labelled, {strategy}"),
        (Enrollment::Labelled, None) => "labelled".to_owned(),
        (Enrollment::Nested, _) => "nested".to_owned(),
        (Enrollment::Unlabelled, _) => "not placed by pod-affinity".to_owned(),
    };
    let outcome = match run.succeeded {
        None => "",
        Some(true) => ", succeeded",
        Some(false) => ", failed",
    };
    format!("{enrollment}, {}{outcome}", run.state)
}

pub(super) fn of_task(task: &TaskSpan) -> String {
    let failed = if task.failed { ", failed" } else { "" };
    format!("task {}: {}{failed}", task.name, times(task.span))
}

pub(super) fn of_mark(mark: &Mark) -> String {
    format!("{} {}", clock(mark.at), mark.text)
}

/// `08:00:20 to 08:00:40 (20s)`.
pub(super) fn times(span: Span) -> String {
    let Span { from, to } = span;
    format!("{} to {} ({})", clock(from), clock(to), lasting(from, to))
}

fn clock(time: Timestamp) -> String {
    time.strftime("%H:%M:%S").to_string()
}

/// At most this many round times within the window, and their texts.
pub(super) fn ticks(window: Span, most: usize) -> Vec<(Timestamp, String)> {
    let (from, to) = (window.from.as_second(), window.to.as_second());
    let most = i64::try_from(most.max(1)).unwrap_or(1);
    let fits = |step: &&i64| (to - from) / **step <= most;
    let step = STEPS.iter().find(fits).copied().unwrap_or((to - from) / most + 1);
    let format = match to - from {
        _ if step >= DAY => "%m-%d",
        length if length > DAY => "%m-%d %H:%M",
        _ if step >= MINUTE => "%H:%M",
        _ => "%H:%M:%S",
    };
    let first = from.div_euclid(step) * step;
    let times = (0..=most + 1).filter_map(|number| Timestamp::from_second(first + number * step).ok());
    let times = times.filter(|time| window.has(*time));
    times
        .map(|time| (time, time.strftime(format).to_string()))
        .collect()
}

/// The name with at most this many letters. Generated names differ at their ends, so a short name keeps its end.
pub(super) fn shortened(name: &str, most: usize) -> String {
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= most {
        return name.to_owned();
    }
    let kept = most.saturating_sub(1);
    let head = if most < BOTH_ENDS { 0 } else { kept / 2 };
    let tail = letters.len() - (kept - head);
    letters[..head]
        .iter()
        .chain(&['…'])
        .chain(&letters[tail..])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::at;

    fn written(seconds: i64, most: usize) -> Vec<String> {
        let window = Span::new(at(0), at(seconds));
        ticks(window, most).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn ticks_are_round_few_and_written_as_finely_as_they_lie() {
        assert_eq!(written(3600, 3), ["08:00", "08:30", "09:00"]);
        assert_eq!(
            written(50, 6),
            [
                "08:00:00", "08:00:10", "08:00:20", "08:00:30", "08:00:40", "08:00:50"
            ]
        );
        assert_eq!(written(3 * DAY, 4), ["01-16", "01-17", "01-18"]);
        assert_eq!(
            written(2 * DAY, 6),
            ["01-15 12:00", "01-16 00:00", "01-16 12:00", "01-17 00:00"]
        );
    }

    #[test]
    fn a_window_of_years_has_few_ticks_too() {
        assert!(written(400 * DAY * 10, 8).len() <= 9);
    }

    #[test]
    fn a_shortened_name_keeps_its_end_and_if_there_is_room_its_beginning() {
        assert_eq!(shortened("build-1", 7), "build-1");
        assert_eq!(shortened("gke-prod-pool-x7f2", 10), "gke-…-x7f2");
        assert_eq!(shortened("build-172", 4), "…172");
    }
}
