//! Where each bar of a timeline is drawn: rows within lanes, so that nothing overlaps. Pure.

use crate::timeline::model::{Bar, Lane, Span, Task, Timeline};
use crate::timeline::rows::rows;
use jiff::Timestamp;

pub(super) const WIDTH: f64 = 1200.0;
/// Where the names of lanes end and the picture begins.
pub(super) const LEFT: f64 = 190.0;
pub(super) const RIGHT: f64 = WIDTH - 12.0;
/// Advance of a letter of the picture's font, which is monospace.
pub(super) const LETTER: f64 = 6.7;
/// Space around a name in or beside a bar.
pub(super) const PADDING: f64 = 7.0;
pub(super) const BAR: f64 = 18.0;
pub(super) const TASK: f64 = 5.0;
/// Between two rows, and around the rows of a lane.
pub(super) const GAP: f64 = 5.0;
/// The least that can be seen and hit.
const NARROWEST: f64 = 5.0;
const NARROWEST_TASK: f64 = 2.0;
/// Parallel tasks that are drawn; the tooltip lists all.
const TASK_ROWS: usize = 5;
/// A lane of more bars has names in the bars only: otherwise it would be as high as a name for each.
const NAMED: usize = 40;

/// A timeline in pixels.
pub(super) struct Layout<'a> {
    pub(super) window: Span,
    pub(super) top: f64,
    pub(super) bottom: f64,
    pub(super) lanes: Vec<LaneBox<'a>>,
}

pub(super) struct LaneBox<'a> {
    pub(super) lane: &'a Lane,
    pub(super) y: f64,
    pub(super) height: f64,
    pub(super) bars: Vec<BarBox<'a>>,
}

pub(super) struct BarBox<'a> {
    pub(super) bar: &'a Bar,
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    /// Of the bar and its tasks.
    pub(super) height: f64,
    pub(super) name: Name,
    pub(super) tasks: Vec<TaskBox<'a>>,
}

pub(super) struct TaskBox<'a> {
    pub(super) task: &'a Task,
    pub(super) x: f64,
    pub(super) width: f64,
    pub(super) row: usize,
}

/// Where the name of a bar is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Name {
    Inside,
    Right,
    Left,
    /// As many letters as the bar has room for.
    Cut(usize),
}

/// A bar with the place that it and its name take.
struct Item<'a> {
    bar: &'a Bar,
    x: f64,
    width: f64,
    name: Name,
    from: f64,
    to: f64,
}

impl<'a> Layout<'a> {
    /// Below this line.
    pub(super) fn of(timeline: &'a Timeline, top: f64) -> Self {
        let mut layout = Self {
            window: timeline.window,
            top,
            bottom: top,
            lanes: Vec::new(),
        };
        for lane in &timeline.lanes {
            let placed = layout.lane(lane, layout.bottom);
            layout.bottom += placed.height;
            layout.lanes.push(placed);
        }
        layout
    }

    /// Where a time is, within the picture.
    pub(super) fn x(&self, at: Timestamp) -> f64 {
        let length = self.window.length().as_secs_f64();
        let part = at.duration_since(self.window.from).as_secs_f64() / length.max(1e-9);
        LEFT + part.clamp(0.0, 1.0) * (RIGHT - LEFT)
    }

    fn lane(&self, lane: &'a Lane, y: f64) -> LaneBox<'a> {
        let named = lane.bars.len() <= NAMED;
        let items = lane.bars.iter().map(|bar| self.item(bar, named)).collect();
        let mut bars = Vec::new();
        let mut next = y + GAP;
        for row in rows(items, |item: &Item<'_>| (item.from, item.to)) {
            let boxes: Vec<_> = row.into_iter().map(|item| self.placed(&item, next)).collect();
            next += boxes.iter().map(|it| it.height).fold(BAR, f64::max) + GAP;
            bars.extend(boxes);
        }
        LaneBox {
            lane,
            y,
            height: next.max(y + BAR + 2.0 * GAP) - y,
            bars,
        }
    }

    fn item(&self, bar: &'a Bar, named: bool) -> Item<'a> {
        let (x, width) = self.extent(bar.span, (LEFT, RIGHT), NARROWEST);
        let end = x + width;
        let wish = letters(&bar.who.label) * LETTER + 2.0 * PADDING;
        let (name, from, to) = match () {
            () if wish <= width => (Name::Inside, x, end),
            () if named && end + wish <= RIGHT => (Name::Right, x, end + wish),
            () if named && x - wish >= LEFT => (Name::Left, x - wish, end),
            () => (Name::Cut(room(width)), x, end),
        };
        Item {
            bar,
            x,
            width,
            name,
            from,
            to,
        }
    }

    fn placed(&self, item: &Item<'a>, y: f64) -> BarBox<'a> {
        let tasks = self.tasks(item.bar, (item.x, item.x + item.width));
        let lines = tasks.iter().map(|task| task.row + 1).max().unwrap_or(0);
        BarBox {
            bar: item.bar,
            x: item.x,
            y,
            width: item.width,
            height: BAR + below(lines),
            name: item.name,
            tasks,
        }
    }

    fn tasks(&self, bar: &'a Bar, within: (f64, f64)) -> Vec<TaskBox<'a>> {
        let boxed = |task: &'a Task| {
            let (x, width) = self.extent(task.span, within, NARROWEST_TASK);
            (task, x, width)
        };
        let boxes: Vec<_> = bar.tasks.iter().map(boxed).collect();
        let lines = rows(boxes, |(_, x, width)| (*x, x + width));
        let lines = lines.into_iter().take(TASK_ROWS).enumerate();
        let boxes = lines.flat_map(|(row, line)| {
            line.into_iter()
                .map(move |(task, x, width)| TaskBox { task, x, width, row })
        });
        boxes.collect()
    }

    /// Start and width of a time, wide enough to be seen and within the limits.
    pub(super) fn extent(&self, span: Span, (left, right): (f64, f64), narrowest: f64) -> (f64, f64) {
        let narrowest = narrowest.min(right - left);
        let from = self.x(span.from).clamp(left, right);
        let to = self.x(span.to).clamp(from, right).max(from + narrowest);
        if to > right {
            (right - narrowest, narrowest)
        } else {
            (from, to - from)
        }
    }
}

/// Height of so many lines of tasks.
fn below(lines: usize) -> f64 {
    (0..lines).map(|_| TASK + 1.0).sum::<f64>() + if lines > 0 { 1.0 } else { 0.0 }
}

/// Where a line of tasks is below the top of its bar.
pub(super) fn task_line(row: usize) -> f64 {
    BAR + 1.0 + below(row) - if row > 0 { 1.0 } else { 0.0 }
}

pub(super) fn letters(text: &str) -> f64 {
    text.chars().map(|_| 1.0).sum()
}

/// Letters that fit into a bar of this width.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a picture is narrow, and a cast of a float saturates"
)]
fn room(width: f64) -> usize {
    ((width - 2.0 * PADDING) / LETTER).floor().max(0.0) as usize
}
