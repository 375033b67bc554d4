//! The reserve: the resources that a run's node must have free when it is chosen, such as `cpu=4,memory=8Gi`.
//!
//! The reserve is checked when the run is created. A typing mistake is therefore reported at once, and never becomes a
//! placeholder that fits on no node.

use crate::bounded::STRING;
use crate::label_syntax::{LONGEST_DOMAIN, is_domain, is_name};
use crate::quantity::{BadQuantity, Quantity};
use crate::text::{ELLIPSIS, quoted};
use std::collections::BTreeMap;
use thiserror::Error;

/// Resources by name, as they are written into the placeholder.
pub type Reserve = BTreeMap<String, String>;

/// The value of the annotation `reserve`, or of its default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReserveSetting {
    /// Fixed amounts.
    Amounts(Reserve),
    /// The amounts that the run is expected to request.
    Automatic,
}

/// The value for an automatic reserve.
pub const AUTOMATIC: &str = "auto";

/// A mistake in a reserve.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadReserve {
    /// The text is longer than pod-affinity reads.
    #[error("it is longer than {STRING} characters")]
    TooLong,
    /// An entry has no `=`.
    #[error("{0:?} is not of the form name=quantity, such as cpu=4 or memory=8Gi")]
    Entry(String),
    /// A resource appears twice.
    #[error("{0} is there more than once")]
    Duplicate(String),
    /// The resource is unknown or cannot be reserved.
    #[error(
        "{0:?} is not a resource that can be reserved; use cpu, memory, ephemeral-storage or the full name of \
         an extended resource, such as nvidia.com/gpu"
    )]
    UnknownResource(String),
    /// The amount is not a quantity.
    #[error("{name}: {cause}")]
    Quantity {
        /// The resource.
        name: String,
        /// The mistake in the amount.
        cause: BadQuantity,
    },
    /// The amount is zero or negative.
    #[error("{name}={quantity} is not more than zero")]
    NotPositive {
        /// The resource.
        name: String,
        /// The amount.
        quantity: String,
    },
    /// The amount of an extended resource is not a whole number.
    #[error("{name}={quantity} is not a whole number, and extended resources cannot be divided")]
    NotWhole {
        /// The resource.
        name: String,
        /// The amount.
        quantity: String,
    },
    /// The amount is outside of the range of real nodes; most likely the unit is missing or wrong.
    #[error("{name}={quantity} is outside of {least} to {most} (check the unit)")]
    OutOfRange {
        /// The resource.
        name: String,
        /// The amount.
        quantity: String,
        /// The smallest amount that makes sense.
        least: &'static str,
        /// The largest amount that makes sense.
        most: &'static str,
    },
}

/// Reads what is to be reserved.
pub fn parse_setting(text: &str) -> Result<ReserveSetting, BadReserve> {
    if text.trim() == AUTOMATIC {
        Ok(ReserveSetting::Automatic)
    } else {
        parse(text).map(ReserveSetting::Amounts)
    }
}

/// Reads `name=quantity` pairs, separated by commas; a blank text reserves nothing.
pub fn parse(text: &str) -> Result<Reserve, BadReserve> {
    let mut reserve = Reserve::new();
    if is_too_long(text) {
        return Err(BadReserve::TooLong);
    }
    if text.trim().is_empty() {
        return Ok(reserve);
    }
    for entry in text.split(',') {
        let (name, quantity) = pair(entry.trim())?;
        if reserve.insert(name.to_owned(), quantity.to_owned()).is_some() {
            return Err(BadReserve::Duplicate(quoted(name).into_owned()));
        }
    }
    Ok(reserve)
}

/// A decoder of runs cuts a text that is too long, and adds an ellipsis.
fn is_too_long(text: &str) -> bool {
    let was_cut = text.len() >= STRING - ELLIPSIS.len() && text.ends_with(ELLIPSIS);
    was_cut || text.len() > STRING
}

/// Whether this amount of this resource can be reserved.
pub fn check(name: &str, quantity: &str) -> Result<(), BadReserve> {
    let kind = Kind::from_name(name).ok_or_else(|| BadReserve::UnknownResource(quoted(name).into_owned()))?;
    let amount: Quantity = quantity.parse().map_err(|cause| BadReserve::Quantity {
        name: quoted(name).into_owned(),
        cause,
    })?;
    let (name, quantity) = (quoted(name).into_owned(), quoted(quantity).into_owned());
    match kind {
        _ if !amount.is_positive() => Err(BadReserve::NotPositive { name, quantity }),
        Kind::Extended if !amount.is_whole() => Err(BadReserve::NotWhole { name, quantity }),
        Kind::Bounded(Bounds { least, most, .. }) if !kind.allows(amount) => Err(BadReserve::OutOfRange {
            name,
            quantity,
            least,
            most,
        }),
        Kind::Bounded(_) | Kind::Extended => Ok(()),
    }
}

fn pair(entry: &str) -> Result<(&str, &str), BadReserve> {
    let (name, quantity) = entry
        .split_once('=')
        .ok_or_else(|| BadReserve::Entry(quoted(entry).into_owned()))?;
    let (name, quantity) = (name.trim(), quantity.trim());
    check(name, quantity)?;
    Ok((name, quantity))
}

#[derive(Clone, Copy)]
enum Kind {
    Bounded(Bounds),
    /// An extended resource, of a device plugin or of another program that patches nodes: any number may be right.
    Extended,
}

/// The plausible range of a node's resource. It catches `memory=8`, which is eight bytes, and `cpu=4Gi`.
#[derive(Clone, Copy)]
struct Bounds {
    at_least: Quantity,
    at_most: Quantity,
    least: &'static str,
    most: &'static str,
}

const CPU: Bounds = Bounds {
    at_least: Quantity::of_milli(1),
    at_most: Quantity::of(10_000),
    least: "1m",
    most: "10k",
};
const BYTES: Bounds = Bounds {
    at_least: Quantity::of(1 << 20),
    at_most: Quantity::of(1 << 50),
    least: "1Mi",
    most: "1Pi",
};

impl Kind {
    fn from_name(name: &str) -> Option<Self> {
        match name {
            "cpu" => Some(Self::Bounded(CPU)),
            "memory" | "ephemeral-storage" => Some(Self::Bounded(BYTES)),
            _ => is_extended_resource(name).then_some(Self::Extended),
        }
    }

    fn allows(self, amount: Quantity) -> bool {
        match self {
            Self::Bounded(Bounds {
                at_least, at_most, ..
            }) => (at_least..=at_most).contains(&amount),
            Self::Extended => true,
        }
    }
}

/// Kubernetes reserves the domain `kubernetes.io` and the prefix `requests.`. In quotas Kubernetes puts this prefix
/// before the name, which leaves nine characters less for the domain.
fn is_extended_resource(name: &str) -> bool {
    const LONGEST: usize = LONGEST_DOMAIN - "requests.".len();
    name.split_once('/').is_some_and(|(domain, rest)| {
        domain.len() <= LONGEST
            && is_domain(domain)
            && !domain.ends_with("kubernetes.io")
            && !domain.starts_with("requests.")
            && is_name(rest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::shortened;

    fn message(text: &str) -> String {
        parse(text).expect_err(text).to_string()
    }

    #[test]
    fn a_reserve_keeps_the_spelling_of_its_quantities() {
        let reserve = parse("cpu=4, memory = 8Gi,nvidia.com/gpu=1 , ephemeral-storage=0.5Ti").unwrap();
        let pairs: Vec<_> = reserve
            .iter()
            .map(|(name, quantity)| (name.as_str(), quantity.as_str()))
            .collect();
        assert_eq!(
            pairs,
            [
                ("cpu", "4"),
                ("ephemeral-storage", "0.5Ti"),
                ("memory", "8Gi"),
                ("nvidia.com/gpu", "1")
            ]
        );
    }

    #[test]
    fn a_text_that_the_controller_would_cut_is_rejected() {
        let spaces = |count: usize| format!("cpu=1{}", " ".repeat(count));
        assert!(parse(&spaces(STRING - 5)).is_ok());
        let long = spaces(STRING - 4);
        for text in [&shortened(&long, STRING), long.as_str()] {
            assert_eq!(message(text), "it is longer than 2048 characters");
        }
    }

    #[test]
    fn a_blank_text_reserves_nothing() {
        assert_eq!(parse(""), Ok(Reserve::new()));
        assert_eq!(parse("  \n"), Ok(Reserve::new()));
    }

    #[test]
    fn an_entry_without_name_and_quantity_is_refused() {
        for text in ["cpu", "cpu=1,", ",", "cpu:4", "cpu=1 memory", "=4"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(
            message("cpu"),
            r#""cpu" is not of the form name=quantity, such as cpu=4 or memory=8Gi"#
        );
    }

    #[test]
    fn a_duplicate_resource_is_refused() {
        assert_eq!(message("cpu=1,memory=1Gi,cpu=2"), "cpu is there more than once");
    }

    #[test]
    fn only_the_three_native_resources_and_extended_ones_can_be_reserved() {
        let unknown = [
            "cpus",
            "CPU",
            "mem",
            "pods",
            "gpu",
            "hugepages-2Mi",
            "storage",
            "",
            "nvidia.com/",
            "/gpu",
            "a/b/c",
            "Nvidia.com/gpu",
            "nvidia..com/gpu",
            "-a.com/gpu",
            "kubernetes.io/gpu",
            "x.kubernetes.io/gpu",
            "requests.nvidia.com/gpu",
            "nvidia.com/g u",
            "nvidia.com/-gpu",
        ];
        for name in unknown {
            assert_eq!(
                check(name, "1"),
                Err(BadReserve::UnknownResource(name.to_owned())),
                "{name}"
            );
        }
        for name in [
            "nvidia.com/gpu",
            "example.com/A_b.c-1",
            "single/device",
            "aws.amazon.com/neuroncore",
        ] {
            assert_eq!(check(name, "1"), Ok(()), "{name}");
        }
    }

    #[test]
    fn resource_names_above_the_length_limits_of_kubernetes_are_refused() {
        let long = |length: usize| "a".repeat(length);
        assert!(check(&format!("a.com/{}", long(63)), "1").is_ok());
        assert!(check(&format!("a.com/{}", long(64)), "1").is_err());
        assert!(
            check(
                &format!("{}/gpu", [long(60), long(60), long(60), long(60)].join(".")),
                "1"
            )
            .is_ok()
        );
        assert!(
            check(
                &format!("{}/gpu", [long(60), long(60), long(60), long(63)].join(".")),
                "1"
            )
            .is_err()
        );
    }

    #[test]
    fn zero_and_negative_amounts_are_refused() {
        for text in [
            "cpu=0",
            "cpu=-1",
            "memory=0Gi",
            "nvidia.com/gpu=0",
            "nvidia.com/gpu=-2",
        ] {
            assert_eq!(message(text), format!("{text} is not more than zero"));
        }
    }

    #[test]
    fn extended_resources_are_counted_in_whole_units() {
        assert!(message("nvidia.com/gpu=500m").contains("is not a whole number"));
        assert_eq!(check("nvidia.com/gpu", "2k"), Ok(()));
    }

    #[test]
    fn the_error_about_an_implausible_amount_names_the_range() {
        assert_eq!(
            message("memory=8"),
            "memory=8 is outside of 1Mi to 1Pi (check the unit)"
        );
        for text in [
            "cpu=4Gi",
            "cpu=100u",
            "memory=512m",
            "memory=1Ei",
            "ephemeral-storage=20",
            "cpu=10001",
        ] {
            assert!(message(text).contains("is outside of"), "{text}");
        }
        for text in ["cpu=1m", "cpu=10k", "memory=1Mi", "memory=1Pi"] {
            assert!(parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn the_error_about_a_malformed_amount_names_the_resource() {
        assert_eq!(
            message("memory=8GB"),
            r#"memory: "8GB" is not a quantity such as 500m, 2, 1.5 or 8Gi"#
        );
        assert_eq!(
            message("memory=90Ei"),
            r#"memory: "90Ei" is larger than Kubernetes can count"#
        );
        assert!(message("cpu=").starts_with("cpu: "));
    }
}
