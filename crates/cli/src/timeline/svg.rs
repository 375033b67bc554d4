//! The timeline as SVG, and as an HTML page with a filter and the keyboard that needs no network.

mod layout;
mod shapes;
#[cfg(test)]
mod tests;

use super::labels::{of_mark, shortened, ticks};
use super::model::{Mark, MarkKind, Timeline};
use super::title;
use layout::{BAR, GAP, LEFT, LaneBox, Layout, RIGHT, WIDTH};
use shapes::{bar, legend};

/// Rules that name their colours by CSS variables.
const RULES: &str = include_str!("svg/rules.css");
/// The variables.
const LIGHT: &str = include_str!("svg/light.css");
const DARK: &str = include_str!("svg/dark.css");
/// Hatches, for readers who cannot tell the colours apart.
const PATTERNS: &str = include_str!("svg/patterns.svg");
const PAGE: &str = include_str!("page.html");
const PAGE_STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// Times on the axis.
const TICKS: usize = 10;
const AXIS: f64 = 24.0;
const LINE: f64 = 18.0;
/// Letters of a lane's name that fit beside the picture.
const NAME: usize = 26;

/// A picture with title, legend and notes.
pub(crate) fn svg(timeline: &Timeline) -> String {
    let (legend, below_legend) = legend(timeline, LINE * 2.0 + 4.0);
    let layout = Layout::new(timeline, below_legend + AXIS);
    let mut end = layout.bottom + AXIS;
    let notes = timeline.missing.iter().map(|error| {
        end += LINE;
        let error = escaped(error);
        format!("<text class=\"tick\" x=\"12\" y=\"{end:.1}\">not read: {error}</text>\n")
    });
    let notes: String = notes.collect();
    let height = end + 8.0;
    let title = escaped(&title(timeline));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" \
         height=\"{height:.0}\" role=\"img\" aria-label=\"{title}\" class=\"timeline\">\n<style>{}</style>\n{PATTERNS}\
         <rect class=\"paper\" width=\"{WIDTH}\" height=\"{height:.0}\"/>\n\
         <text class=\"title\" x=\"12\" y=\"22\">{title}</text>\n{legend}{}{}{}{notes}</svg>\n",
        style(),
        axis(&layout, layout.top - 8.0),
        lanes(&layout, false),
        axis(&layout, layout.bottom + 16.0),
    )
}

/// A page, in which legend, axis and lanes are pictures of their own.
pub(crate) fn html(timeline: &Timeline) -> String {
    let (legend, legend_height) = legend(timeline, 16.0);
    let layout = Layout::new(timeline, 4.0);
    let height = layout.bottom + 4.0;
    let title = escaped(&title(timeline));
    let missing = timeline
        .missing
        .iter()
        .map(|error| format!("<li>{}</li>", escaped(error)));
    let missing: String = missing.collect();
    let picture = |class: &str, height: f64, role: &str, content: &str| {
        format!("<svg class=\"timeline{class}\" viewBox=\"0 0 {WIDTH} {height:.0}\" {role}>{content}</svg>\n")
    };
    let hidden = "aria-hidden=\"true\"";
    let group = format!("role=\"group\" aria-label=\"{title}\"");
    let parts = [
        ("style", page_style()),
        ("title", title),
        ("key", picture(" key", legend_height, hidden, &legend)),
        ("axis", picture(" axis", AXIS, hidden, &axis(&layout, AXIS - 8.0))),
        (
            "lanes",
            picture(
                "",
                height,
                &group,
                &format!("\n{PATTERNS}{}", lanes(&layout, true)),
            ),
        ),
        (
            "missing",
            if missing.is_empty() {
                missing
            } else {
                format!(
                    "<div class=\"missing\">Not read, so the picture is incomplete:<ul>{missing}</ul></div>"
                )
            },
        ),
        ("script", SCRIPT.to_owned()),
    ];
    filled(PAGE, &parts)
}

/// The style of a picture. Many programs draw a colour that is a CSS variable as black, so each variable is replaced.
fn style() -> String {
    let (light, dark) = (with_colours(LIGHT), with_colours(DARK));
    format!("\n{light}@media (prefers-color-scheme: dark) {{\n{dark}}}\n")
}

fn with_colours(variables: &str) -> String {
    let variables = variables
        .split(';')
        .filter_map(|variable| variable.trim().split_once(": "));
    variables.fold(RULES.to_owned(), |rules, (name, colour)| {
        rules.replace(&format!("var({name})"), colour)
    })
}

/// The style of a page, on which a reader can choose between light and dark.
fn page_style() -> String {
    format!(
        ":root {{ {LIGHT} }}\n@media (prefers-color-scheme: dark) {{ :root:not([data-theme=\"light\"]) {{ {DARK} }} }}\n\
         :root[data-theme=\"dark\"] {{ {DARK} }}\n{RULES}{PAGE_STYLE}"
    )
}

/// Replaces each `{{part}}` in one pass, so that the name of a run that looks like a part stays as it is.
fn filled(template: &str, parts: &[(&str, String)]) -> String {
    let mut pieces = template.split("{{");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |page, piece| {
        let (name, rest) = piece.split_once("}}").unwrap_or((piece, ""));
        let part = parts.iter().find(|(known, _)| *known == name);
        page + part.map_or("", |(_, text)| text) + rest
    })
}

/// A text that cannot end the element or the attribute that contains the text.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' => safe.push(letter),
            // XML has no way to write other control characters.
            control if control.is_control() => safe.push('\u{fffd}'),
            other => safe.push(other),
        }
    }
    safe
}

fn axis(layout: &Layout<'_>, y: f64) -> String {
    let ticks = ticks(layout.window, TICKS);
    let texts = ticks.iter().map(|(time, text)| {
        let x = layout.x(*time);
        let anchor = match x {
            x if x < LEFT + 30.0 => "start",
            x if x > RIGHT - 30.0 => "end",
            _ => "middle",
        };
        format!("<text class=\"tick\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>\n")
    });
    let zone = format!("<text class=\"tick\" x=\"12\" y=\"{y:.1}\">UTC</text>\n");
    zone + &texts.collect::<String>()
}

/// The lanes; the keyboard reaches bars that are interactive.
fn lanes(layout: &Layout<'_>, interactive: bool) -> String {
    if layout.lanes.is_empty() {
        return "<text class=\"tick\" x=\"12\" y=\"20\">No PipelineRuns in this time.</text>\n".to_owned();
    }
    let grid = ticks(layout.window, TICKS).into_iter().map(|(time, _)| {
        let x = layout.x(time);
        let (top, bottom) = (layout.top, layout.bottom);
        format!("<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\"/>\n")
    });
    let grounds = layout.lanes.iter().enumerate();
    let grounds = grounds.map(|(at, lane)| ground(layout, lane, at.is_multiple_of(2)));
    let lanes = layout.lanes.iter().map(|it| lane(layout, it, interactive));
    grounds.chain(grid).chain(lanes).collect()
}

/// The ground of a lane, which is darker while its node does not exist.
fn ground(layout: &Layout<'_>, it: &LaneBox<'_>, is_even: bool) -> String {
    let (y, height) = (it.y, it.height);
    let class = if is_even { "even" } else { "odd" };
    let life = it.lane.life;
    let ranges = [(LEFT, layout.x(life.from)), (layout.x(life.to), RIGHT)];
    let absent = ranges.into_iter().filter(|(from, to)| from < to).map(|(from, to)| {
        let width = to - from;
        format!("<rect class=\"absent\" x=\"{from:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>\n")
    });
    let ground = format!(
        "<rect class=\"lane {class}\" x=\"0\" y=\"{y:.1}\" width=\"{WIDTH}\" height=\"{height:.1}\"/>\n"
    );
    ground + &absent.collect::<String>()
}

fn lane(layout: &Layout<'_>, it: &LaneBox<'_>, interactive: bool) -> String {
    let marks = it.lane.marks.iter().map(|mark| node_mark(layout, it, mark));
    let bars = it
        .bars
        .iter()
        .map(|boxed| bar(layout, it.lane, boxed, interactive));
    let name = escaped(it.lane.place.title());
    format!(
        "<g class=\"row\" role=\"group\" aria-label=\"{name}\">\n{}{}</g>\n",
        heading(it),
        marks.chain(bars).collect::<String>()
    )
}

fn heading(it: &LaneBox<'_>) -> String {
    let y = it.y + GAP + BAR - 5.0;
    let name = it.lane.place.title();
    let (shown, remark) = match it.lane.remark {
        Some(_) => (shortened(name, NAME - 2), " ✕"),
        None => (shortened(name, NAME), ""),
    };
    format!(
        "<text class=\"name\" x=\"12\" y=\"{y:.1}\"><title>{}</title>{}{remark}</text>\n",
        escaped(&it.lane.heading()),
        escaped(&shown)
    )
}

fn node_mark(layout: &Layout<'_>, it: &LaneBox<'_>, mark: &Mark) -> String {
    let x = layout.x(mark.at);
    let (top, bottom) = (it.y, it.y + it.height);
    let class = match mark.kind {
        MarkKind::NodeRemoved => "removed",
        MarkKind::Left | MarkKind::Arrived | MarkKind::NodeAdded => "added",
    };
    format!(
        "<line class=\"node {class}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\"><title>{}</title></line>\n",
        escaped(&of_mark(mark))
    )
}
