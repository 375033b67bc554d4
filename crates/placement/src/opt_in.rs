//! The opt-in label of a PipelineRun, of one task and of a Namespace, and the meaning of its values.

use crate::keys;
use crate::strategy::Strategy;
use crate::text::quoted;
use thiserror::Error;

/// The value that opts a run, or one task of it, out.
pub const DECLINED: &str = "false";
/// The opt-in label that runs get from a Namespace whose label chooses the default strategy.
const DEFAULT: &str = "true";
/// The last part of the webhook's path for all unknown values.
const UNKNOWN: &str = "unknown";

/// The meaning of the opt-in label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptIn {
    /// The object has no such label.
    Absent,
    /// `false`.
    Declined,
    /// `true` or empty: the configured default strategy.
    Default,
    /// A strategy by name.
    Chosen(Strategy),
}

/// The label has an unknown value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "label {} has the unknown value {value:?}; valid values are {} to choose a strategy, \"true\" or \"\" for \
     the default one, and \"false\" to opt out",
    keys::OPT_IN,
    Strategy::NAMES.join(", ")
)]
pub struct UnknownValue {
    /// The value.
    pub value: String,
}

impl OptIn {
    /// Reads the value of the label; `None` if the label is absent.
    pub fn parse(value: Option<&str>) -> Result<Self, UnknownValue> {
        match value {
            None => Ok(Self::Absent),
            Some(DECLINED) => Ok(Self::Declined),
            Some("" | "true") => Ok(Self::Default),
            Some(name) => name.parse().map(Self::Chosen).map_err(|_| UnknownValue {
                value: quoted(name).into_owned(),
            }),
        }
    }

    /// The chosen strategy; `None` if the object is not opted in.
    pub fn strategy(self, default: Strategy) -> Option<Strategy> {
        match self {
            Self::Absent | Self::Declined => None,
            Self::Default => Some(default),
            Self::Chosen(strategy) => Some(strategy),
        }
    }
}

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
pub(crate) fn namespace_warning(namespace: &str) -> String {
    format!(
        "Namespace {namespace}: label {} has an unknown value and no effect; correct it to \"\", {DEFAULT}, {} or {DECLINED}",
        keys::OPT_IN,
        Strategy::NAMES.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_of_the_label_has_one_meaning() {
        let table = [
            (None, OptIn::Absent),
            (Some("false"), OptIn::Declined),
            (Some("true"), OptIn::Default),
            (Some(""), OptIn::Default),
            (Some("colocateAlways"), OptIn::Chosen(Strategy::ColocateAlways)),
            (
                Some("colocateCompleted"),
                OptIn::Chosen(Strategy::ColocateCompleted),
            ),
            (Some("isolateAlways"), OptIn::Chosen(Strategy::IsolateAlways)),
        ];
        for (value, meaning) in table {
            assert_eq!(OptIn::parse(value), Ok(meaning), "{value:?}");
        }
    }

    #[test]
    fn the_error_about_an_unknown_value_names_the_label_the_value_and_all_valid_values() {
        for value in [
            "yes",
            "True",
            "FALSE",
            "0",
            " true",
            "isolatealways",
            "isolateAlways ",
        ] {
            let message = OptIn::parse(Some(value)).unwrap_err().to_string();
            for part in [
                keys::OPT_IN,
                &format!("{value:?}"),
                "\"true\"",
                "\"\"",
                "\"false\"",
            ] {
                assert!(message.contains(part), "{message} lacks {part}");
            }
            for name in Strategy::NAMES {
                assert!(message.contains(name), "{message} lacks {name}");
            }
        }
    }

    #[test]
    fn the_default_strategy_applies_only_to_runs_without_a_chosen_strategy() {
        let default = Strategy::IsolateAlways;
        assert_eq!(OptIn::Absent.strategy(default), None);
        assert_eq!(OptIn::Declined.strategy(default), None);
        assert_eq!(OptIn::Default.strategy(default), Some(default));
        let chosen = OptIn::Chosen(Strategy::ColocateAlways);
        assert_eq!(chosen.strategy(default), Some(Strategy::ColocateAlways));
    }

    #[test]
    fn each_value_that_opts_in_has_a_path_and_all_unknown_values_share_one_path() {
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
    fn runs_get_only_valid_label_values_from_their_namespace() {
        for label in NamespaceLabel::all() {
            if let NamespaceLabel::Means(value) = label {
                assert!(!is_unknown(value), "{value}");
            }
        }
        assert!(is_unknown("yes") && !is_unknown("") && !is_unknown(DECLINED));
    }

    #[test]
    fn the_warning_names_the_namespace_the_label_and_the_remedy_within_256_bytes() {
        let text = namespace_warning(&"n".repeat(63));
        assert!(text.len() <= 256, "{}", text.len());
        insta::assert_snapshot!(namespace_warning("team-a"));
    }
}
