//! The two variants of admission: how pod-affinity holds runs and adds affinity terms to pods.

use crate::environment;
use crate::error::{Error, Result};
use crate::versions::Kubernetes;
use clap::ValueEnum;

/// Selects the variant of installations whose options leave it open.
pub(crate) const VARIABLE: &str = "POD_AFFINITY_ADMISSION";

/// What runs and pods pass when they are created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Admission {
    /// The manifests of config/.
    #[default]
    Webhook,
    /// The manifests of overlays/policies: neither a webhook nor its certificates.
    Policies,
}

impl Admission {
    /// The variant in the environment; the webhook by default.
    pub fn of_environment() -> Result<Self> {
        environment::choice(VARIABLE)
    }

    /// An error if API servers of this version do not support this variant.
    pub fn require(self, kubernetes: Kubernetes) -> Result<()> {
        match self {
            Self::Policies if !kubernetes.evaluates_policies() => Err(Error::NoPolicies {
                kubernetes: kubernetes.to_string(),
            }),
            Self::Webhook | Self::Policies => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::versions;

    #[test]
    fn policies_on_a_server_that_evaluates_none_are_an_error_that_names_both_variables() {
        assert!(Admission::Webhook.require(Kubernetes::V1_35).is_ok());
        assert!(Admission::Policies.require(Kubernetes::V1_36).is_ok());
        let error = Admission::Policies.require(Kubernetes::V1_35).unwrap_err();
        for word in ["1.35", VARIABLE, versions::KUBERNETES_VARIABLE] {
            assert!(error.to_string().contains(word), "{error}");
        }
    }
}
