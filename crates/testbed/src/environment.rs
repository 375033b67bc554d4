//! Environment variables that set options which the caller leaves open.

use crate::error::{Error, Result};
use clap::ValueEnum;

/// The value of the variable, or the default if the variable is not set.
pub(crate) fn choice<T: ValueEnum + Default>(variable: &'static str) -> Result<T> {
    std::env::var(variable).map_or(Ok(T::default()), |name| named(variable, &name))
}

fn named<T: ValueEnum>(variable: &'static str, name: &str) -> Result<T> {
    T::from_str(name, false).map_err(|_| Error::Choice {
        variable,
        name: name.to_owned(),
        choices: choices::<T>().join(", "),
    })
}

fn choices<T: ValueEnum>() -> Vec<String> {
    let values = T::value_variants()
        .iter()
        .filter_map(ValueEnum::to_possible_value);
    values.map(|value| value.get_name().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::Admission;
    use crate::versions::Kubernetes;

    #[test]
    fn a_variable_selects_a_value_by_name_and_an_unknown_name_is_an_error_that_lists_all() {
        let way = |name| named::<Admission>("WAY", name);
        assert_eq!(way("webhook").unwrap(), Admission::Webhook);
        assert_eq!(way("policies").unwrap(), Admission::Policies);
        let error = way("policy").unwrap_err().to_string();
        for word in ["policy", "webhook", "policies", "WAY"] {
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn a_version_is_named_by_major_and_minor() {
        assert_eq!(named::<Kubernetes>("V", "1.34").unwrap(), Kubernetes::V1_34);
        assert!(named::<Kubernetes>("V", "1.34.4").is_err());
    }
}
