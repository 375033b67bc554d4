//! The crates whose code is mutated, and the tests that run against each mutant.

use clap::ValueEnum;
use std::fmt;

/// A crate whose code is mutated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Mutated {
    Placement,
    Controller,
    Admission,
}

/// The tests that run against a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tests {
    /// The tests of the mutated crate, with few cases for each property.
    Own,
    /// The tests of the mutated crate with all cases, and the tests of the crates that depend on it.
    All,
}

impl Mutated {
    pub(crate) const ALL: [Self; 3] = [Self::Placement, Self::Controller, Self::Admission];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Placement => "placement",
            Self::Controller => "controller",
            Self::Admission => "admission",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mutated| mutated.name() == name)
    }

    /// Package names; the mutated package is first.
    pub(crate) const fn packages(self, tests: Tests) -> &'static [&'static str] {
        match (self, tests) {
            (Self::Placement, Tests::Own) => &["placement"],
            (Self::Placement, Tests::All) => &[
                "placement",
                "tekton",
                "controller",
                "admission",
                "runtime",
                "cli",
                "pod-affinity",
            ],
            (Self::Controller, Tests::Own) => &["controller"],
            (Self::Controller, Tests::All) => &["controller", "pod-affinity"],
            (Self::Admission, Tests::Own) => &["admission"],
            (Self::Admission, Tests::All) => &["admission", "pod-affinity"],
        }
    }

    /// Arguments that select the test targets. The tests of the webhook's program are left out: they measure response times,
    /// and fail on a busy machine.
    pub(crate) const fn targets(self, tests: Tests) -> &'static [&'static str] {
        match (self, tests) {
            (Self::Placement | Self::Controller, Tests::Own) => &["--lib"],
            (Self::Admission, Tests::Own) => &["--lib", "--test=router"],
            (Self::Placement | Self::Admission, Tests::All) => &["--lib", "--bins", "--test=router"],
            (Self::Controller, Tests::All) => &["--lib", "--bins"],
        }
    }
}

impl fmt::Display for Mutated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
