//! Horizontal bars as SVG: one group a scenario, one bar a variant, a line from the lowest to the highest round.

use crate::scenario::Scenario;
use crate::stats::{Spread, short};
use std::fmt::Write;

const LEFT: f64 = 250.0;
const BARS: f64 = 430.0;
const WIDTH: f64 = LEFT + BARS + 90.0;
const BAR: f64 = 18.0;
const GAP: f64 = 30.0;
/// Told apart without colours too, since each bar has its name beside it.
const COLOURS: [&str; 8] = [
    "#7f8c9a", "#a7b1bc", "#c9a66b", "#2f7ed8", "#1b5faa", "#74b0ee", "#5aa469", "#9b6fb0",
];

/// The bars of one figure in these scenarios; each group has a scale of its own, since sizes differ by magnitudes.
pub(crate) fn bars(title: &str, scenarios: &[&Scenario], figure: &str) -> String {
    let (mut body, mut y) = (String::new(), 52.0);
    for scenario in scenarios {
        y = group(&mut body, y, scenario, figure);
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {y}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"12\" y=\"24\" font-size=\"15\" font-weight=\"bold\">{}</text>\n{body}</svg>\n",
        escaped(title)
    )
}

fn group(body: &mut String, top: f64, scenario: &Scenario, figure: &str) -> f64 {
    let spreads = scenario.variants.iter().enumerate();
    let spreads: Vec<_> = spreads
        .filter_map(|(index, variant)| Some((index, variant, scenario.spread(variant, figure)?)))
        .collect();
    let most = spreads
        .iter()
        .map(|(_, _, spread)| spread.high)
        .fold(0.0, f64::max);
    text(body, 12.0, top, "bold", &scenario.title);
    let mut y = top + 8.0;
    for (index, variant, spread) in spreads {
        bar(body, y, variant, &spread, most, COLOURS[index % COLOURS.len()]);
        y += BAR + 4.0;
    }
    y + GAP
}

fn bar(body: &mut String, y: f64, name: &str, spread: &Spread, most: f64, colour: &str) {
    let place = |value: f64| LEFT + if most > 0.0 { value / most * BARS } else { 0.0 };
    let (middle, width) = (y + BAR / 2.0, place(spread.median) - LEFT);
    text(body, 24.0, middle + 4.0, "normal", name);
    rectangle(body, LEFT, y, width, BAR, colour);
    rectangle(
        body,
        place(spread.low),
        middle - 0.75,
        place(spread.high) - place(spread.low),
        1.5,
        "#222",
    );
    text(
        body,
        place(spread.high) + 6.0,
        middle + 4.0,
        "normal",
        &short(spread.median),
    );
}

fn rectangle(body: &mut String, x: f64, y: f64, width: f64, height: f64, colour: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(
        body,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
    );
}

fn text(body: &mut String, x: f64, y: f64, weight: &str, words: &str) {
    let words = escaped(words);
    let _ = writeln!(
        body,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" font-weight=\"{weight}\">{words}</text>"
    );
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_is_as_long_as_there_is_room_and_the_others_in_proportion() {
        let mut scenario = Scenario::new("a & b", &[]);
        scenario.add("one", vec![("time", 1.0)]).unwrap();
        scenario.add("two", vec![("time", 2.0)]).unwrap();
        let svg = bars("Time", &[&scenario], "time");
        assert!(
            svg.contains("width=\"430.0\"") && svg.contains("width=\"215.0\""),
            "{svg}"
        );
        assert!(svg.contains("a &amp; b"));
    }
}
