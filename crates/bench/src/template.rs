//! The figures in the text of a page.

use crate::results::Results;
use crate::stats::Spread;

/// Stands in a text in place of a figure that was not measured.
pub(crate) const MISSING: &str = "not measured: ";

/// Replaces each `{part; scenario; figure; variant}` by the figure, and each `{part; scenario; figure; variant / other}` by the
/// ratio of the two variants.
pub(crate) fn fill(template: &str, results: &Results) -> String {
    let mut pieces = template.split('{');
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (name, rest) = piece.split_once('}').unwrap_or((piece, ""));
        text +=
            &spread(name, results).map_or_else(|| format!("{MISSING}{name}"), |spread| spread.to_string());
        text += rest;
    }
    text
}

fn spread(name: &str, results: &Results) -> Option<Spread> {
    let names: Vec<_> = name.split(';').map(str::trim).collect();
    let [part, scenario, figure, variant] = names[..] else {
        return None;
    };
    let scenario = results.scenario(part, scenario)?;
    match variant.split_once(" / ") {
        Some((variant, other)) => scenario.ratio(variant, other, figure),
        None => scenario.spread(variant, figure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Session;
    use crate::runs::FEW;
    use crate::scenario::Scenario;

    fn results() -> Results {
        let mut scenario = Scenario::new("one run");
        for (base, ours) in [(2.0, 3.0), (2.0, 1.0)] {
            scenario.add("base", [("time, s", base)]).unwrap();
            scenario.add("ours, both", [("time, s", ours)]).unwrap();
        }
        let mut results = Results::default();
        results.record(&FEW, Session::start(true).unwrap(), vec![scenario], false);
        results
    }

    #[test]
    fn a_text_gets_its_figures_and_ratios() {
        let template =
            "a {runs-few; one run; time, s; base} b\n{runs-few; one run; time, s; ours, both / base}";
        assert_eq!(fill(template, &results()), "a 2 (2 to 2) b\n1 (0.50 to 1.50)");
    }

    #[test]
    fn a_figure_that_was_not_measured_is_named_in_the_text() {
        let template = "a {runs-few; one run; time; base}, {few}";
        let filled = "a not measured: runs-few; one run; time; base, not measured: few";
        assert_eq!(fill(template, &results()), filled);
    }
}
