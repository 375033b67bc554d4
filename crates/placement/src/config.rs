//! The ConfigMap's keys as one typed value; a bad key or value is an error that names the remedy.

use crate::additions::{self, BadAddition};
use crate::reserve::{self, BadReserve};
use crate::strategy::{Isolation, Strategy, UnknownName, unknown};
use jiff::SignedDuration;
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// When a held run may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseWhen {
    /// Once the placeholder has a node.
    Scheduled,
    /// Once the placeholder exists.
    Created,
}

/// The configuration in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `default-strategy`: what the label values `true` and empty mean.
    pub default_strategy: Strategy,
    /// `isolation-scope` and `isolate-from`.
    pub isolation: Isolation,
    /// `placeholder-cpu`.
    pub placeholder_cpu: String,
    /// `placeholder-memory`.
    pub placeholder_memory: String,
    /// `placeholder-labels`.
    pub placeholder_labels: BTreeMap<String, String>,
    /// `placeholder-copied-labels`: keys of labels of the run.
    pub placeholder_copied_labels: BTreeSet<String>,
    /// `placeholder-annotations`.
    pub placeholder_annotations: BTreeMap<String, String>,
    /// `placeholder-image-pull-secrets`: names of Secrets in the run's namespace.
    pub placeholder_image_pull_secrets: BTreeSet<String>,
    /// `release-when`.
    pub release_when: ReleaseWhen,
    /// `hold-deadline`.
    pub hold_deadline: Duration,
    /// `move-after`; `None`: never.
    pub move_after: Option<Duration>,
    /// `default-reserve`, as resource name to quantity; empty: none.
    pub default_reserve: BTreeMap<String, String>,
}

/// A mistake in the ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// No such key.
    #[error("{0}: unknown key; valid keys are {keys}", keys = Config::KEYS.join(", "))]
    UnknownKey(String),
    /// Not one of the key's values.
    #[error("{key}: {cause}")]
    UnknownName {
        /// The key.
        key: &'static str,
        /// What is wrong.
        cause: UnknownName,
    },
    /// Not an amount that can be asked for.
    #[error("{key}: {cause}")]
    Resource {
        /// The key.
        key: &'static str,
        /// What is wrong.
        cause: BadReserve,
    },
    /// Not something that can be added to placeholders.
    #[error("{key}: {cause}")]
    Addition {
        /// The key.
        key: &'static str,
        /// What is wrong.
        cause: BadAddition,
    },
    /// Not a time span.
    #[error("{key}: {value:?} is not a duration longer than zero, such as 90s, 10m or 1h30m")]
    Duration {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
    },
    /// Neither a time span nor the word for none.
    #[error(
        "{key}: {value:?} is neither a duration longer than zero, such as 90s, 10m or 1h30m, nor {NEVER:?}"
    )]
    DurationOrNever {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
    },
}

/// The value that switches off what would happen after some time.
const NEVER: &str = "never";

/// All mistakes in the ConfigMap, so that they can be mended in one go.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", sentences(.0))]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl Default for Config {
    fn default() -> Self {
        Self {
            default_strategy: Strategy::default(),
            isolation: Isolation::default(),
            placeholder_cpu: "50m".to_owned(),
            placeholder_memory: "100Mi".to_owned(),
            placeholder_labels: BTreeMap::new(),
            placeholder_copied_labels: BTreeSet::new(),
            placeholder_annotations: BTreeMap::new(),
            placeholder_image_pull_secrets: BTreeSet::new(),
            release_when: ReleaseWhen::Scheduled,
            hold_deadline: Duration::from_mins(10),
            move_after: Some(Self::MOVE_AFTER),
            default_reserve: BTreeMap::new(),
        }
    }
}

impl Config {
    /// `move-after`, unless it is set.
    pub const MOVE_AFTER: Duration = Duration::from_secs(10);

    /// Every key that the ConfigMap may have.
    pub const KEYS: &'static [&'static str] = &[
        "default-strategy",
        "isolation-scope",
        "isolate-from",
        "placeholder-cpu",
        "placeholder-memory",
        "placeholder-labels",
        "placeholder-copied-labels",
        "placeholder-annotations",
        "placeholder-image-pull-secrets",
        "release-when",
        "hold-deadline",
        "move-after",
        "default-reserve",
    ];

    /// Reads the data of the ConfigMap; a key that is not there has its default.
    ///
    /// Keys that begin with an underscore are documentation, as `_example` is in Tekton's own ConfigMaps.
    pub fn parse(data: &BTreeMap<String, String>) -> Result<Self, ConfigErrors> {
        let mut config = Self::default();
        let errors: Vec<_> = data
            .iter()
            .filter(|(key, _)| !key.starts_with('_'))
            .filter_map(|(key, value)| config.set(key, value.trim()).err())
            .collect();
        if errors.is_empty() {
            Ok(config)
        } else {
            Err(ConfigErrors(errors))
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        match key {
            "default-strategy" => self.default_strategy = name("default-strategy", value)?,
            "isolation-scope" => self.isolation.scope = name("isolation-scope", value)?,
            "isolate-from" => self.isolation.from = name("isolate-from", value)?,
            "placeholder-cpu" => self.placeholder_cpu = amount("placeholder-cpu", "cpu", value)?,
            "placeholder-memory" => self.placeholder_memory = amount("placeholder-memory", "memory", value)?,
            "placeholder-labels" => {
                self.placeholder_labels = added("placeholder-labels", additions::labels(value))?;
            }
            "placeholder-copied-labels" => {
                self.placeholder_copied_labels =
                    added("placeholder-copied-labels", additions::copied_labels(value))?;
            }
            "placeholder-annotations" => {
                self.placeholder_annotations =
                    added("placeholder-annotations", additions::annotations(value))?;
            }
            "placeholder-image-pull-secrets" => {
                self.placeholder_image_pull_secrets =
                    added("placeholder-image-pull-secrets", additions::pull_secrets(value))?;
            }
            "release-when" => self.release_when = name("release-when", value)?,
            "hold-deadline" => self.hold_deadline = duration("hold-deadline", value)?,
            "move-after" => self.move_after = duration_or_never("move-after", value)?,
            "default-reserve" => self.default_reserve = reserve("default-reserve", value)?,
            _ => return Err(ConfigError::UnknownKey(key.to_owned())),
        }
        Ok(())
    }
}

impl FromStr for ReleaseWhen {
    type Err = UnknownName;

    fn from_str(value: &str) -> Result<Self, UnknownName> {
        match value {
            "scheduled" => Ok(Self::Scheduled),
            "created" => Ok(Self::Created),
            _ => Err(unknown("moment of release", value, &["scheduled", "created"])),
        }
    }
}

fn name<T: FromStr<Err = UnknownName>>(key: &'static str, value: &str) -> Result<T, ConfigError> {
    value
        .parse()
        .map_err(|cause| ConfigError::UnknownName { key, cause })
}

fn amount(key: &'static str, resource: &str, value: &str) -> Result<String, ConfigError> {
    reserve::check(resource, value).map_err(|cause| ConfigError::Resource { key, cause })?;
    Ok(value.to_owned())
}

fn reserve(key: &'static str, value: &str) -> Result<BTreeMap<String, String>, ConfigError> {
    reserve::parse(value).map_err(|cause| ConfigError::Resource { key, cause })
}

fn added<T>(key: &'static str, read: Result<T, BadAddition>) -> Result<T, ConfigError> {
    read.map_err(|cause| ConfigError::Addition { key, cause })
}

fn duration(key: &'static str, value: &str) -> Result<Duration, ConfigError> {
    span(value).ok_or_else(|| ConfigError::Duration {
        key,
        value: value.to_owned(),
    })
}

fn duration_or_never(key: &'static str, value: &str) -> Result<Option<Duration>, ConfigError> {
    match span(value) {
        None if value != NEVER => Err(ConfigError::DurationOrNever {
            key,
            value: value.to_owned(),
        }),
        span => Ok(span),
    }
}

fn span(value: &str) -> Option<Duration> {
    let duration = Duration::try_from(value.parse::<SignedDuration>().ok()?).ok()?;
    (!duration.is_zero()).then_some(duration)
}

fn sentences(errors: &[ConfigError]) -> String {
    errors
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(". ")
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::{IsolateFrom, Scope};

    fn parse(data: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
        Config::parse(
            &data
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
        )
    }

    fn messages(data: &[(&str, &str)]) -> Vec<String> {
        parse(data)
            .unwrap_err()
            .0
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn an_empty_config_map_means_the_defaults() {
        assert_eq!(parse(&[]), Ok(Config::default()));
    }

    #[test]
    fn every_key_sets_its_field() {
        let config = parse(&[
            ("default-strategy", "isolateAlways"),
            ("isolation-scope", "namespace"),
            ("isolate-from", "enrolled"),
            ("placeholder-cpu", "100m"),
            ("placeholder-memory", "64Mi"),
            ("placeholder-labels", "cost-center=42"),
            ("placeholder-copied-labels", "team"),
            ("placeholder-annotations", "example.com/why=keeps a node"),
            ("placeholder-image-pull-secrets", "mirror"),
            ("release-when", "created"),
            ("hold-deadline", "1h30m"),
            ("move-after", "90s"),
            ("default-reserve", "cpu=4,memory=8Gi"),
        ]);
        let expected = Config {
            default_strategy: Strategy::IsolateAlways,
            isolation: Isolation {
                scope: Scope::Namespace,
                from: IsolateFrom::Enrolled,
            },
            placeholder_cpu: "100m".to_owned(),
            placeholder_memory: "64Mi".to_owned(),
            placeholder_labels: additions::labels("cost-center=42").unwrap(),
            placeholder_copied_labels: additions::copied_labels("team").unwrap(),
            placeholder_annotations: additions::annotations("example.com/why=keeps a node").unwrap(),
            placeholder_image_pull_secrets: additions::pull_secrets("mirror").unwrap(),
            release_when: ReleaseWhen::Created,
            hold_deadline: Duration::from_mins(90),
            move_after: Some(Duration::from_secs(90)),
            default_reserve: reserve::parse("cpu=4,memory=8Gi").unwrap(),
        };
        assert_eq!(config, Ok(expected));
    }

    #[test]
    fn the_list_of_keys_is_the_list_that_is_accepted() {
        for key in Config::KEYS {
            let unknown = ConfigError::UnknownKey((*key).to_owned());
            assert_ne!(Config::default().set(key, ""), Err(unknown), "{key}");
        }
    }

    #[test]
    fn documentation_keys_and_white_space_around_values_are_ignored() {
        let config = parse(&[
            ("_example", "default-strategy: nonsense"),
            ("hold-deadline", "10m\n"),
        ]);
        assert_eq!(config, Ok(Config::default()));
    }

    #[test]
    fn each_mistake_is_told_in_one_sentence_that_names_key_value_and_remedy() {
        let mistakes = messages(&[
            ("default-reserve", "memory=8"),
            ("default-strategy", "always"),
            ("hold-deadline", "-5m"),
            ("hold-dedline", "5m"),
            ("isolate-from", ""),
            ("isolation-scope", "node"),
            ("move-after", "10"),
            ("placeholder-annotations", "why"),
            ("placeholder-copied-labels", "tekton.dev/pipelineRun"),
            ("placeholder-cpu", "0"),
            ("placeholder-image-pull-secrets", "my_secret"),
            ("placeholder-labels", "team=a b"),
            ("placeholder-memory", "100MB"),
            ("release-when", "now"),
        ]);
        insta::assert_snapshot!(mistakes.join("\n"));
    }

    #[test]
    fn all_mistakes_together_are_one_text() {
        let text = parse(&[("isolation-scope", "node"), ("release-when", "now")])
            .unwrap_err()
            .to_string();
        assert!(
            text.contains("isolation-scope: ") && text.contains(". release-when: "),
            "{text}"
        );
    }

    #[test]
    fn moving_can_be_switched_off_and_holding_cannot() {
        assert_eq!(parse(&[("move-after", "never")]).unwrap().move_after, None);
        assert!(parse(&[("hold-deadline", "never")]).is_err());
    }

    #[test]
    fn durations_are_written_as_in_go() {
        for (text, seconds) in [
            ("90s", 90),
            ("10m", 600),
            ("1h30m", 5400),
            ("1.5h", 5400),
            ("1h0m1s", 3601),
        ] {
            let config = parse(&[("hold-deadline", text)]).unwrap();
            assert_eq!(config.hold_deadline, Duration::from_secs(seconds), "{text}");
        }
        for text in ["", "10", "0s", "-1s", "1 fortnight", "s", "10m ago"] {
            assert!(parse(&[("hold-deadline", text)]).is_err(), "{text}");
        }
    }
}
