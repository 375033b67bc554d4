//! The two ways in which pod-affinity holds runs and gives pods their terms.

use crate::error::{Error, Result};
use clap::ValueEnum;

/// Names the way of an installation that asks for none.
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
    /// As the environment says: by the webhook, if it says nothing.
    pub fn of_environment() -> Result<Self> {
        std::env::var(VARIABLE).map_or(Ok(Self::default()), |name| Self::named(&name))
    }

    fn named(name: &str) -> Result<Self> {
        Self::from_str(name, false).map_err(|_| Error::Admission {
            name: name.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_asked_for_by_its_name_and_another_name_is_an_error_that_lists_them() {
        assert_eq!(Admission::named("webhook").unwrap(), Admission::Webhook);
        assert_eq!(Admission::named("policies").unwrap(), Admission::Policies);
        let error = Admission::named("policy").unwrap_err().to_string();
        for word in ["policy", "webhook", "policies", VARIABLE] {
            assert!(error.contains(word), "{error}");
        }
    }
}
