//! The timeline as SVG, for itself or within a page. Pure.

mod bar;
mod layout;
mod legend;
#[cfg(test)]
mod tests;

use super::escape::escaped;
use super::model::{Mark, MarkKind, Timeline};
use super::text::cut;
use super::ticks::ticks;
use super::title;
use layout::{BAR, GAP, LEFT, LaneBox, Layout, RIGHT, WIDTH};

pub(crate) const STYLE: &str = include_str!("style.css");
/// Hatches, for those who cannot tell the colours apart.
const PATTERNS: &str = include_str!("patterns.svg");
/// Times on the axis.
const TICKS: usize = 10;
const AXIS: f64 = 24.0;
const LINE: f64 = 18.0;
/// Letters of a lane's name that fit beside the picture.
const NAME: usize = 26;

/// A picture that stands alone.
pub(crate) fn svg(timeline: &Timeline) -> String {
    let (legend, below_legend) = legend::legend(timeline, LINE * 2.0 + 4.0);
    let layout = Layout::of(timeline, below_legend + AXIS);
    let notes = footer(timeline, layout.bottom + AXIS);
    let height = layout.bottom + AXIS + LINE * lines(&timeline.missing) + 8.0;
    let title = escaped(&title(timeline));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" \
         height=\"{height:.0}\" role=\"img\" aria-label=\"{title}\" class=\"timeline\">\n<style>{STYLE}</style>\n{PATTERNS}\
         <rect class=\"paper\" width=\"{WIDTH}\" height=\"{height:.0}\"/>\n\
         <text class=\"title\" x=\"12\" y=\"22\">{title}</text>\n{legend}{}{}{}{notes}</svg>\n",
        axis(&layout, layout.top - 8.0),
        lanes(&layout, false),
        axis(&layout, layout.bottom + 16.0),
    )
}

/// The lanes for a page, which has title and legend itself, and the axis for above them.
pub(super) fn parts(timeline: &Timeline) -> (String, String) {
    let layout = Layout::of(timeline, 4.0);
    let height = layout.bottom + 4.0;
    let title = escaped(&title(timeline));
    let axis = format!(
        "<svg class=\"timeline axis\" viewBox=\"0 0 {WIDTH} {AXIS}\" aria-hidden=\"true\">{}</svg>\n",
        axis(&layout, AXIS - 8.0)
    );
    let lanes = format!(
        "<svg class=\"timeline\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"group\" aria-label=\"{title}\">\n\
         {PATTERNS}{}</svg>\n",
        lanes(&layout, true)
    );
    (axis, lanes)
}

/// The legend for a page.
pub(super) fn key(timeline: &Timeline) -> String {
    let (legend, height) = legend::legend(timeline, 16.0);
    format!(
        "<svg class=\"timeline key\" viewBox=\"0 0 {WIDTH} {height:.0}\" aria-hidden=\"true\">{legend}</svg>\n"
    )
}

fn lines(texts: &[String]) -> f64 {
    texts.iter().map(|_| 1.0).sum()
}

fn axis(layout: &Layout<'_>, y: f64) -> String {
    let ticks = ticks(layout.window, TICKS);
    let texts = ticks.iter().map(|(time, text)| {
        let x = layout.x(*time);
        let anchor = match () {
            () if x < LEFT + 30.0 => "start",
            () if x > RIGHT - 30.0 => "end",
            () => "middle",
        };
        format!("<text class=\"tick\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>\n")
    });
    let zone = format!("<text class=\"tick\" x=\"12\" y=\"{y:.1}\">UTC</text>\n");
    zone + &texts.collect::<String>()
}

fn lanes(layout: &Layout<'_>, interactive: bool) -> String {
    let empty = "<text class=\"tick\" x=\"12\" y=\"20\">No PipelineRuns in this time.</text>\n";
    if layout.lanes.is_empty() {
        return empty.to_owned();
    }
    let grid = ticks(layout.window, TICKS).into_iter().map(|(time, _)| {
        let x = layout.x(time);
        let (top, bottom) = (layout.top, layout.bottom);
        format!("<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\"/>\n")
    });
    let backs: String = layout
        .lanes
        .iter()
        .enumerate()
        .map(|(at, lane)| back(layout, lane, at))
        .collect();
    let lanes: String = layout
        .lanes
        .iter()
        .map(|it| lane(layout, it, interactive))
        .collect();
    backs + &grid.collect::<String>() + &lanes
}

/// A lane's ground: darker while its node is not there.
fn back(layout: &Layout<'_>, it: &LaneBox<'_>, at: usize) -> String {
    let (y, height) = (it.y, it.height);
    let class = if at.is_multiple_of(2) { "even" } else { "odd" };
    let (from, to) = (layout.x(it.lane.life.from), layout.x(it.lane.life.to));
    let gaps = [(LEFT, from), (to, RIGHT)]
        .into_iter()
        .filter(|(from, to)| from < to);
    let absent = gaps.map(|(from, to)| {
        let width = to - from;
        format!("<rect class=\"absent\" x=\"{from:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>\n")
    });
    let ground = format!(
        "<rect class=\"lane {class}\" x=\"0\" y=\"{y:.1}\" width=\"{WIDTH}\" height=\"{height:.1}\"/>\n"
    );
    ground + &absent.collect::<String>()
}

fn lane(layout: &Layout<'_>, it: &LaneBox<'_>, interactive: bool) -> String {
    let bars: String = it
        .bars
        .iter()
        .map(|boxed| bar::bar(layout, it.lane, boxed, interactive))
        .collect();
    let marks: String = it
        .lane
        .marks
        .iter()
        .map(|mark| of_node(layout, it, mark))
        .collect();
    let name = escaped(it.lane.place.title());
    format!(
        "<g class=\"row\" role=\"group\" aria-label=\"{name}\">\n{}{marks}{bars}</g>\n",
        heading(it)
    )
}

fn heading(it: &LaneBox<'_>) -> String {
    let y = it.y + GAP + BAR - 5.0;
    let name = it.lane.place.title();
    let (shown, remark) = match it.lane.remark {
        Some(_) => (cut(name, NAME - 2), " ✕"),
        None => (cut(name, NAME), ""),
    };
    format!(
        "<text class=\"name\" x=\"12\" y=\"{y:.1}\"><title>{}</title>{}{remark}</text>\n",
        escaped(&it.lane.heading()),
        escaped(&shown)
    )
}

fn of_node(layout: &Layout<'_>, it: &LaneBox<'_>, mark: &Mark) -> String {
    let x = layout.x(mark.at);
    let (top, bottom) = (it.y, it.y + it.height);
    let class = match mark.kind {
        MarkKind::NodeRemoved => "removed",
        MarkKind::Left | MarkKind::Arrived | MarkKind::NodeAdded => "added",
    };
    format!(
        "<line class=\"node {class}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\"><title>{}</title></line>\n",
        escaped(&super::details::of_mark(mark))
    )
}

fn footer(timeline: &Timeline, top: f64) -> String {
    let mut y = top;
    let lines = timeline.missing.iter().map(|gap| {
        y += LINE;
        format!(
            "<text class=\"tick\" x=\"12\" y=\"{y:.1}\">not read: {}</text>\n",
            escaped(gap)
        )
    });
    lines.collect()
}
