//! The timeline as text: a line for each bar, so that each name has room and no bar hides another.

use super::labels::{of_mark, shortened, ticks, times};
use super::model::{Bar, Enrollment, Lane, MarkKind, Phase, Place, Span, TaskSpan, Timeline};
use super::title;
use crate::words::{count, span as lasting, wrap};
use jiff::Timestamp;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// Columns of the picture in a terminal that is too narrow.
const NARROWEST: usize = 20;
/// Columns between two times of the axis.
const TICK: usize = 12;
const TASK: char = '▪';
const MOVED: char = '>';
const ADDED: char = '+';
const REMOVED: char = 'x';
const UNLABELLED: char = '─';

/// The meaning of a character, from which its colour follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ink {
    Plain,
    Of(Phase),
    Unlabelled,
    Failed,
}

/// Adds colours to a text.
pub(crate) type Paint = fn(Ink, &str) -> String;

type Cells = Vec<(char, Ink)>;

struct Canvas<'a> {
    window: Span,
    /// The number of bars of each run.
    bars: HashMap<(&'a str, &'a str), usize>,
    /// Columns of the names.
    names: usize,
    /// Columns of the picture.
    columns: usize,
    paint: Paint,
}

/// The picture, at most this many columns wide.
pub(crate) fn text(timeline: &Timeline, width: usize, paint: Paint) -> String {
    let canvas = Canvas::new(timeline, width, paint);
    let with_tasks = timeline.runs() == 1;
    let lanes = timeline.lanes.iter().map(|lane| canvas.lane(lane, with_tasks));
    let lanes: String = lanes.collect();
    let wrapped = |text: &str| -> String {
        let lines = text.lines().flat_map(|line| wrap(line, width));
        lines.map(|line| format!("{line}\n")).collect()
    };
    let (title, legend) = (wrapped(&title(timeline)), wrapped(&legend(timeline, with_tasks)));
    let log = with_tasks.then(|| format!("\n{}", wrapped(&log(timeline))));
    format!(
        "{title}\n{}{lanes}\n{legend}{}",
        canvas.axis(),
        log.unwrap_or_default()
    )
}

impl<'a> Canvas<'a> {
    fn new(timeline: &'a Timeline, width: usize, paint: Paint) -> Self {
        let length = |text: &str| text.chars().count();
        let lanes = timeline.lanes.iter().map(|lane| length(&lane.heading()));
        let labels = timeline.bars().map(|bar| length(&bar.run.label) + 2);
        let longest = lanes.chain(labels).max().unwrap_or_default();
        let names = longest.clamp(8, (width / 3).max(8));
        let mut bars = HashMap::new();
        for bar in timeline.bars() {
            *bars.entry(bar.key()).or_default() += 1;
        }
        Self {
            window: timeline.window,
            bars,
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

    /// Whether a wait would fill less than a column, and the run has another line.
    fn is_brief(&self, lane: &Lane, bar: &Bar) -> bool {
        let is_short = bar.span.length().as_secs_f64() < self.seconds();
        let others = self.bars.get(&bar.key()).is_some_and(|number| *number > 1);
        lane.place == Place::Nowhere && is_short && others
    }

    fn rest(&self, number: usize) -> String {
        let limit = lasting(Duration::from_secs_f64(self.seconds().ceil()));
        format!("  and {}, each for less than {limit}\n", count(number, "run"))
    }

    fn bar(&self, bar: &Bar, with_tasks: bool) -> String {
        let mut cells = self.blank();
        let mut segments = bar.segments.clone();
        // Short segments are painted last, so that long segments do not hide them.
        segments.sort_by_key(|it| std::cmp::Reverse(it.span.length()));
        for segment in segments {
            let cell = cell(segment.phase, bar);
            self.fill(&mut cells, segment.span, cell);
        }
        for mark in &bar.marks {
            // The mark at the end of the bar is on the bar.
            let column = match mark.kind {
                MarkKind::Left => self.last_column(bar.span),
                MarkKind::Arrived | MarkKind::NodeAdded | MarkKind::NodeRemoved => self.column(mark.at),
            };
            cells[column].0 = MOVED;
        }
        let line = self.line(&format!("  {}", bar.run.label), &cells);
        let tasks = bar.tasks.iter().filter(|_| with_tasks);
        let tasks = tasks.map(|task| self.task(task));
        line + &tasks.collect::<String>()
    }

    fn task(&self, task: &TaskSpan) -> String {
        let mut cells = self.blank();
        let ink = if task.failed {
            Ink::Failed
        } else {
            Ink::Of(Phase::Running)
        };
        self.fill(&mut cells, task.span, (TASK, ink));
        self.line(&format!("    {}", task.name), &cells)
    }

    fn fill(&self, cells: &mut Cells, span: Span, cell: (char, Ink)) {
        cells[self.column(span.from)..=self.last_column(span)].fill(cell);
    }

    fn blank(&self) -> Cells {
        vec![(' ', Ink::Plain); self.columns]
    }

    fn line(&self, name: &str, cells: &Cells) -> String {
        let name = shortened(name, self.names);
        let painted = cells.chunk_by(|one, other| one.1 == other.1).map(|run| {
            let text: String = run.iter().map(|(glyph, _)| glyph).collect();
            match run[0].1 {
                Ink::Plain => text,
                ink => (self.paint)(ink, &text),
            }
        });
        format!("{name:<0$} |{1}|\n", self.names, painted.collect::<String>())
    }

    /// The duration of a column.
    fn seconds(&self) -> f64 {
        let length = self.window.length().as_secs_f64();
        length / as_f64(self.columns)
    }

    /// The position of a time, in columns.
    fn position(&self, at: Timestamp) -> f64 {
        at.duration_since(self.window.from).as_secs_f64() / self.seconds()
    }

    fn column(&self, at: Timestamp) -> usize {
        as_column(self.position(at).floor()).min(self.columns - 1)
    }

    fn last_column(&self, span: Span) -> usize {
        let last = as_column(self.position(span.to).ceil()).saturating_sub(1);
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
fn as_column(position: f64) -> usize {
    position as usize
}

fn cell(phase: Phase, bar: &Bar) -> (char, Ink) {
    let glyph = glyph(phase);
    match (bar.run.enrollment, phase) {
        (Enrollment::Unlabelled, Phase::Running) => (UNLABELLED, Ink::Unlabelled),
        (Enrollment::Unlabelled, _) => (glyph, Ink::Unlabelled),
        (Enrollment::Labelled | Enrollment::Nested, phase) => (glyph, Ink::Of(phase)),
    }
}

fn glyph(phase: Phase) -> char {
    match phase {
        Phase::Held => '░',
        Phase::Waiting => '▒',
        Phase::Running => '█',
        Phase::Reserved => '═',
        Phase::Kept => '┈',
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

/// The meaning of the characters in the picture.
fn legend(timeline: &Timeline, with_tasks: bool) -> String {
    let phases: Vec<_> = timeline
        .bars()
        .flat_map(|bar| bar.segments.iter().map(|it| (it.phase, cell(it.phase, bar).0)))
        .collect();
    let of_phases = Phase::ALL.iter().filter_map(|phase| {
        let is_used = phases.contains(&(*phase, glyph(*phase)));
        is_used.then(|| format!("{} {}", glyph(*phase), phase.description()))
    });
    let unlabelled = phases.iter().any(|(_, glyph)| *glyph == UNLABELLED);
    let unlabelled = unlabelled.then(|| format!("{UNLABELLED} running, not labelled"));
    let tasks = with_tasks.then(|| format!("{TASK} task"));
    let marks = timeline.lanes.iter().flat_map(|lane| &lane.marks);
    let marks = marks.chain(timeline.bars().flat_map(|bar| &bar.marks));
    let marks: BTreeSet<_> = marks.map(|mark| legend_of_mark(mark.kind)).collect();
    let entries = of_phases.chain(unlabelled).chain(tasks);
    let entries = entries.chain(marks.into_iter().map(str::to_owned));
    let entries: Vec<_> = entries.collect();
    entries.join(", ")
}

fn legend_of_mark(kind: MarkKind) -> &'static str {
    match kind {
        MarkKind::Left | MarkKind::Arrived => "> moved",
        MarkKind::NodeAdded => "+ node added",
        MarkKind::NodeRemoved => "x node removed",
    }
}

/// The phases and the moves of one run in order, and the notes.
fn log(timeline: &Timeline) -> String {
    let segments = timeline.bars().flat_map(|bar| &bar.segments);
    let segments = segments.map(|it| {
        let text = format!("{}: {}", it.phase.description(), times(it.span));
        (it.span.from, text)
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
