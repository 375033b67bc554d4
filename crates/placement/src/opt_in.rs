//! The opt-in label and the meaning of its values.

use crate::keys;
use crate::strategy::Strategy;
use thiserror::Error;

/// The value that opts a run, or one task of it, out.
pub const DECLINED: &str = "false";

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
                value: name.to_owned(),
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
    fn any_other_value_is_refused_with_the_label_the_value_and_all_valid_ones() {
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
    fn the_default_strategy_applies_only_where_none_is_chosen() {
        let default = Strategy::IsolateAlways;
        assert_eq!(OptIn::Absent.strategy(default), None);
        assert_eq!(OptIn::Declined.strategy(default), None);
        assert_eq!(OptIn::Default.strategy(default), Some(default));
        let chosen = OptIn::Chosen(Strategy::ColocateAlways);
        assert_eq!(chosen.strategy(default), Some(Strategy::ColocateAlways));
    }
}
