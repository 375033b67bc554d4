//! Medians, ranges and quantiles of numbers.

use std::fmt;

/// The median and the range of one figure over all rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) rounds: usize,
}

impl Spread {
    /// `None` without values.
    pub(crate) fn new(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        let (low, high) = (*sorted.first()?, *sorted.last()?);
        let half = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[half - 1], sorted[half])
        } else {
            sorted[half]
        };
        Some(Self {
            median,
            low,
            high,
            rounds: sorted.len(),
        })
    }
}

/// The range is left out if there was only one round.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&short(self.median))?;
        if self.rounds > 1 {
            write!(f, " ({} to {})", short(self.low), short(self.high))?;
        }
        Ok(())
    }
}

/// Three significant digits, without an exponent.
pub(crate) fn short(value: f64) -> String {
    let size = value.abs();
    let decimals = match size {
        _ if value.fract() == 0.0 || size >= 100.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 0.1 => 2,
        _ => 4,
    };
    format!("{value:.decimals$}")
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// A count as a figure.
#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
pub(crate) fn number(count: usize) -> f64 {
    count as f64
}

/// The smallest value that is at least as large as this share of all values.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rank, far below 2^52"
)]
pub(crate) fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let sorted = sorted(values);
    let rank = (share * number(sorted.len())).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_median_and_both_ends() {
        let odd = Spread::new(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((odd.median, odd.low, odd.high), (2.0, 1.0, 3.0));
        let even = Spread::new(&[1.0, 2.0]).unwrap();
        assert_eq!((even.median, even.low), (1.5, 1.0));
        assert_eq!(Spread::new(&[]), None);
    }

    #[test]
    fn figures_are_short_and_a_single_round_shows_no_range() {
        let shown = |values: &[f64]| Spread::new(values).unwrap().to_string();
        assert_eq!(shown(&[1.234, 1.1, 1.3]), "1.23 (1.10 to 1.30)");
        assert_eq!(shown(&[1234.5]), "1234");
        assert_eq!((short(0.0123), short(1.0)), ("0.0123".to_owned(), "1".to_owned()));
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let values: Vec<_> = (1..=100).map(f64::from).collect();
        assert_eq!(quantile(&values, 0.5), Some(50.0));
        assert_eq!(quantile(&values, 0.99), Some(99.0));
        assert_eq!(quantile(&values, 0.999), Some(100.0));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
