//! One side-by-side measurement: variants, figures, and what each round gave for them.

use crate::stats::Spread;
use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What one round gave for one variant: figures by name.
pub(crate) type Figures = Vec<(&'static str, f64)>;

/// Variants measured in turns under the same conditions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Scenario {
    pub(crate) title: String,
    /// In the order in which they were first measured.
    pub(crate) variants: Vec<String>,
    /// In the order in which they were first told.
    pub(crate) figures: Vec<String>,
    /// Which figure is compared with which variant's, first of all.
    pub(crate) ratios: Vec<Ratio>,
    /// Variant, then figure, then one value a round.
    pub(crate) values: BTreeMap<String, BTreeMap<String, Vec<f64>>>,
}

/// A comparison within each round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ratio {
    pub(crate) figure: String,
    pub(crate) to: String,
}

impl Scenario {
    pub(crate) fn new(title: impl Into<String>, ratios: &[(&str, &str)]) -> Self {
        let ratio = |&(figure, to): &(&str, &str)| Ratio {
            figure: figure.to_owned(),
            to: to.to_owned(),
        };
        Self {
            title: title.into(),
            variants: Vec::new(),
            figures: Vec::new(),
            ratios: ratios.iter().map(ratio).collect(),
            values: BTreeMap::new(),
        }
    }

    /// Adds what a round gave. A figure that is no number means that the measurement is broken.
    pub(crate) fn add<Name>(
        &mut self,
        variant: &str,
        figures: impl IntoIterator<Item = (Name, f64)>,
    ) -> Result<()>
    where
        Name: Into<String>,
    {
        if !self.variants.iter().any(|known| known == variant) {
            self.variants.push(variant.to_owned());
        }
        for (figure, value) in figures {
            let figure = figure.into();
            if !value.is_finite() {
                bail!(
                    "{}: {variant}: {figure} is {value}: nothing was measured",
                    self.title
                );
            }
            if !self.figures.contains(&figure) {
                self.figures.push(figure.clone());
            }
            let of_variant = self.values.entry(variant.to_owned()).or_default();
            of_variant.entry(figure).or_default().push(value);
        }
        Ok(())
    }

    /// Adds the rounds of another sitting after its own. Where variants or figures are others by now, the new rounds take the
    /// place of its own: they have nothing to do with one another. Whether its own are still there.
    pub(crate) fn join(&mut self, other: Self) -> bool {
        // Variants are measured in random order.
        let variants = |of: &Self| BTreeSet::from_iter(of.variants.clone());
        if variants(self) != variants(&other) || self.figures != other.figures {
            eprintln!(
                "   {}: the earlier rounds go, because their variants or figures are not those of the new ones",
                self.title
            );
            *self = other;
            return false;
        }
        for (variant, figures) in other.values {
            let of_variant = self.values.entry(variant).or_default();
            for (figure, values) in figures {
                of_variant.entry(figure).or_default().extend(values);
            }
        }
        true
    }

    /// One value a round.
    pub(crate) fn rounds(&self, variant: &str, figure: &str) -> &[f64] {
        let values = self.values.get(variant).and_then(|figures| figures.get(figure));
        values.map_or(&[], Vec::as_slice)
    }

    pub(crate) fn spread(&self, variant: &str, figure: &str) -> Option<Spread> {
        Spread::of(self.rounds(variant, figure))
    }

    /// Divided round by round, so that what disturbed a whole round disturbs the ratio little.
    pub(crate) fn ratio(&self, variant: &str, to: &str, figure: &str) -> Option<Spread> {
        let pairs = self.rounds(variant, figure).iter().zip(self.rounds(to, figure));
        let ratios: Vec<_> = pairs
            .filter(|(_, base)| **base > 0.0)
            .map(|(of, base)| of / base)
            .collect();
        Spread::of(&ratios)
    }

    /// Sentences for each variant that beats ours in a figure where less is better.
    pub(crate) fn faster_than(&self, ours: &str, figure: &'static str) -> Vec<String> {
        let others = self.variants.iter().filter(|variant| *variant != ours);
        let faster = others.filter_map(|variant| {
            let ratio = self.ratio(variant, ours, figure)?;
            let sentence = format!(
                "{}: **{variant}** takes {ratio} of **{ours}**'s {figure}.",
                self.title
            );
            (ratio.median < 1.0).then_some(sentence)
        });
        faster.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario() -> Scenario {
        let mut scenario = Scenario::new("80 runs", &[("time", "base")]);
        for (base, ours) in [(10.0, 11.0), (20.0, 21.0), (10.0, 12.0)] {
            scenario.add("base", vec![("time", base)]).unwrap();
            scenario.add("ours", vec![("time", ours)]).unwrap();
        }
        scenario
    }

    #[test]
    fn ratios_are_taken_within_each_round() {
        let ratio = scenario().ratio("ours", "base", "time").unwrap();
        assert_eq!((ratio.median, ratio.low, ratio.high), (1.1, 1.05, 1.2));
    }

    #[test]
    fn rounds_of_two_sittings_follow_one_another() {
        let mut both = scenario();
        assert!(both.join(scenario()));
        assert_eq!(both.rounds("ours", "time"), [11.0, 21.0, 12.0, 11.0, 21.0, 12.0]);
    }

    #[test]
    fn rounds_with_another_variant_take_the_place_of_those_that_are_there() {
        let mut there = scenario();
        let mut other = scenario();
        other.add("a third", vec![("time", 1.0)]).unwrap();
        assert!(!there.join(other));
        assert_eq!(there.rounds("a third", "time"), [1.0]);
        assert_eq!(there.rounds("ours", "time"), [11.0, 21.0, 12.0]);
    }

    #[test]
    fn rounds_are_joined_whichever_variant_was_measured_first() {
        let rounds = |order: [&str; 2]| {
            let mut scenario = Scenario::new("s", &[]);
            for variant in order {
                scenario.add(variant, vec![("time", 1.0)]).unwrap();
            }
            scenario
        };
        let mut both = rounds(["a", "b"]);
        assert!(both.join(rounds(["b", "a"])));
        assert_eq!(both.rounds("a", "time"), [1.0, 1.0]);
    }

    #[test]
    fn another_choice_that_is_faster_is_told() {
        assert_eq!(scenario().faster_than("ours", "time").len(), 1);
        assert!(scenario().faster_than("base", "time").is_empty());
    }

    #[test]
    fn a_figure_that_is_no_number_breaks_the_measurement() {
        let broken = scenario().add("ours", vec![("time", f64::NAN)]).unwrap_err();
        assert!(broken.to_string().contains("nothing was measured"), "{broken}");
    }
}
