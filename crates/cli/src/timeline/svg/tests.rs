//! Bars and tasks do not overlap and stay within their lanes, and the picture of three runs stays the same.

use super::layout::{BAR, BarBox, LEFT, Layout, RIGHT, TASK, task_line};
use super::*;
use crate::timeline::fixture::{CI, drawn, many, three};
use crate::timeline::{TimeRange, timeline};
use std::time::Duration;

/// Left, right, top and bottom.
type Frame = (f64, f64, f64, f64);

fn frame(it: &BarBox<'_>) -> Frame {
    let (left, right) = it.extent();
    (left, right, it.y, it.y + it.height())
}

/// Whether two frames overlap by more than a rounding error.
fn overlap(one: Frame, other: Frame) -> bool {
    let shared = |from: f64, to: f64| to - from > 1e-6;
    shared(one.0.max(other.0), one.1.min(other.1)) && shared(one.2.max(other.2), one.3.min(other.3))
}

fn is_sound(layout: &Layout<'_>) {
    let mut frames: Vec<Frame> = Vec::new();
    for lane in &layout.lanes {
        for it in &lane.bars {
            let frame = frame(it);
            assert!(frame.0 >= LEFT - 1e-6 && frame.1 <= RIGHT + 1e-6, "{frame:?}");
            assert!(frame.2 >= lane.y && frame.3 <= lane.y + lane.height, "{frame:?}");
            frames.push(frame);
            tasks_are_sound(it);
        }
    }
    for (at, one) in frames.iter().enumerate() {
        assert!(!frames[at + 1..].iter().any(|other| overlap(*one, *other)));
    }
}

fn tasks_are_sound(it: &BarBox<'_>) {
    let frames = it.tasks.iter().map(|task| {
        let top = it.y + task_line(task.row);
        (task.x, task.x + task.width, top, top + TASK)
    });
    let frames: Vec<Frame> = frames.collect();
    for (at, one) in frames.iter().enumerate() {
        assert!(one.0 >= it.x - 1e-6 && one.1 <= it.x + it.width + 1e-6);
        assert!(one.2 >= it.y + BAR && one.3 <= it.y + it.height());
        assert!(!frames[at + 1..].iter().any(|other| overlap(*one, *other)));
    }
}

#[test]
fn nothing_overlaps_and_everything_is_within_its_lane() {
    is_sound(&Layout::new(&drawn(&three()), 50.0));
    for (number, nodes) in [(3, 2), (40, 1), (200, 1), (200, 12), (200, 200)] {
        for seed in 0..6 {
            let history = many(number, nodes, seed);
            for minutes in [1, 10, 60, 600] {
                let reach = TimeRange::Last(Duration::from_mins(minutes));
                is_sound(&Layout::new(&timeline(&history, CI, reach), 50.0));
            }
        }
    }
}

#[test]
fn the_picture_of_three_runs() {
    let picture = svg(&drawn(&three()));
    let (_, drawn) = picture.split_once("</defs>").unwrap();
    insta::assert_snapshot!(drawn);
}

#[test]
fn a_picture_has_a_light_and_a_dark_colour_for_each_variable_of_its_rules() {
    let style = style();
    assert!(!style.contains("var("), "{style}");
    let (light, dark) = style.split_once("prefers-color-scheme: dark").unwrap();
    assert!(light.contains(".paper { fill: #ffffff; }"), "{light}");
    assert!(dark.contains(".paper { fill: #12161d; }"), "{dark}");
}

#[test]
fn an_escaped_text_cannot_end_its_element() {
    assert_eq!(
        escaped("<script>\"a\" & 'b'</script>\u{1b}"),
        "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;&lt;/script&gt;\u{fffd}"
    );
}
