//! What colours and marks mean. Pure.

use super::bar::class;
use super::layout::{LETTER, RIGHT, letters};
use crate::timeline::model::{Phase, Timeline};

const SAMPLE: f64 = 22.0;
const LINE: f64 = 20.0;
/// Between two entries.
const SPACE: f64 = 18.0;

struct Entry {
    words: &'static str,
    /// Drawn in a space of 22 by 12.
    sample: String,
}

/// The legend from this line down, and where it ends.
pub(super) fn legend(timeline: &Timeline, top: f64) -> (String, f64) {
    let (mut x, mut y) = (12.0, top);
    let entries = entries(timeline).into_iter().map(|entry| {
        let width = SAMPLE + 6.0 + letters(entry.words) * LETTER;
        if x + width > RIGHT {
            (x, y) = (12.0, y + LINE);
        }
        let drawn = drawn(&entry, x, y - 10.0);
        x += width + SPACE;
        drawn
    });
    let entries: String = entries.collect();
    (entries, y + 8.0)
}

fn drawn(entry: &Entry, x: f64, y: f64) -> String {
    format!(
        "<g transform=\"translate({x:.1} {y:.1})\">{}<text class=\"tick\" x=\"{:.1}\" y=\"10\">{}</text></g>\n",
        entry.sample,
        SAMPLE + 6.0,
        entry.words
    )
}

fn entries(timeline: &Timeline) -> Vec<Entry> {
    let phases = Phase::ALL.map(|phase| Entry {
        words: phase.words(),
        sample: bar("labelled", class(phase)),
    });
    let others = [
        ("not labelled", bar("unlabelled", "running")),
        (
            "task",
            "<g class=\"bar labelled\"><rect class=\"task\" y=\"4\" width=\"22\" height=\"5\"/></g>"
                .to_owned(),
        ),
        (
            "failed",
            "<g class=\"bar labelled\"><rect class=\"task failed\" y=\"4\" width=\"22\" height=\"5\"/></g>"
                .to_owned(),
        ),
        (
            "moved",
            "<g class=\"bar\"><path class=\"move\" d=\"M8 0l5 6l-5 6z\"/></g>".to_owned(),
        ),
        ("node added", node("added")),
        ("node removed", node("removed")),
        (
            "node is gone",
            "<text class=\"name\" x=\"8\" y=\"10\">✕</text>".to_owned(),
        ),
    ];
    let others = others.map(|(words, sample)| Entry { words, sample });
    let all = phases.into_iter().chain(others);
    if timeline.is_empty() {
        Vec::new()
    } else {
        all.collect()
    }
}

fn bar(standing: &str, phase: &str) -> String {
    format!("<g class=\"bar {standing}\"><rect class=\"{phase}\" width=\"22\" height=\"12\"/></g>")
}

fn node(class: &str) -> String {
    format!("<line class=\"node {class}\" x1=\"11\" x2=\"11\" y1=\"0\" y2=\"12\"/>")
}
