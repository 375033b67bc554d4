//! A part of the measurements: how it is measured, and what the page shows of its results.

use crate::scenario::Scenario;
use crate::stats::Spread;
use anyhow::{Result, bail};
use std::path::PathBuf;
use tokio::runtime::Runtime;

pub(crate) struct BenchPart {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// How the part is measured, for the page.
    pub(crate) method: &'static str,
    /// Whether `--quick` includes the part.
    pub(crate) in_quick: bool,
    pub(crate) measure: fn(&Runtime, &Effort) -> Result<Vec<Scenario>>,
    /// The figures that the page shows. The JSON file has all figures.
    pub(crate) figures: &'static [&'static str],
    /// Ratios that the page shows: a figure, and the variant by which it is divided.
    pub(crate) ratios: &'static [(&'static str, &'static str)],
    pub(crate) aims: &'static [Aim],
    /// The figure of the chart.
    pub(crate) chart: Option<&'static str>,
}

/// The highest value that a figure of a variant should have: the variant, the figure, for a ratio the other variant, and the value.
pub(crate) type Aim = (&'static str, &'static str, Option<&'static str>, f64);

/// The median decides. The result is noise if the rounds differ in it.
pub(crate) fn verdict(at_most: f64, measured: &Spread) -> String {
    let reached = if measured.median <= at_most {
        "reached"
    } else {
        "missed"
    };
    let doubt = if measured.rounds < 2 {
        ", one round"
    } else if measured.low <= at_most && at_most < measured.high {
        ", within noise"
    } else {
        ""
    };
    format!("aim {at_most} {reached}{doubt}")
}

/// How much to measure, and which binary.
#[derive(Debug)]
pub(crate) struct Effort {
    pub(crate) quick: bool,
    pub(crate) rounds: u32,
    pub(crate) at_most: Option<u32>,
    pub(crate) binary: PathBuf,
}

impl Effort {
    /// The first value, or the second one with `--quick`.
    pub(crate) fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// The sizes whose number of concurrent runs `--at-most` allows.
    pub(crate) fn allowed<Size: Copy>(&self, sizes: &[Size], runs: fn(&Size) -> usize) -> Result<Vec<Size>> {
        let is_allowed = |size: &Size| {
            let runs = u32::try_from(runs(size));
            self.at_most
                .is_none_or(|most| runs.is_ok_and(|runs| runs <= most))
        };
        let allowed: Vec<_> = sizes.iter().copied().filter(is_allowed).collect();
        if allowed.is_empty() {
            bail!("--at-most is below the smallest size of this part");
        }
        Ok(allowed)
    }

    pub(crate) fn options(&self, limits: testbed::Limits) -> testbed::Options {
        testbed::Options {
            binary: Some(self.binary.clone()),
            admission: Some(testbed::Admission::Webhook),
            limits,
            ..testbed::Options::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aim_is_reached_or_missed_by_the_median_and_noise_is_reported() {
        let verdict = |rounds: &[f64]| verdict(1.0, &Spread::new(rounds).unwrap());
        assert_eq!(verdict(&[1.1, 1.2]), "aim 1 missed");
        assert_eq!(verdict(&[0.8, 0.9]), "aim 1 reached");
        assert_eq!(verdict(&[0.8, 0.9, 1.1]), "aim 1 reached, within noise");
        assert_eq!(verdict(&[0.8]), "aim 1 reached, one round");
        assert_eq!(verdict(&[1.0, 1.0]), "aim 1 reached");
        assert_eq!(verdict(&[1.0, 1.1, 1.1]), "aim 1 missed, within noise");
    }
}
