//! Medians, spreads, ratios and growth; nothing here knows what was measured.

use serde::Serialize;
use std::fmt;

/// What several rounds say of one figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) rounds: usize,
}

impl Spread {
    /// Nothing was measured: no spread.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            median: middle(&sorted)?,
            low: *sorted.first()?,
            high: *sorted.last()?,
            rounds: sorted.len(),
        })
    }

    /// Whether some rounds are at or above this value and some at or below it.
    pub(crate) fn spans(self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// With its range, unless there was one round only.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&short(self.median))?;
        if self.rounds > 1 {
            write!(f, " ({} to {})", short(self.low), short(self.high))?;
        }
        Ok(())
    }
}

/// Three digits that count, never an exponent.
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

fn middle(sorted: &[f64]) -> Option<f64> {
    let half = sorted.len() / 2;
    let upper = *sorted.get(half)?;
    Some(if sorted.len() % 2 == 1 {
        upper
    } else {
        f64::midpoint(sorted[half - 1], upper)
    })
}

/// A count among figures.
#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
pub(crate) fn number(count: usize) -> f64 {
    count as f64
}

/// The smallest value that at least this share of all values does not exceed.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rank, far below 2^52"
)]
pub(crate) fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * number(sorted.len())).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// The exponent `b` of `y = a * x^b` that fits best in logarithms; needs two different sizes.
pub(crate) fn exponent(points: &[(f64, f64)]) -> Option<f64> {
    let logs: Vec<_> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let count = u32::try_from(logs.len()).ok().filter(|count| *count >= 2)?;
    let mean = |pick: fn(&(f64, f64)) -> f64| logs.iter().map(pick).sum::<f64>() / f64::from(count);
    let (x_mean, y_mean) = (mean(|log| log.0), mean(|log| log.1));
    let spread: f64 = logs.iter().map(|(x, _)| (x - x_mean).powi(2)).sum();
    let together: f64 = logs.iter().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum();
    (spread > 0.0).then(|| together / spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_middle_and_both_ends() {
        let odd = Spread::of(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((odd.median, odd.low, odd.high), (2.0, 1.0, 3.0));
        let even = Spread::of(&[1.0, 2.0]).unwrap();
        assert_eq!((even.median, even.low), (1.5, 1.0));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn figures_are_short_and_a_single_round_shows_no_range() {
        assert_eq!(
            Spread::of(&[1.234, 1.1, 1.3]).unwrap().to_string(),
            "1.23 (1.10 to 1.30)"
        );
        assert_eq!(Spread::of(&[1234.5]).unwrap().to_string(), "1234");
        assert_eq!(short(0.0123), "0.0123");
        assert_eq!(short(1.0), "1");
    }

    #[test]
    fn a_quantile_is_a_value_that_occurred() {
        let values: Vec<_> = (1..=100).map(f64::from).collect();
        assert_eq!(quantile(&values, 0.5), Some(50.0));
        assert_eq!(quantile(&values, 0.99), Some(99.0));
        assert_eq!(quantile(&values, 0.999), Some(100.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn the_exponent_of_a_square_is_two() {
        let square: Vec<_> = [1.0, 10.0, 50.0].map(|x: f64| (x, 3.0 * x * x)).into();
        assert!((exponent(&square).unwrap() - 2.0).abs() < 1e-9);
        assert_eq!(exponent(&[(1.0, 1.0)]), None);
        assert_eq!(exponent(&[(1.0, 1.0), (1.0, 2.0)]), None);
    }
}
