//! The opt-in label of a Namespace: what it means for the runs that are created there without a label of their own.

use crate::keys;
use crate::opt_in::{DECLINED, OptIn};
use crate::strategy::Strategy;

/// The value that runs get for each value of a Namespace's label that opts them in by the default strategy.
const DEFAULT: &str = "true";
/// The last part of the path for all values that mean nothing.
const UNKNOWN: &str = "unknown";

/// What the label of a Namespace says. One that opts nothing in is not asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NamespaceLabel {
    /// The value of the label that runs get.
    Means(&'static str),
    /// A value that means nothing.
    Unknown,
}

impl NamespaceLabel {
    /// Everything that a Namespace's label may say.
    pub fn all() -> impl Iterator<Item = Self> {
        let values = std::iter::once(DEFAULT).chain(Strategy::NAMES.iter().copied());
        values.map(Self::Means).chain([Self::Unknown])
    }

    /// The path at which the webhook is asked about runs of such a Namespace. API servers accept only lower case there.
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

/// Whether the label of a Namespace has a value that means nothing.
pub fn is_unknown(value: &str) -> bool {
    OptIn::parse(Some(value)).is_err()
}

/// What whoever creates a run in a Namespace with such a label is told. API servers may cut longer warnings than 256 bytes.
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
