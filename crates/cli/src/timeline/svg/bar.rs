//! One bar of the picture: its segments, its name, its tasks and its moves. Pure.

use super::layout::{BAR, BarBox, LETTER, Layout, Name, PADDING, TASK, TaskBox, letters, task_line};
use crate::timeline::details::{details, of_mark, task as words};
use crate::timeline::escape::escaped;
use crate::timeline::model::{Lane, Mark, MarkKind, Phase, Segment, Standing};
use crate::timeline::text::cut;

/// Between the place that a bar takes and what is drawn, so that two bars that touch can be told apart.
const SEAM: f64 = 1.0;
/// Fewer letters than this say nothing.
const FEWEST: usize = 4;
const ARROW: f64 = 5.0;

/// A group with a tooltip; in a page, the keyboard gets to it.
pub(super) fn bar(layout: &Layout<'_>, lane: &Lane, boxed: &BarBox<'_>, interactive: bool) -> String {
    let bar = boxed.bar;
    let lines = details(bar, &lane.place);
    let run = escaped(&format!("{}/{}", bar.who.namespace, bar.who.name));
    let keys = if interactive {
        format!(
            " tabindex=\"-1\" role=\"img\" aria-label=\"{}\"",
            escaped(&lines.join(". "))
        )
    } else {
        String::new()
    };
    let segments: String = bar
        .segments
        .iter()
        .map(|it| segment(layout, boxed, *it))
        .collect();
    let tasks: String = boxed.tasks.iter().map(|it| task(boxed, it)).collect();
    let marks: String = bar.marks.iter().map(|it| mark(boxed, it)).collect();
    format!(
        "<g class=\"bar {}\" data-run=\"{run}\"{keys}>\n<title>{}</title>\n{segments}{}{tasks}{marks}</g>\n",
        classes(boxed),
        escaped(&lines.join("\n")),
        name(boxed)
    )
}

fn classes(boxed: &BarBox<'_>) -> String {
    let who = &boxed.bar.who;
    let standing = match who.standing {
        Standing::Labelled => "labelled",
        Standing::Nested => "nested",
        Standing::Unlabelled => "unlabelled",
    };
    let failed = if who.succeeded == Some(false) {
        " failed"
    } else {
        ""
    };
    format!("{standing}{failed}")
}

pub(super) fn class(phase: Phase) -> &'static str {
    match phase {
        Phase::Held => "held",
        Phase::Waiting => "waiting",
        Phase::Running => "running",
        Phase::Reserved => "reserved",
        Phase::Unknown => "unknown",
    }
}

fn segment(layout: &Layout<'_>, boxed: &BarBox<'_>, segment: Segment) -> String {
    let end = boxed.x + boxed.width;
    let is_last = boxed.bar.segments.last() == Some(&segment);
    let is_first = boxed.bar.segments.first() == Some(&segment);
    let from = if is_first {
        boxed.x
    } else {
        layout.x(segment.span.from).clamp(boxed.x, end)
    };
    let to = if is_last {
        end
    } else {
        layout.x(segment.span.to).clamp(from, end)
    };
    let (left, width) = (from + SEAM, (to - from - 2.0 * SEAM).max(0.5));
    format!(
        "<rect class=\"{}\" x=\"{left:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{BAR}\"/>\n",
        class(segment.phase),
        boxed.y
    )
}

fn name(boxed: &BarBox<'_>) -> String {
    let label = &boxed.bar.who.label;
    let (x, text, class) = match boxed.name {
        Name::Inside => (boxed.x + PADDING, label.clone(), "in"),
        Name::Right => (boxed.x + boxed.width + PADDING, label.clone(), "out"),
        Name::Left => (boxed.x - PADDING - letters(label) * LETTER, label.clone(), "out"),
        Name::Cut(room) if room >= FEWEST => (boxed.x + PADDING, cut(label, room), "in"),
        Name::Cut(_) => return String::new(),
    };
    let y = boxed.y + BAR - 5.0;
    format!(
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>\n",
        escaped(&text)
    )
}

fn task(boxed: &BarBox<'_>, it: &TaskBox<'_>) -> String {
    let y = boxed.y + task_line(it.row);
    let class = if it.task.failed { "task failed" } else { "task" };
    let width = (it.width - SEAM).max(1.0);
    format!(
        "<rect class=\"{class}\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{TASK}\"><title>{}</title></rect>\n",
        it.x,
        escaped(&words(it.task))
    )
}

/// An arrow within the bar, at the end by which the run came or went.
fn mark(boxed: &BarBox<'_>, mark: &Mark) -> String {
    let x = match mark.kind {
        MarkKind::Arrived => boxed.x + SEAM,
        MarkKind::Left | MarkKind::NodeAdded | MarkKind::NodeRemoved => boxed.x + boxed.width - ARROW - SEAM,
    };
    let y = boxed.y;
    format!(
        "<path class=\"move\" d=\"M{x:.1} {y:.1}l{ARROW} {:.1}l-{ARROW} {:.1}z\"><title>{}</title></path>\n",
        BAR / 2.0,
        BAR / 2.0,
        escaped(&of_mark(mark))
    )
}
