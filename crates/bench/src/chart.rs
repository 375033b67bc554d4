//! Charts as SVG: for each scenario, one bar for the median of each variant, and a line from the lowest to the highest round.

use crate::scenario::Scenario;
use crate::stats::{Spread, number, short};
use crate::variants::style;
use std::fmt::Write;

const BARS: f64 = 430.0;
const BAR: f64 = 18.0;
/// Space between the edge, a label and a bar.
const SPACE: f64 = 12.0;
/// The width of a character in the widest usual sans-serif font at 12 px, so that labels have enough space in each font.
const CHARACTER: f64 = 7.0;

/// The bars of one figure. Each scenario has a scale of its own, because figures of small and large sizes differ by magnitudes.
pub(crate) fn bars(title: &str, scenarios: &[Scenario], figure: &str) -> String {
    let labels = scenarios.iter().flat_map(Scenario::variants);
    let left = labels.map(width).fold(0.0, f64::max) + 3.0 * SPACE;
    let title = format!("{title}: {figure}");
    let size = (left + BARS + width("00000") + 2.0 * SPACE).max(width(&title) * 1.4 + 2.0 * SPACE);
    let (mut body, mut top) = (String::new(), 52.0);
    for scenario in scenarios {
        top = group(&mut body, left, top, scenario, figure);
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {size} {top}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{SPACE}\" y=\"24\" font-size=\"15\" font-weight=\"bold\">{title}</text>\n{body}</svg>\n"
    )
}

fn width(text: &str) -> f64 {
    number(text.chars().count()) * CHARACTER
}

/// Returns where the next group begins.
fn group(body: &mut String, left: f64, top: f64, scenario: &Scenario, figure: &str) -> f64 {
    let variants = scenario.variants().into_iter();
    let spreads: Vec<_> = variants
        .filter_map(|variant| Some((variant, scenario.spread(variant, figure)?)))
        .collect();
    let most = spreads
        .iter()
        .map(|(_, spread)| spread.high)
        .fold(f64::MIN_POSITIVE, f64::max);
    text(body, SPACE, top, " font-weight=\"bold\"", &scenario.title);
    let mut y = top + 8.0;
    for (variant, spread) in spreads {
        bar(body, left, y, variant, &spread, BARS / most);
        y += BAR + 4.0;
    }
    y + 30.0
}

fn bar(body: &mut String, left: f64, y: f64, variant: &str, spread: &Spread, scale: f64) {
    let (colour, opacity) = style(variant).map_or(("#000", 1.0), |style| (style.colour, style.opacity));
    let (middle, low, high) = (
        y + BAR / 2.0,
        left + spread.low * scale,
        left + spread.high * scale,
    );
    text(body, 2.0 * SPACE, middle + 4.0, "", variant);
    let fill = format!("{colour}\" fill-opacity=\"{opacity}");
    rectangle(body, left, y, spread.median * scale, BAR, &fill);
    rectangle(body, low, middle - 0.75, high - low, 1.5, "#222");
    text(body, high + 6.0, middle + 4.0, "", &short(spread.median));
}

fn rectangle(body: &mut String, x: f64, y: f64, width: f64, height: f64, fill: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(
        body,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"/>"
    );
}

fn text(body: &mut String, x: f64, y: f64, attributes: &str, text: &str) {
    let _ = writeln!(body, "<text x=\"{x:.1}\" y=\"{y:.1}\"{attributes}>{text}</text>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_fills_the_space_and_the_others_are_in_proportion() {
        let mut scenario = Scenario::new("s");
        scenario.add("one", [("time", 1.0)]).unwrap();
        scenario.add("two", [("time", 2.0)]).unwrap();
        let svg = bars("Time", &[scenario], "time");
        assert!(
            svg.contains("width=\"430.0\"") && svg.contains("width=\"215.0\""),
            "{svg}"
        );
    }

    #[test]
    fn a_label_ends_before_its_bar_begins() {
        let name = "a variant with an uncommonly long name, with an option";
        let mut scenario = Scenario::new("s");
        scenario.add(name, [("time", 1.0)]).unwrap();
        let svg = bars("Time", &[scenario], "time");
        let bar = svg
            .lines()
            .find_map(|line| line.strip_prefix("<rect x=\""))
            .unwrap();
        let left: f64 = bar.split('"').next().unwrap().parse().unwrap();
        assert!(24.0 + 7.0 * number(name.len()) <= left, "{svg}");
    }
}
