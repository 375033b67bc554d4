//! The timeline as text: a line for each bar, so that names can be read and nothing overlaps. Pure.

use super::details::{of_mark, written};
use super::model::{Bar, Lane, MarkKind, Phase, Place, Span, Standing, Task, Timeline};
use super::ticks::ticks;
use super::title;
use crate::words::{count, span as lasting, wrap};
use jiff::Timestamp;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// Columns of the picture, however narrow the terminal is.
const NARROWEST: usize = 20;
/// Columns between two times of the axis.
const TICK: usize = 12;
const TASK: char = '▪';
const MOVED: char = '>';
const ADDED: char = '+';
const REMOVED: char = 'x';
const UNLABELLED: char = '─';
/// Letters of a cut name that are enough for both its ends.
const BOTH_ENDS: usize = 10;

/// What a character is painted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ink {
    Plain,
    Of(Phase),
    Unlabelled,
    Failed,
}

/// How colours are put on: none in tests, and where there is no terminal.
pub(crate) type Paint = fn(Ink, &str) -> String;

type Cells = Vec<(char, Ink)>;

struct Canvas<'a> {
    window: Span,
    /// How many bars each run has.
    bars: HashMap<(&'a str, &'a str), usize>,
    names: usize,
    columns: usize,
    paint: Paint,
}

/// The picture, at most as wide as this.
pub(crate) fn text(timeline: &Timeline, width: usize, paint: Paint) -> String {
    let canvas = Canvas::of(timeline, width, paint);
    let with_tasks = timeline.runs() == 1;
    let lanes: String = timeline
        .lanes
        .iter()
        .map(|lane| canvas.lane(lane, with_tasks))
        .collect();
    let wrapped = |text: &str| -> String {
        let lines = text.lines().flat_map(|line| wrap(line, width));
        lines.map(|line| format!("{line}\n")).collect()
    };
    let (title, legend) = (wrapped(&title(timeline)), wrapped(&legend(timeline, with_tasks)));
    let story = with_tasks.then(|| format!("\n{}", wrapped(&story(timeline))));
    let story = story.unwrap_or_default();
    format!("{title}\n{}{lanes}\n{legend}{story}", canvas.axis())
}

impl<'a> Canvas<'a> {
    fn of(timeline: &'a Timeline, width: usize, paint: Paint) -> Self {
        let length = |text: &str| text.chars().count();
        let lanes = timeline.lanes.iter().map(|lane| length(&lane.heading()));
        let bars = timeline.bars().map(|bar| length(&bar.who.label) + 2);
        let longest = lanes.chain(bars).max().unwrap_or_default();
        let names = longest.clamp(8, (width / 3).max(8));
        let mut number = HashMap::new();
        for bar in timeline.bars() {
            *number.entry(bar.run()).or_default() += 1;
        }
        Self {
            window: timeline.window,
            bars: number,
            names,
            columns: width.saturating_sub(names + 3).max(NARROWEST),
            paint,
        }
    }

    fn axis(&self) -> String {
        let mut line = vec![' '; self.columns];
        let mut free = 0;
        for (time, text) in ticks(self.window, self.columns / TICK) {
            let at = self.column(time);
            if at >= free && at + text.len() <= self.columns {
                line[at..at + text.len()].copy_from_slice(&text.chars().collect::<Vec<_>>());
                free = at + text.len() + 1;
            }
        }
        let line: String = line.into_iter().collect();
        format!("{:1$}{2}\n", "", self.names + 2, line.trim_end())
    }

    fn lane(&self, lane: &Lane, with_tasks: bool) -> String {
        let mut cells = self.blank();
        for mark in &lane.marks {
            cells[self.column(mark.at)].0 = glyph_of(mark.kind);
        }
        let (brief, shown): (Vec<_>, Vec<_>) = lane.bars.iter().partition(|bar| self.is_brief(lane, bar));
        let bars: String = shown.into_iter().map(|bar| self.bar(bar, with_tasks)).collect();
        let rest = (!brief.is_empty()).then(|| self.rest(brief.len()));
        let heading = self.line(&lane.heading(), &cells);
        heading + &bars + &rest.unwrap_or_default()
    }

    /// It would fill less than a column, and its run has a line elsewhere.
    fn is_brief(&self, lane: &Lane, bar: &Bar) -> bool {
        let is_short = bar.span.length().as_secs_f64() < self.seconds();
        let others = self.bars.get(&bar.run()).is_some_and(|number| *number > 1);
        lane.place == Place::Nowhere && is_short && others
    }

    fn rest(&self, number: usize) -> String {
        let limit = lasting(Duration::from_secs_f64(self.seconds().ceil()));
        format!("  and {}, each for less than {limit}\n", count(number, "run"))
    }

    fn bar(&self, bar: &Bar, with_tasks: bool) -> String {
        let mut cells = self.blank();
        let mut segments = bar.segments.clone();
        // What is short is painted last, so that it can be seen.
        segments.sort_by_key(|it| std::cmp::Reverse(it.span.length()));
        for segment in segments {
            let cell = cell(segment.phase, bar);
            self.fill(&mut cells, segment.span, cell);
        }
        for mark in &bar.marks {
            cells[self.end_column(mark.kind, mark.at, bar)].0 = MOVED;
        }
        let line = self.line(&format!("  {}", bar.who.label), &cells);
        let tasks = bar
            .tasks
            .iter()
            .filter(|_| with_tasks)
            .map(|task| self.task(task));
        line + &tasks.collect::<String>()
    }

    fn task(&self, task: &Task) -> String {
        let mut cells = self.blank();
        let ink = if task.failed {
            Ink::Failed
        } else {
            Ink::Of(Phase::Running)
        };
        self.fill(&mut cells, task.span, (TASK, ink));
        self.line(&format!("    {}", task.name), &cells)
    }

    /// Marks are on the bar that they are about, also at its end.
    fn end_column(&self, kind: MarkKind, at: Timestamp, bar: &Bar) -> usize {
        match kind {
            MarkKind::Left => self.last_column(bar.span),
            _ => self.column(at),
        }
    }

    fn fill(&self, cells: &mut Cells, span: Span, cell: (char, Ink)) {
        cells[self.column(span.from)..=self.last_column(span)].fill(cell);
    }

    fn blank(&self) -> Cells {
        vec![(' ', Ink::Plain); self.columns]
    }

    fn line(&self, name: &str, cells: &Cells) -> String {
        let name = cut(name, self.names);
        let painted = cells.chunk_by(|one, other| one.1 == other.1).map(|run| {
            let text: String = run.iter().map(|(glyph, _)| glyph).collect();
            match run[0].1 {
                Ink::Plain => text,
                ink => (self.paint)(ink, &text),
            }
        });
        format!("{name:<0$} |{1}|\n", self.names, painted.collect::<String>())
    }

    /// How long a column is.
    fn seconds(&self) -> f64 {
        let length = self.window.length().as_secs_f64();
        length / as_f64(self.columns)
    }

    fn place(&self, at: Timestamp) -> f64 {
        at.duration_since(self.window.from).as_secs_f64() / self.seconds()
    }

    fn column(&self, at: Timestamp) -> usize {
        as_column(self.place(at).floor()).min(self.columns - 1)
    }

    fn last_column(&self, span: Span) -> usize {
        let last = as_column(self.place(span.to).ceil()).saturating_sub(1);
        last.clamp(self.column(span.from), self.columns - 1)
    }
}

#[expect(clippy::cast_precision_loss, reason = "terminals are narrower than that")]
fn as_f64(columns: usize) -> f64 {
    columns as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast of a float saturates"
)]
fn as_column(place: f64) -> usize {
    place as usize
}

fn cell(phase: Phase, bar: &Bar) -> (char, Ink) {
    let glyph = glyph(phase);
    match (bar.who.standing, phase) {
        (Standing::Unlabelled, Phase::Running) => (UNLABELLED, Ink::Unlabelled),
        (Standing::Unlabelled, _) => (glyph, Ink::Unlabelled),
        (Standing::Labelled | Standing::Nested, phase) => (glyph, Ink::Of(phase)),
    }
}

fn glyph(phase: Phase) -> char {
    match phase {
        Phase::Held => '░',
        Phase::Waiting => '▒',
        Phase::Running => '█',
        Phase::Reserved => '═',
        Phase::Unknown => '?',
    }
}

fn glyph_of(kind: MarkKind) -> char {
    match kind {
        MarkKind::Left | MarkKind::Arrived => MOVED,
        MarkKind::NodeAdded => ADDED,
        MarkKind::NodeRemoved => REMOVED,
    }
}

/// Generated names differ at their ends: a name that is too long keeps its end and, if there is room, its beginning.
pub(super) fn cut(name: &str, most: usize) -> String {
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= most {
        return name.to_owned();
    }
    let kept = most.saturating_sub(1);
    let head = if most < BOTH_ENDS { 0 } else { kept / 2 };
    let tail = kept - head;
    let (head, tail) = (&letters[..head], &letters[letters.len() - tail..]);
    head.iter().chain(&['…']).chain(tail).collect()
}

/// Only what the picture has.
fn legend(timeline: &Timeline, with_tasks: bool) -> String {
    let phases: Vec<_> = timeline
        .bars()
        .flat_map(|bar| bar.segments.iter().map(|it| (it.phase, cell(it.phase, bar).0)))
        .collect();
    let of_phases = Phase::ALL.iter().filter_map(|phase| {
        let is_used = phases.contains(&(*phase, glyph(*phase)));
        is_used.then(|| format!("{} {}", glyph(*phase), phase.words()))
    });
    let unlabelled = phases.iter().any(|(_, glyph)| *glyph == UNLABELLED);
    let unlabelled = unlabelled.then(|| format!("{UNLABELLED} running, not labelled"));
    let tasks = with_tasks.then(|| format!("{TASK} task"));
    let marks = timeline.lanes.iter().flat_map(|lane| &lane.marks);
    let marks = marks.chain(timeline.bars().flat_map(|bar| &bar.marks));
    let marks: BTreeSet<_> = marks.map(|mark| words(mark.kind)).collect();
    let entries = of_phases.chain(unlabelled).chain(tasks);
    let entries = entries.chain(marks.into_iter().map(str::to_owned));
    let entries: Vec<_> = entries.collect();
    entries.join(", ")
}

fn words(kind: MarkKind) -> &'static str {
    match kind {
        MarkKind::Left | MarkKind::Arrived => "> moved",
        MarkKind::NodeAdded => "+ node added",
        MarkKind::NodeRemoved => "x node removed",
    }
}

/// What one run did, in words and in order.
fn story(timeline: &Timeline) -> String {
    let segments = timeline.bars().flat_map(|bar| &bar.segments);
    let segments = segments.map(|it| {
        (
            it.span.from,
            format!("{}: {}", it.phase.words(), written(it.span)),
        )
    });
    let marks = timeline.bars().flat_map(|bar| &bar.marks);
    let marks = marks.map(|mark| (mark.at, of_mark(mark)));
    let mut lines: Vec<_> = segments.chain(marks).collect();
    lines.sort_by_key(|(at, _)| *at);
    let notes = timeline.bars().flat_map(|bar| &bar.notes);
    let notes = notes.map(|note| format!("note: {note}"));
    let lines = lines.into_iter().map(|(_, line)| line).chain(notes);
    lines.map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_cut_keeps_its_end_and_if_there_is_room_its_beginning() {
        assert_eq!(cut("build-1", 7), "build-1");
        assert_eq!(cut("gke-prod-pool-x7f2", 10), "gke-…-x7f2");
        assert_eq!(cut("build-172", 4), "…172");
    }
}
