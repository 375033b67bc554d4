//! The opt-in label of a Namespace, and its meaning for runs that are created there without an opt-in label.

use crate::keys;
use crate::opt_in::{DECLINED, OptIn};
use crate::strategy::Strategy;

/// The opt-in label that runs get from a Namespace whose label chooses the default strategy.
const DEFAULT: &str = "true";
/// The last part of the webhook's path for all unknown values.
const UNKNOWN: &str = "unknown";

/// What the label of a Namespace means. The API server does not call the webhook for a Namespace whose label opts no
/// run in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NamespaceLabel {
    /// Runs get the opt-in label with this value.
    Means(&'static str),
    /// The value of the label is unknown.
    Unknown,
}

impl NamespaceLabel {
    /// All meanings, each of which has a path of its own.
    pub fn all() -> impl Iterator<Item = Self> {
        let values = std::iter::once(DEFAULT).chain(Strategy::NAMES.iter().copied());
        values.map(Self::Means).chain([Self::Unknown])
    }

    /// The path of the webhook for runs of such a Namespace. API servers accept only lower case in paths of webhooks.
    pub fn path(self) -> String {
        let last = match self {
            Self::Means(value) => kebab(value),
            Self::Unknown => UNKNOWN.to_owned(),
        };
        format!("{}/{last}", keys::BY_NAMESPACE_PATH)
    }
}

fn kebab(camel: &str) -> String {
    let lower = |c: char| {
        let dash = c.is_ascii_uppercase().then_some('-');
        dash.into_iter().chain([c.to_ascii_lowercase()])
    };
    camel.chars().flat_map(lower).collect()
}

/// Whether this value of the label is unknown.
pub fn is_unknown(value: &str) -> bool {
    OptIn::parse(Some(value)).is_err()
}

/// The warning for a user who creates a run in a Namespace with an unknown label value. API servers may cut warnings
/// that are longer than 256 bytes.
pub(crate) fn warning(namespace: &str) -> String {
    format!(
        "Namespace {namespace}: label {} has an unknown value and opts no run in; correct it to \"\", {DEFAULT}, {} or {DECLINED}",
        keys::OPT_IN,
        Strategy::NAMES.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_that_opts_in_has_a_path_and_so_have_all_others_together() {
        let paths: Vec<_> = NamespaceLabel::all().map(NamespaceLabel::path).collect();
        let last = [
            "true",
            "colocate-always",
            "colocate-completed",
            "isolate-always",
            "unknown",
        ];
        assert_eq!(
            paths,
            last.map(|last| format!("/mutate/pipelineruns/by-namespace/{last}"))
        );
    }

    #[test]
    fn runs_get_only_values_that_mean_something() {
        for label in NamespaceLabel::all() {
            if let NamespaceLabel::Means(value) = label {
                assert!(!is_unknown(value), "{value}");
            }
        }
        assert!(is_unknown("yes") && !is_unknown("") && !is_unknown(DECLINED));
    }

    #[test]
    fn a_warning_names_the_namespace_the_label_and_the_remedy_and_is_not_cut() {
        let text = warning(&"n".repeat(63));
        assert!(text.len() <= 256, "{}", text.len());
        insta::assert_snapshot!(warning("team-a"));
    }
}
