//! How a run shares its node: the strategies, which runs an isolated run keeps off its node, and the labels with these
//! values.

use std::fmt;
use std::str::FromStr;
use strum::{Display, EnumString, IntoStaticStr, VariantNames};
use thiserror::Error;

/// How a run shares its node with other runs.
#[derive(
    Clone, Copy, Debug, Default, Display, EnumString, Eq, Hash, IntoStaticStr, PartialEq, VariantNames,
)]
#[strum(serialize_all = "camelCase", parse_err_ty = UnknownName, parse_err_fn = unknown_strategy)]
pub enum Strategy {
    /// All pods on one node, which other runs may share.
    ColocateAlways,
    /// All pods on one node of their own until the run is done.
    #[default]
    ColocateCompleted,
    /// All pods on one node of their own until the run is deleted.
    IsolateAlways,
}

/// How far isolation reaches (`isolation-scope`).
#[derive(
    Clone, Copy, Debug, Default, Display, EnumString, Eq, Hash, IntoStaticStr, PartialEq, VariantNames,
)]
#[strum(serialize_all = "lowercase", parse_err_ty = UnknownName, parse_err_fn = unknown_scope)]
pub enum Scope {
    /// Runs in every namespace.
    #[default]
    Cluster,
    /// Runs in the same namespace only.
    Namespace,
}

/// Which runs an isolated run keeps off its node (`isolate-from`).
#[derive(
    Clone, Copy, Debug, Default, Display, EnumString, Eq, Hash, IntoStaticStr, PartialEq, VariantNames,
)]
#[strum(serialize_all = "lowercase", parse_err_ty = UnknownName, parse_err_fn = unknown_isolate_from)]
pub enum IsolateFrom {
    /// The pods of every other run, enrolled or not.
    #[default]
    All,
    /// Only the pods of other enrolled runs.
    Enrolled,
}

/// How far isolation reaches and which runs it concerns: the value of the isolation label (`cluster-all`,
/// `cluster-enrolled`, `namespace-all`, `namespace-enrolled`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Isolation {
    /// How far isolation reaches.
    pub scope: Scope,
    /// Which runs are kept off the node.
    pub from: IsolateFrom,
}

/// The labels that make a run a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enrolment {
    /// The resolved strategy.
    pub strategy: Strategy,
    /// The resolved isolation.
    pub isolation: Isolation,
}

/// The error for a text that is not in a closed set of values.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown {what} {value:?}; valid values are {}", valid.join(", "))]
pub struct UnknownName {
    what: &'static str,
    value: String,
    valid: &'static [&'static str],
}

impl Strategy {
    /// The values of the strategy label. The opt-in label has the same values.
    pub const NAMES: &'static [&'static str] = <Self as VariantNames>::VARIANTS;

    /// The strategy as label value.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether the run keeps other runs off its node.
    pub fn isolates(self) -> bool {
        match self {
            Self::ColocateAlways => false,
            Self::ColocateCompleted | Self::IsolateAlways => true,
        }
    }
}

impl Scope {
    /// The values of `isolation-scope`.
    pub const NAMES: &'static [&'static str] = <Self as VariantNames>::VARIANTS;
}

impl IsolateFrom {
    /// The values of `isolate-from`.
    pub const NAMES: &'static [&'static str] = <Self as VariantNames>::VARIANTS;
}

impl Isolation {
    /// The values of the isolation label.
    pub const NAMES: &'static [&'static str] = &[
        "cluster-all",
        "cluster-enrolled",
        "namespace-all",
        "namespace-enrolled",
    ];

    /// The isolation as label value.
    pub fn as_str(self) -> &'static str {
        match (self.scope, self.from) {
            (Scope::Cluster, IsolateFrom::All) => "cluster-all",
            (Scope::Cluster, IsolateFrom::Enrolled) => "cluster-enrolled",
            (Scope::Namespace, IsolateFrom::All) => "namespace-all",
            (Scope::Namespace, IsolateFrom::Enrolled) => "namespace-enrolled",
        }
    }

    fn split(value: &str) -> Option<Self> {
        let (scope, from) = value.split_once('-')?;
        Some(Self {
            scope: scope.parse().ok()?,
            from: from.parse().ok()?,
        })
    }
}

impl FromStr for Isolation {
    type Err = UnknownName;

    fn from_str(value: &str) -> Result<Self, UnknownName> {
        Self::split(value).ok_or_else(|| unknown("isolation", value, Self::NAMES))
    }
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn unknown_strategy(value: &str) -> UnknownName {
    unknown("strategy", value, Strategy::NAMES)
}

fn unknown_scope(value: &str) -> UnknownName {
    unknown("isolation scope", value, Scope::NAMES)
}

fn unknown_isolate_from(value: &str) -> UnknownName {
    unknown("isolation counterpart", value, IsolateFrom::NAMES)
}

pub(crate) fn unknown(what: &'static str, value: &str, valid: &'static [&'static str]) -> UnknownName {
    UnknownName {
        what,
        value: value.to_owned(),
        valid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::{Debug, Display};

    fn round_trips<T: FromStr<Err = UnknownName> + Display + Debug>(names: &[&str]) {
        for name in names {
            assert_eq!(&name.parse::<T>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn each_listed_name_can_be_parsed_and_is_formatted_unchanged() {
        round_trips::<Strategy>(Strategy::NAMES);
        round_trips::<Scope>(Scope::NAMES);
        round_trips::<IsolateFrom>(IsolateFrom::NAMES);
        round_trips::<Isolation>(Isolation::NAMES);
    }

    #[test]
    fn the_error_about_an_unknown_name_lists_the_valid_names() {
        let error = "isolate".parse::<Strategy>().unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"unknown strategy "isolate"; valid values are colocateAlways, colocateCompleted, isolateAlways"#
        );
    }

    #[test]
    fn names_are_matched_exactly() {
        for odd in ["", "ColocateAlways", " colocateAlways", "cluster", "all"] {
            assert!(odd.parse::<Strategy>().is_err(), "{odd}");
            assert!(odd.parse::<Isolation>().is_err(), "{odd}");
        }
    }

    #[test]
    fn only_colocate_always_shares_its_node() {
        let isolating: Vec<_> = Strategy::NAMES
            .iter()
            .filter(|name| name.parse::<Strategy>().unwrap().isolates())
            .collect();
        assert_eq!(isolating, [&"colocateCompleted", &"isolateAlways"]);
    }

    #[test]
    fn the_defaults_isolate_a_run_from_all_runs_of_the_cluster_until_its_completion() {
        assert_eq!(Strategy::default().as_str(), "colocateCompleted");
        assert_eq!(Isolation::default().as_str(), "cluster-all");
    }
}
