//! A bar of the picture with its segments, its name, its tasks and its moves, and the legend of these shapes.

use super::escaped;
use super::layout::{
    BAR, BarBox, LETTER, Layout, NamePlace, PADDING, RIGHT, TASK, TaskBox, letters, task_line,
};
use crate::timeline::labels::{description, of_mark, of_task, shortened};
use crate::timeline::model::{Enrollment, Lane, Mark, MarkKind, Phase, Segment, Timeline};

/// The space at both ends of a segment, so that two bars that touch can be told apart.
const SEAM: f64 = 1.0;
/// A name with fewer letters is left out.
const FEWEST: usize = 4;
const ARROW: f64 = 5.0;
/// The width of a shape in the legend.
const SAMPLE: f64 = 22.0;
const LEGEND_LINE: f64 = 20.0;
/// The space between two entries of the legend.
const LEGEND_SPACE: f64 = 18.0;

/// A bar with a tooltip; the keyboard reaches a bar that is interactive.
pub(super) fn bar(layout: &Layout<'_>, lane: &Lane, boxed: &BarBox<'_>, interactive: bool) -> String {
    let bar = boxed.bar;
    let lines = description(bar, &lane.place);
    let (namespace, name) = bar.key();
    let run = escaped(&format!("{namespace}/{name}"));
    let label = escaped(&lines.join(". "));
    let keys = format!(" tabindex=\"-1\" role=\"img\" aria-label=\"{label}\"");
    let keys = if interactive { keys } else { String::new() };
    let enrollment = match bar.run.enrollment {
        Enrollment::Labelled => "labelled",
        Enrollment::Nested => "nested",
        Enrollment::Unlabelled => "unlabelled",
    };
    let failed = if bar.run.succeeded == Some(false) {
        " failed"
    } else {
        ""
    };
    let segments = bar.segments.iter().map(|it| segment(layout, boxed, *it));
    let tasks = boxed.tasks.iter().map(|it| task(boxed, it));
    let marks = bar.marks.iter().map(|it| arrow(boxed, it));
    let shapes = segments.chain([name_of(boxed)]).chain(tasks).chain(marks);
    format!(
        "<g class=\"bar {enrollment}{failed}\" data-run=\"{run}\"{keys}>\n<title>{}</title>\n{}</g>\n",
        escaped(&lines.join("\n")),
        shapes.collect::<String>()
    )
}

fn class(phase: Phase) -> &'static str {
    match phase {
        Phase::Held => "held",
        Phase::Waiting => "waiting",
        Phase::Running => "running",
        Phase::Reserved => "reserved",
        Phase::Kept => "kept",
        Phase::Unknown => "unknown",
    }
}

/// The first and the last segment end with the bar, which may be wider than its time.
fn segment(layout: &Layout<'_>, boxed: &BarBox<'_>, segment: Segment) -> String {
    let (start, end) = (boxed.x, boxed.x + boxed.width);
    let segments = &boxed.bar.segments;
    let is_first = segments.first() == Some(&segment);
    let is_last = segments.last() == Some(&segment);
    let from = if is_first {
        start
    } else {
        layout.x(segment.span.from).clamp(start, end)
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

fn name_of(boxed: &BarBox<'_>) -> String {
    let label = &boxed.bar.run.label;
    let (x, text, class) = match boxed.name {
        NamePlace::Inside => (boxed.x + PADDING, label.clone(), "in"),
        NamePlace::Right => (boxed.x + boxed.width + PADDING, label.clone(), "out"),
        NamePlace::Left => (boxed.extent().0 + PADDING, label.clone(), "out"),
        NamePlace::Shortened(room) if room >= FEWEST => (boxed.x + PADDING, shortened(label, room), "in"),
        NamePlace::Shortened(_) => return String::new(),
    };
    let (y, text) = (boxed.y + BAR - 5.0, escaped(&text));
    format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>\n")
}

fn task(boxed: &BarBox<'_>, it: &TaskBox<'_>) -> String {
    let y = boxed.y + task_line(it.row);
    let class = if it.task.failed { "task failed" } else { "task" };
    let width = (it.width - SEAM).max(1.0);
    format!(
        "<rect class=\"{class}\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{TASK}\"><title>{}</title></rect>\n",
        it.x,
        escaped(&of_task(it.task))
    )
}

/// An arrow within the bar, at the end at which the run arrived or left.
fn arrow(boxed: &BarBox<'_>, mark: &Mark) -> String {
    let x = match mark.kind {
        MarkKind::Arrived => boxed.x + SEAM,
        MarkKind::Left | MarkKind::NodeAdded | MarkKind::NodeRemoved => boxed.x + boxed.width - ARROW - SEAM,
    };
    let (y, half) = (boxed.y, BAR / 2.0);
    format!(
        "<path class=\"move\" d=\"M{x:.1} {y:.1}l{ARROW} {half:.1}l-{ARROW} {half:.1}z\"><title>{}</title></path>\n",
        escaped(&of_mark(mark))
    )
}

/// The legend from this line down, and the line where the legend ends.
pub(super) fn legend(timeline: &Timeline, top: f64) -> (String, f64) {
    let (mut x, mut y) = (12.0, top);
    let entries = if timeline.is_empty() {
        Vec::new()
    } else {
        legend_entries()
    };
    let entries = entries.into_iter().map(|(text, shape)| {
        let width = SAMPLE + 6.0 + letters(text) * LETTER;
        if x + width > RIGHT {
            (x, y) = (12.0, y + LEGEND_LINE);
        }
        let entry = format!(
            "<g transform=\"translate({x:.1} {:.1})\">{shape}<text class=\"tick\" x=\"{:.1}\" y=\"10\">{text}</text></g>\n",
            y - 10.0,
            SAMPLE + 6.0
        );
        x += width + LEGEND_SPACE;
        entry
    });
    let entries: String = entries.collect();
    (entries, y + 8.0)
}

/// The texts of the legend, each with its shape in a space of 22 by 12.
fn legend_entries() -> Vec<(&'static str, String)> {
    let bar = |enrollment: &str, phase: &str| {
        format!("<g class=\"bar {enrollment}\"><rect class=\"{phase}\" width=\"22\" height=\"12\"/></g>")
    };
    let task = |class: &str| {
        format!("<g class=\"bar labelled\"><rect class=\"{class}\" y=\"4\" width=\"22\" height=\"5\"/></g>")
    };
    let node = |class: &str| format!("<line class=\"node {class}\" x1=\"11\" x2=\"11\" y1=\"0\" y2=\"12\"/>");
    let moved = "<g class=\"bar\"><path class=\"move\" d=\"M8 0l5 6l-5 6z\"/></g>";
    let gone = "<text class=\"name\" x=\"8\" y=\"10\">✕</text>";
    let phases = Phase::ALL.map(|phase| (phase.description(), bar("labelled", class(phase))));
    let others = [
        ("not labelled", bar("unlabelled", "running")),
        ("task", task("task")),
        ("failed", task("task failed")),
        ("moved", moved.to_owned()),
        ("node added", node("added")),
        ("node removed", node("removed")),
        ("node is gone", gone.to_owned()),
    ];
    phases.into_iter().chain(others).collect()
}
