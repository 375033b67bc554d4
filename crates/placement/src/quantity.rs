//! Kubernetes quantities as exact numbers, for comparisons and sums. Requests contain the user's text; [`Quantity`]'s own text is for
//! messages.
//!
//! This module is hand-written, because `kube_quantity` 0.9 parses into an `f64`: it rejects `8Ei` and `10E`, accepts `--1` and `Gi`,
//! and changes integers above 2^53.

use crate::text::quoted;
use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;
use thiserror::Error;

/// Decimal places that Kubernetes keeps. Smaller fractions are rounded up, as in Kubernetes.
const NANO: i32 = 9;
const NANOS: i128 = 1_000_000_000;
const MILLI: i128 = NANOS / 1_000;
/// The largest quantity of Kubernetes.
const MOST: i128 = i64::MAX as i128 * NANOS;

/// An amount, in billionths of its unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity(i128);

/// The reason why a text is no quantity.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadQuantity {
    /// The text is malformed.
    #[error("{0:?} is not a quantity such as 500m, 2, 1.5 or 8Gi")]
    Malformed(String),
    /// The quantity is larger than the maximum of Kubernetes.
    #[error("{0:?} is larger than Kubernetes can count")]
    TooLarge(String),
}

impl Quantity {
    /// A quantity in thousandths of the unit.
    pub const fn of_milli(milli: i64) -> Self {
        Self(milli as i128 * MILLI)
    }

    /// A quantity in units.
    pub const fn of(units: i64) -> Self {
        Self(units as i128 * NANOS)
    }

    /// Whether the quantity is greater than zero.
    pub fn is_positive(self) -> bool {
        self.0 > 0
    }

    /// The share of another quantity; `None` if the other is not positive.
    pub fn share_of(self, whole: Self) -> Option<f64> {
        const PARTS: i128 = 1_000_000;
        let parts = self.0.checked_mul(PARTS)?.checked_div(whole.0)?;
        let parts = u32::try_from(parts).ok().filter(|_| whole.is_positive())?;
        Some(f64::from(parts) / 1e6)
    }

    /// Whether the quantity is a whole number of units.
    pub fn is_whole(self) -> bool {
        self.0 % NANOS == 0
    }
}

impl Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Quantity {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Quantity {
    /// The exact quantity, in the largest unit that leaves no fraction. Quantities from 1 Mi on count as bytes and use powers of 1024.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.0 / NANOS;
        match self.0 {
            nanos if nanos % MILLI != 0 => write!(f, "{nanos}n"),
            nanos if nanos % NANOS != 0 => write!(f, "{}m", nanos / MILLI),
            _ if whole.abs() < 1 << 20 || whole % (1 << 10) != 0 => write!(f, "{whole}"),
            _ if whole % (1 << 20) != 0 => write!(f, "{}Ki", whole >> 10),
            _ if whole % (1 << 30) != 0 => write!(f, "{}Mi", whole >> 20),
            _ => write!(f, "{}Gi", whole >> 30),
        }
    }
}

impl FromStr for Quantity {
    type Err = BadQuantity;

    fn from_str(text: &str) -> Result<Self, BadQuantity> {
        let parts = Parts::parse(text).ok_or_else(|| BadQuantity::Malformed(quoted(text).into_owned()))?;
        parts
            .nanos()
            .filter(|nanos| *nanos <= MOST)
            .map(|nanos| Self(if parts.negative { -nanos } else { nanos }))
            .ok_or_else(|| BadQuantity::TooLarge(quoted(text).into_owned()))
    }
}

/// The parts of a quantity: the digits before and after the decimal point, and their unit.
struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    scale: Scale,
}

#[derive(Clone, Copy)]
enum Scale {
    /// Powers of ten.
    Decimal(i32),
    /// Powers of 1024.
    Binary(u32),
}

impl<'a> Parts<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (negative, unsigned) = split_sign(text);
        let end = unsigned
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return None;
        }
        Some(Self {
            negative,
            whole,
            fraction: fraction.trim_end_matches('0'),
            scale: Scale::parse(suffix)?,
        })
    }

    /// The quantity in billionths of its unit; `None` if the quantity is too large.
    fn nanos(&self) -> Option<i128> {
        let digits = self.digits()?;
        let places = i32::try_from(self.fraction.len()).ok()?;
        match self.scale {
            Scale::Decimal(power) => shift(digits, power.checked_add(NANO)?.checked_sub(places)?),
            Scale::Binary(power) => shift(digits.checked_mul(1024_i128.checked_pow(power)?)?, NANO - places),
        }
    }

    fn digits(&self) -> Option<i128> {
        let digits = [self.whole, self.fraction].concat();
        if digits.is_empty() {
            Some(0)
        } else {
            digits.parse().ok()
        }
    }
}

impl Scale {
    fn parse(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "n" => Self::Decimal(-9),
            "u" => Self::Decimal(-6),
            "m" => Self::Decimal(-3),
            "" => Self::Decimal(0),
            "k" => Self::Decimal(3),
            "M" => Self::Decimal(6),
            "G" => Self::Decimal(9),
            "T" => Self::Decimal(12),
            "P" => Self::Decimal(15),
            "E" => Self::Decimal(18),
            "Ki" => Self::Binary(1),
            "Mi" => Self::Binary(2),
            "Gi" => Self::Binary(3),
            "Ti" => Self::Binary(4),
            "Pi" => Self::Binary(5),
            "Ei" => Self::Binary(6),
            exponent => Self::Decimal(exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
        })
    }
}

fn split_sign(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

/// `digits * 10^power`, rounded up; `None` if the result is too large.
fn shift(digits: i128, power: i32) -> Option<i128> {
    let factor = 10_i128.checked_pow(power.unsigned_abs());
    match factor {
        _ if digits == 0 => Some(0),
        Some(factor) if power >= 0 => digits.checked_mul(factor),
        Some(factor) => Some(digits / factor + i128::from(digits % factor != 0)),
        None if power >= 0 => None,
        None => Some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn quantity(text: &str) -> Quantity {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn different_spellings_of_one_amount_are_equal() {
        let table = [
            ("1", "1000m"),
            ("1.5", "1500m"),
            ("0.1", "100m"),
            (".5", "500m"),
            ("5.", "5"),
            ("+2", "2"),
            ("1e3", "1k"),
            ("1E3", "1000"),
            ("12e-3", "12m"),
            ("1E", "1000P"),
            ("1Gi", "1024Mi"),
            ("0.5Gi", "512Mi"),
            ("1.500Ki", "1536"),
            ("2M", "2000k"),
            ("3u", "3000n"),
            ("0", "0Gi"),
            ("-1", "-1000m"),
            ("0e99999", "0"),
        ];
        for (left, right) in table {
            assert_eq!(quantity(left), quantity(right), "{left} and {right}");
        }
    }

    #[test]
    fn quantities_are_ordered_by_amount_and_not_by_spelling() {
        let ascending = [
            "-1", "0", "1n", "1m", "900m", "1", "1k", "1Ki", "1G", "1Gi", "1E", "1Ei",
        ];
        assert!(ascending.map(quantity).is_sorted());
    }

    #[test]
    fn amounts_below_one_billionth_are_rounded_up_to_one_billionth() {
        for text in ["0.1n", "1e-400", "0.0000000001", "1e-2147483648"] {
            assert_eq!(quantity(text), quantity("1n"), "{text}");
        }
    }

    #[test]
    fn a_malformed_quantity_is_refused() {
        for text in [
            "", "-", ".", "abc", "1 Gi", "1gi", "1K", "1.2.3", "1e", "1e+", "Gi", "--1", "1Mi ", "½", "1e1.5",
        ] {
            assert_eq!(
                text.parse::<Quantity>(),
                Err(BadQuantity::Malformed(text.to_owned())),
                "{text}"
            );
        }
    }

    #[test]
    fn an_amount_above_the_range_of_kubernetes_is_refused() {
        for text in [
            "10E",
            "8Ei",
            "1e19",
            "1e400",
            "1e2147483647",
            "9223372036854775808",
            &"9".repeat(60),
        ] {
            assert_eq!(
                text.parse::<Quantity>(),
                Err(BadQuantity::TooLarge(text.to_owned())),
                "{text}"
            );
        }
        assert_eq!(quantity("9223372036854775807"), Quantity::of(i64::MAX));
    }

    #[test]
    fn positive_and_whole_quantities_are_recognized() {
        assert!(quantity("1m").is_positive() && !quantity("1m").is_whole());
        assert!(quantity("2k").is_positive() && quantity("2k").is_whole());
        assert!(!quantity("0").is_positive() && !quantity("-1").is_positive());
        assert_eq!(Quantity::of_milli(1500), quantity("1.5"));
    }

    #[test]
    fn a_quantity_is_formatted_in_its_usual_unit() {
        for text in [
            "0",
            "12",
            "500m",
            "1500m",
            "-2",
            "8Gi",
            "1536Mi",
            "3882348Ki",
            "10k",
            "7n",
        ] {
            let written = quantity(text).to_string();
            assert_eq!(written, text.replace("10k", "10000"), "{text}");
        }
    }

    #[test]
    fn a_sum_of_quantities_saturates_at_the_maximum() {
        assert_eq!(quantity("500m") + quantity("1.5"), quantity("2"));
        let most = (0..1_000).fold(Quantity(i128::MAX), |sum, _| sum + quantity("1"));
        assert_eq!(most, Quantity(i128::MAX));
    }

    proptest! {
        #[test]
        fn a_formatted_quantity_is_parsed_as_the_same_amount(nanos in -MOST..=MOST) {
            for amount in [Quantity(nanos), Quantity(nanos / NANOS * NANOS), Quantity(nanos >> 40 << 40)] {
                prop_assert_eq!(quantity(&amount.to_string()), amount);
            }
        }

        #[test]
        fn the_parser_never_panics(text in r"[-+]?[0-9.]{0,60}[a-zA-Z]{0,2}[-+]?[0-9]{0,12}|.*") {
            let _ = text.parse::<Quantity>();
        }

        #[test]
        fn whole_numbers_of_milli_are_parsed_exactly(milli in 0..=i64::MAX) {
            prop_assert_eq!(quantity(&format!("{milli}m")), Quantity::of_milli(milli));
        }
    }
}
