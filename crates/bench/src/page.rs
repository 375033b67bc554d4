//! The pages of results: an introduction that lists the parts, and a page for each part.

use crate::part::{BenchPart, verdict};
use crate::results::{Measured, Results};
use crate::scenario::Scenario;
use crate::template;
use std::fmt::Write;

pub(crate) fn introduction(parts: &[BenchPart], results: &Results) -> String {
    let measured = parts.iter().filter(|part| results.part(part).is_some());
    let links = measured.map(|part| format!("- [{}]({}.md)\n", part.title, part.name));
    let links: String = links.collect();
    let text = template::fill(include_str!("introduction.md"), results);
    format!("{text}\n{links}")
}

/// The aims that are missed, and what was tried.
pub(crate) fn improvements(results: &Results) -> String {
    template::fill(include_str!("improvements.md"), results)
}

/// How a part was measured, its chart, and a table for each scenario.
pub(crate) fn page(part: &BenchPart, measured: &Measured) -> String {
    let BenchPart {
        name, title, method, ..
    } = part;
    let mut text = format!("# {title}\n\n`--only {name}`: {method}\n");
    for session in measured.sessions.iter().rev() {
        // Writing to a String cannot fail.
        let _ = write!(text, "\nMeasured {session}\n");
    }
    if let Some(figure) = part.chart {
        let _ = write!(text, "\n![{title}: {figure}]({name}.svg)\n");
    }
    for scenario in &measured.scenarios {
        let (title, rounds) = (&scenario.title, scenario.number_of_rounds());
        let _ = write!(
            text,
            "\n## {title}\n\nRounds: {rounds}\n\n{}",
            table(part, scenario)
        );
    }
    text
}

/// A column for each variant: ratios first, then figures. Rows without values are left out.
fn table(part: &BenchPart, scenario: &Scenario) -> String {
    let variants = scenario.variants();
    let head = format!(
        "| | {} |\n|{}\n",
        variants.join(" | "),
        " --- |".repeat(variants.len() + 1)
    );
    let ratios = part.ratios.iter().map(|(figure, to)| (*figure, Some(*to)));
    let rows = ratios.chain(part.figures.iter().map(|figure| (*figure, None)));
    let rows = rows.map(|(figure, to)| {
        let cells: Vec<_> = variants
            .iter()
            .map(|variant| cell(part, scenario, variant, figure, to))
            .collect();
        if cells.iter().all(Option::is_none) {
            return String::new();
        }
        let name = to.map_or_else(String::new, |to| format!(": ratio to {to}"));
        let cells: Vec<_> = cells
            .into_iter()
            .map(|cell| cell.unwrap_or("-".to_owned()))
            .collect();
        format!("| {figure}{name} | {} |\n", cells.join(" | "))
    });
    head + &rows.collect::<String>()
}

/// With the verdict, if there is an aim. ≈ marks a ratio that was above 1 in some rounds and below 1 in others.
fn cell(
    part: &BenchPart,
    scenario: &Scenario,
    variant: &str,
    figure: &str,
    to: Option<&str>,
) -> Option<String> {
    let spread = match to {
        Some(to) => scenario.ratio(variant, to, figure)?,
        None => scenario.spread(variant, figure)?,
    };
    let is_ratio = to.is_some_and(|to| to != variant);
    let is_noise = is_ratio && spread.rounds > 1 && spread.low <= 1.0 && 1.0 <= spread.high;
    let noise = if is_noise { " ≈" } else { "" };
    let mut aims = part.aims.iter();
    let aim = aims.find(|(of, aimed, base, _)| (*of, *aimed, *base) == (variant, figure, to));
    let verdict = aim.map_or_else(String::new, |(.., at_most)| {
        format!("; {}", verdict(*at_most, &spread))
    });
    Some(format!("{spread}{noise}{verdict}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: BenchPart = BenchPart {
        name: "p",
        title: "P",
        method: "By hand.",
        in_quick: false,
        measure: |_, _| Ok(Vec::new()),
        figures: &["time", "nodes", "unknown"],
        ratios: &[("time", "base")],
        aims: &[("ours", "time", Some("base"), 1.2), ("ours", "nodes", None, 1.0)],
        chart: Some("time"),
    };

    fn two_rounds() -> Scenario {
        let mut scenario = Scenario::new("s");
        for (base, ours) in [(2.0, 3.0), (2.0, 1.0)] {
            scenario.add("base", [("time", base)]).unwrap();
            scenario.add("ours", [("time", ours), ("nodes", 1.0)]).unwrap();
        }
        scenario
    }

    #[test]
    fn each_table_has_its_number_of_rounds() {
        let measured = Measured {
            sessions: Vec::new(),
            scenarios: vec![two_rounds()],
        };
        let page = page(&PART, &measured);
        assert!(page.contains("\n## s\n\nRounds: 2\n\n| | base"), "{page}");
    }

    #[test]
    fn ratios_come_first_with_aims_and_a_missing_figure_is_a_dash() {
        let expected = "| | base | ours |\n| --- | --- | --- |\n\
            | time: ratio to base | 1 (1 to 1) | 1 (0.50 to 1.50) ≈; aim 1.2 reached, within noise |\n\
            | time | 2 (2 to 2) | 2 (1 to 3) |\n| nodes | - | 1 (1 to 1); aim 1 reached |\n";
        assert_eq!(table(&PART, &two_rounds()), expected);
    }
}
