//! Variants that were measured in the same rounds, and their figures.

use crate::stats::Spread;
use crate::variants;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The figures of one variant in one round, by name.
pub(crate) type Figures = Vec<(&'static str, f64)>;

/// Variants that were measured under the same conditions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Scenario {
    pub(crate) title: String,
    /// Variant, then figure, then one value for each round.
    values: BTreeMap<String, BTreeMap<String, Vec<f64>>>,
}

impl Scenario {
    pub(crate) fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            values: BTreeMap::new(),
        }
    }

    /// Measures each variant once in each round, in a random order.
    pub(crate) async fn measure<V: Copy>(
        title: impl Into<String>,
        rounds: u32,
        variants: &[V],
        name: impl Fn(V) -> String,
        mut measure: impl AsyncFnMut(u32, V) -> Result<Figures>,
    ) -> Result<Self> {
        let mut scenario = Self::new(title);
        for round in 0..rounds {
            let mut order = variants.to_vec();
            fastrand::shuffle(&mut order);
            for variant in order {
                let name = name(variant);
                let figures = measure(round, variant).await;
                let figures = figures.with_context(|| format!("{}, {name}", scenario.title))?;
                if let Some((figure, value)) = figures.first() {
                    eprintln!(
                        "   {}, round {}: {name}: {figure}: {value:.2}",
                        scenario.title,
                        round + 1
                    );
                }
                scenario.add(&name, figures)?;
            }
        }
        Ok(scenario)
    }

    /// Adds a round. A figure that is not a number means that the measurement is broken.
    pub(crate) fn add<Name: Into<String>>(
        &mut self,
        variant: &str,
        figures: impl IntoIterator<Item = (Name, f64)>,
    ) -> Result<()> {
        let of_variant = self.values.entry(variant.to_owned()).or_default();
        for (figure, value) in figures {
            let figure = figure.into();
            if !value.is_finite() {
                bail!("{}: {variant}: {figure} is {value}", self.title);
            }
            of_variant.entry(figure).or_default().push(value);
        }
        Ok(())
    }

    /// Appends the rounds of another measurement. If its variants or figures differ, its rounds replace the existing rounds, and the
    /// result is false: a median over different things would say nothing.
    pub(crate) fn join(&mut self, other: Self) -> bool {
        if !self.names().eq(other.names()) {
            eprintln!(
                "   {}: other variants or figures replace the earlier rounds",
                self.title
            );
            *self = other;
            return false;
        }
        for (variant, figures) in other.values {
            for (figure, values) in figures {
                let of_variant = self.values.entry(variant.clone()).or_default();
                of_variant.entry(figure).or_default().extend(values);
            }
        }
        true
    }

    fn names(&self) -> impl Iterator<Item = (&String, &String)> {
        let variants = self.values.iter();
        variants.flat_map(|(variant, figures)| figures.keys().map(move |figure| (variant, figure)))
    }

    /// The variants in the order of the page.
    pub(crate) fn variants(&self) -> Vec<&str> {
        let mut variants: Vec<_> = self.values.keys().map(String::as_str).collect();
        variants.sort_by_key(|variant| variants::style(variant).map(|style| style.place));
        variants
    }

    /// The number of rounds in which the figures were measured.
    pub(crate) fn number_of_rounds(&self) -> usize {
        let figures = self.values.values().flat_map(BTreeMap::values);
        figures.map(Vec::len).max().unwrap_or_default()
    }

    fn rounds(&self, variant: &str, figure: &str) -> &[f64] {
        let values = self.values.get(variant).and_then(|figures| figures.get(figure));
        values.map_or(&[], Vec::as_slice)
    }

    pub(crate) fn spread(&self, variant: &str, figure: &str) -> Option<Spread> {
        Spread::new(self.rounds(variant, figure))
    }

    /// The figure divided by that of another variant, round by round: what disturbs a whole round changes the ratio little.
    pub(crate) fn ratio(&self, variant: &str, to: &str, figure: &str) -> Option<Spread> {
        let pairs = self.rounds(variant, figure).iter().zip(self.rounds(to, figure));
        let ratios = pairs.filter(|(_, base)| **base > 0.0).map(|(of, base)| of / base);
        Spread::new(&ratios.collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario() -> Scenario {
        let mut scenario = Scenario::new("80 runs");
        for (base, ours) in [(10.0, 11.0), (20.0, 21.0), (10.0, 12.0)] {
            scenario.add("base", [("time", base)]).unwrap();
            scenario.add("ours", [("time", ours)]).unwrap();
        }
        scenario
    }

    #[test]
    fn ratios_are_taken_within_each_round() {
        let ratio = scenario().ratio("ours", "base", "time").unwrap();
        assert_eq!((ratio.median, ratio.low, ratio.high), (1.1, 1.05, 1.2));
    }

    #[test]
    fn rounds_that_are_added_follow_the_earlier_rounds() {
        let mut both = scenario();
        assert!(both.join(scenario()));
        assert_eq!(both.rounds("ours", "time"), [11.0, 21.0, 12.0, 11.0, 21.0, 12.0]);
    }

    #[test]
    fn rounds_with_other_variants_replace_the_earlier_rounds() {
        let (mut joined, mut other) = (scenario(), scenario());
        other.add("a third", [("time", 1.0)]).unwrap();
        assert!(!joined.join(other.clone()));
        assert_eq!(joined, other);
    }

    #[test]
    fn a_figure_that_is_not_a_number_breaks_the_measurement() {
        let broken = scenario().add("ours", [("time", f64::NAN)]).unwrap_err();
        assert_eq!(broken.to_string(), "80 runs: ours: time is NaN");
    }
}
