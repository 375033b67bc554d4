//! The versions of Kubernetes and Tekton in a testbed.

use crate::environment;
use crate::error::Result;
use crate::recipe::{self, Recipe};
use clap::ValueEnum;
use std::fmt;

pub(crate) const KUBERNETES_VARIABLE: &str = "POD_AFFINITY_KUBERNETES";
pub(crate) const TEKTON_VARIABLE: &str = "POD_AFFINITY_TEKTON";
/// The first minor version with `MutatingAdmissionPolicy` v1.
const OLDEST_WITH_POLICIES: u32 = 36;

/// The API server, the controller manager and the scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Kubernetes {
    /// 1.33
    #[value(name = "1.33")]
    V1_33,
    /// 1.34
    #[value(name = "1.34")]
    V1_34,
    /// 1.35
    #[value(name = "1.35")]
    V1_35,
    /// 1.36
    #[value(name = "1.36")]
    V1_36,
    /// 1.37
    #[default]
    #[value(name = "1.37")]
    V1_37,
}

impl Kubernetes {
    pub(crate) fn recipe(self) -> &'static Recipe {
        match self {
            Self::V1_33 => &recipe::KUBERNETES_1_33,
            Self::V1_34 => &recipe::KUBERNETES_1_34,
            Self::V1_35 => &recipe::KUBERNETES_1_35,
            Self::V1_36 => &recipe::KUBERNETES_1_36,
            Self::V1_37 => &recipe::CONTROL_PLANE,
        }
    }

    /// The minor version.
    pub fn minor(self) -> u32 {
        match self {
            Self::V1_33 => 33,
            Self::V1_34 => 34,
            Self::V1_35 => 35,
            Self::V1_36 => 36,
            Self::V1_37 => 37,
        }
    }

    /// Whether API servers of this version evaluate `MutatingAdmissionPolicy`.
    pub fn evaluates_policies(self) -> bool {
        self.minor() >= OLDEST_WITH_POLICIES
    }
}

impl fmt::Display for Kubernetes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.minor())
    }
}

/// Tekton Pipelines: its releases that are maintained for long, and the newest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Tekton {
    /// 1.9
    #[value(name = "1.9")]
    V1_9,
    /// 1.12
    #[value(name = "1.12")]
    V1_12,
    /// 1.15
    #[default]
    #[value(name = "1.15")]
    V1_15,
}

impl Tekton {
    pub(crate) fn recipe(self) -> &'static Recipe {
        match self {
            Self::V1_9 => &recipe::TEKTON_1_9,
            Self::V1_12 => &recipe::TEKTON_1_12,
            Self::V1_15 => &recipe::TEKTON,
        }
    }

    /// The minor version.
    pub fn minor(self) -> u32 {
        match self {
            Self::V1_9 => 9,
            Self::V1_12 => 12,
            Self::V1_15 => 15,
        }
    }
}

impl fmt::Display for Tekton {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.minor())
    }
}

/// The versions of a testbed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Versions {
    /// Version of the control plane.
    pub kubernetes: Kubernetes,
    /// Version of Tekton.
    pub tekton: Tekton,
}

impl Versions {
    /// The versions in `POD_AFFINITY_KUBERNETES` and `POD_AFFINITY_TEKTON`; an unset variable selects the default.
    pub fn of_environment() -> Result<Self> {
        Ok(Self {
            kubernetes: environment::choice(KUBERNETES_VARIABLE)?,
            tekton: environment::choice(TEKTON_VARIABLE)?,
        })
    }

    /// Whether both versions are the defaults.
    pub fn are_defaults(self) -> bool {
        self == Self::default()
    }

    /// The environment variables from which [`Versions::of_environment`] reads these versions.
    pub fn environment(self) -> [(&'static str, String); 2] {
        [
            (KUBERNETES_VARIABLE, self.kubernetes.to_string()),
            (TEKTON_VARIABLE, self.tekton.to_string()),
        ]
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kubernetes {} with Tekton {}", self.kubernetes, self.tekton)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_displayed_as_it_is_requested() {
        for version in Kubernetes::value_variants() {
            assert_eq!(
                Kubernetes::from_str(&version.to_string(), false).unwrap(),
                *version
            );
        }
        for version in Tekton::value_variants() {
            assert_eq!(Tekton::from_str(&version.to_string(), false).unwrap(), *version);
        }
    }

    #[test]
    fn policies_are_evaluated_since_1_36() {
        assert!(!Kubernetes::V1_35.evaluates_policies());
        assert!(Kubernetes::V1_36.evaluates_policies() && Kubernetes::V1_37.evaluates_policies());
    }

    #[test]
    fn only_the_default_versions_are_the_defaults() {
        assert!(Versions::default().are_defaults());
        let tekton = Tekton::V1_9;
        assert!(
            !Versions {
                tekton,
                ..Versions::default()
            }
            .are_defaults()
        );
    }
}
