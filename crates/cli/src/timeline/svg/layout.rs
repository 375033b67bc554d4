//! The place of each bar in pixels. Bars that overlap in time have different rows of their lane.

use crate::timeline::model::{Bar, Lane, Span, TaskSpan, Timeline};
use jiff::Timestamp;

pub(super) const WIDTH: f64 = 1200.0;
/// Names of lanes are on the left of this, and the picture is on the right.
pub(super) const LEFT: f64 = 190.0;
pub(super) const RIGHT: f64 = WIDTH - 12.0;
/// The width of a letter of the picture's font, which is monospace.
pub(super) const LETTER: f64 = 6.7;
/// The space around a name in or beside a bar.
pub(super) const PADDING: f64 = 7.0;
pub(super) const BAR: f64 = 18.0;
pub(super) const TASK: f64 = 5.0;
/// The space between two rows, and around the rows of a lane.
pub(super) const GAP: f64 = 5.0;
/// A narrower bar could not be seen and clicked.
const NARROWEST: f64 = 5.0;
const NARROWEST_TASK: f64 = 2.0;
/// Parallel tasks that are drawn; the tooltip lists all tasks.
const TASK_ROWS: usize = 5;
/// In a lane with more bars, names are only within bars. A row for each name would make the lane too high.
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
    pub(super) name: NamePlace,
    pub(super) tasks: Vec<TaskBox<'a>>,
}

pub(super) struct TaskBox<'a> {
    pub(super) task: &'a TaskSpan,
    pub(super) x: f64,
    pub(super) width: f64,
    pub(super) row: usize,
}

/// Where the name of a bar is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum NamePlace {
    Inside,
    Right,
    Left,
    /// Inside, with as many letters as fit.
    Shortened(usize),
}

impl<'a> Layout<'a> {
    /// The lanes from this line down.
    pub(super) fn new(timeline: &'a Timeline, top: f64) -> Self {
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

    /// The column of a time, within the picture.
    pub(super) fn x(&self, at: Timestamp) -> f64 {
        let length = self.window.length().as_secs_f64();
        let part = at.duration_since(self.window.from).as_secs_f64() / length.max(1e-9);
        LEFT + part.clamp(0.0, 1.0) * (RIGHT - LEFT)
    }

    fn lane(&self, lane: &'a Lane, y: f64) -> LaneBox<'a> {
        let is_named = lane.bars.len() <= NAMED;
        let boxes = lane.bars.iter().map(|bar| self.bar(bar, is_named)).collect();
        let mut bars = Vec::new();
        let mut next = y + GAP;
        for mut row in rows(boxes, BarBox::extent) {
            for it in &mut row {
                it.y = next;
            }
            next += row.iter().map(BarBox::height).fold(BAR, f64::max) + GAP;
            bars.extend(row);
        }
        LaneBox {
            lane,
            y,
            height: next.max(y + BAR + 2.0 * GAP) - y,
            bars,
        }
    }

    /// The bar, without its row.
    fn bar(&self, bar: &'a Bar, is_named: bool) -> BarBox<'a> {
        let (x, width) = self.extent(bar.span, (LEFT, RIGHT), NARROWEST);
        let name_width = name_width(bar);
        let name = match () {
            () if name_width <= width => NamePlace::Inside,
            () if is_named && x + width + name_width <= RIGHT => NamePlace::Right,
            () if is_named && x - name_width >= LEFT => NamePlace::Left,
            () => NamePlace::Shortened(room(width)),
        };
        BarBox {
            bar,
            x,
            y: 0.0,
            width,
            name,
            tasks: self.tasks(bar, (x, x + width)),
        }
    }

    fn tasks(&self, bar: &'a Bar, within: (f64, f64)) -> Vec<TaskBox<'a>> {
        let boxes = bar.tasks.iter().map(|task| {
            let (x, width) = self.extent(task.span, within, NARROWEST_TASK);
            TaskBox {
                task,
                x,
                width,
                row: 0,
            }
        });
        let rows = rows(boxes.collect(), |it| (it.x, it.x + it.width));
        let rows = rows.into_iter().take(TASK_ROWS).enumerate();
        let boxes = rows.flat_map(|(row, boxes)| boxes.into_iter().map(move |it| TaskBox { row, ..it }));
        boxes.collect()
    }

    /// The start and the width of a time, wide enough to be seen and within the limits.
    fn extent(&self, span: Span, (left, right): (f64, f64), narrowest: f64) -> (f64, f64) {
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

impl BarBox<'_> {
    /// The left and the right end, including the name.
    pub(super) fn extent(&self) -> (f64, f64) {
        let (left, right) = (self.x, self.x + self.width);
        match self.name {
            NamePlace::Left => (left - name_width(self.bar), right),
            NamePlace::Right => (left, right + name_width(self.bar)),
            NamePlace::Inside | NamePlace::Shortened(_) => (left, right),
        }
    }

    /// The height, including the tasks.
    pub(super) fn height(&self) -> f64 {
        let lines = self.tasks.iter().map(|task| task_line(task.row) + TASK + 1.0);
        lines.fold(BAR, f64::max)
    }
}

/// The distance of a row of tasks from the top of its bar.
pub(super) fn task_line(row: usize) -> f64 {
    BAR + 1.0 + (0..row).map(|_| TASK + 1.0).sum::<f64>()
}

fn name_width(bar: &Bar) -> f64 {
    letters(&bar.run.label) * LETTER + 2.0 * PADDING
}

pub(super) fn letters(text: &str) -> f64 {
    text.chars().map(|_| 1.0).sum()
}

/// The number of letters that fit into a bar of this width.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a picture is narrow, and a cast of a float saturates"
)]
fn room(width: f64) -> usize {
    ((width - 2.0 * PADDING) / LETTER).floor().max(0.0) as usize
}

/// Puts each item into the first row in which the item fits, in the order of their starts.
fn rows<T>(mut items: Vec<T>, extent: impl Fn(&T) -> (f64, f64)) -> Vec<Vec<T>> {
    items.sort_by(|one, other| extent(one).0.total_cmp(&extent(other).0));
    let mut rows: Vec<(f64, Vec<T>)> = Vec::new();
    for item in items {
        let (from, to) = extent(&item);
        match rows.iter_mut().find(|(end, _)| *end <= from) {
            Some((end, row)) => {
                *end = to;
                row.push(item);
            }
            None => rows.push((to, vec![item])),
        }
    }
    rows.into_iter().map(|(_, row)| row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_that_overlap_have_different_rows_and_items_that_touch_share_a_row() {
        let items = vec![(4.0, 6.0), (0.0, 4.0), (3.0, 5.0), (5.0, 9.0)];
        assert_eq!(
            rows(items, |it| *it),
            [vec![(0.0, 4.0), (4.0, 6.0)], vec![(3.0, 5.0), (5.0, 9.0)]]
        );
    }
}
