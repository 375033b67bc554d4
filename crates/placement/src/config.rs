//! The ConfigMap as one typed value. The error for a bad key or value names the remedy.

use crate::additions::{self, BadAddition};
use crate::caps::{self, BadCap, Caps};
use crate::reserve::{self, BadReserve, Reserve, ReserveSetting};
use crate::strategy::{Isolation, Strategy, UnknownName, unknown};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Toleration;
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::time::Duration;
use strum::{EnumString, VariantNames};
use thiserror::Error;

/// When a held run may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, VariantNames)]
#[strum(serialize_all = "lowercase", parse_err_ty = UnknownName, parse_err_fn = unknown_release_when)]
pub enum ReleaseWhen {
    /// Once the placeholder has a node.
    Scheduled,
    /// Once the placeholder exists.
    Created,
}

/// The active configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `default-strategy`: the strategy for the opt-in label values `true` and empty.
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
    /// `placeholder-node-selector`: labels of nodes. The run's podTemplate overrides a key.
    pub placeholder_node_selector: BTreeMap<String, String>,
    /// `placeholder-tolerations`, in addition to those of the run's podTemplate.
    pub placeholder_tolerations: Vec<Toleration>,
    /// `prefer-warm-nodes`.
    pub prefer_warm_nodes: bool,
    /// `keep-node-for`; zero if no node is kept after a run.
    pub keep_node_for: Duration,
    /// `keep-node-for-maximum`: the upper limit of the annotation of a run.
    pub keep_node_for_maximum: Duration,
    /// `keep-nodes-at-most`: the most nodes of the cluster that are kept at the same time.
    pub keep_nodes_at_most: u16,
    /// `pull-images`.
    pub pull_images: bool,
    /// `pull-images-maximum`: the most images of a run.
    pub pull_images_maximum: usize,
    /// `release-when`.
    pub release_when: ReleaseWhen,
    /// `hold-deadline`.
    pub hold_deadline: Duration,
    /// `max-runs`, `max-runs-per-namespace` and `max-runs-in-namespaces`.
    pub caps: Caps,
    /// `move-after`; `None` if runs never move.
    pub move_after: Option<Duration>,
    /// `default-reserve`; empty if nothing is reserved.
    pub default_reserve: ReserveSetting,
    /// `auto-reserve-maximum`: the upper limit of an automatic reserve, by resource.
    pub auto_reserve_maximum: Reserve,
}

/// A mistake in the ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{key}: {mistake}")]
pub struct ConfigError {
    key: String,
    mistake: Mistake,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
enum Mistake {
    #[error("unknown key; valid keys are {}", Config::KEYS.join(", "))]
    UnknownKey,
    #[error(transparent)]
    Name(#[from] UnknownName),
    #[error(transparent)]
    Resource(#[from] BadReserve),
    #[error(transparent)]
    Addition(#[from] BadAddition),
    #[error(transparent)]
    Cap(#[from] BadCap),
    #[error("{0:?} is neither true nor false")]
    Boolean(String),
    #[error("{0:?} is not a number of images, such as 8")]
    Images(String),
    #[error("{0:?} is not a duration longer than zero, such as 90s, 10m or 1h30m")]
    Duration(String),
    #[error("{0:?} is neither a duration longer than zero, such as 90s, 10m or 1h30m, nor {NEVER:?}")]
    DurationOrNever(String),
    #[error("{0:?} is neither a duration, such as 90s, 10m or 1h30m, nor 0")]
    DurationOrZero(String),
    #[error("{0:?} is not a number from 0 to 65535")]
    Number(String),
}

/// The value that switches a timed action off.
const NEVER: &str = "never";

/// All mistakes in the ConfigMap, so that users can correct them together.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", join_sentences(.0))]
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
            placeholder_node_selector: BTreeMap::new(),
            placeholder_tolerations: Vec::new(),
            prefer_warm_nodes: false,
            keep_node_for: Duration::ZERO,
            keep_node_for_maximum: Duration::ZERO,
            keep_nodes_at_most: 5,
            pull_images: false,
            pull_images_maximum: 8,
            release_when: ReleaseWhen::Scheduled,
            hold_deadline: Duration::from_mins(10),
            caps: Caps::default(),
            move_after: Some(Self::MOVE_AFTER),
            default_reserve: ReserveSetting::Amounts(Reserve::new()),
            auto_reserve_maximum: Reserve::new(),
        }
    }
}

impl Config {
    /// The default of `move-after`.
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
        "placeholder-node-selector",
        "placeholder-tolerations",
        "prefer-warm-nodes",
        "keep-node-for",
        "keep-node-for-maximum",
        "keep-nodes-at-most",
        "pull-images",
        "pull-images-maximum",
        "release-when",
        "hold-deadline",
        "max-runs",
        "max-runs-per-namespace",
        "max-runs-in-namespaces",
        "move-after",
        "default-reserve",
        "auto-reserve-maximum",
    ];

    /// Reads the data of the ConfigMap. A missing key has its default. [`Self::unknown_keys`] reports the other keys, which have no
    /// effect: a newer release may know them, and a rollback must not stop the controller.
    pub fn parse(data: &BTreeMap<String, String>) -> Result<Self, ConfigErrors> {
        let mut config = Self::default();
        let (_, errors) = config.set_all(data);
        if errors.0.is_empty() {
            Ok(config)
        } else {
            Err(errors)
        }
    }

    /// The keys that this release does not know.
    pub fn unknown_keys(data: &BTreeMap<String, String>) -> ConfigErrors {
        Self::default().set_all(data).0
    }

    /// Sets each key. Returns the unknown keys, and the mistakes in other keys.
    ///
    /// Keys that begin with an underscore are documentation, as `_example` is in Tekton's own ConfigMaps.
    fn set_all(&mut self, data: &BTreeMap<String, String>) -> (ConfigErrors, ConfigErrors) {
        let settings = data.iter().filter(|(key, _)| !key.starts_with('_'));
        let errors = settings.filter_map(|(key, value)| {
            let mistake = self.set(key, value.trim()).err()?;
            let key = key.clone();
            Some(ConfigError { key, mistake })
        });
        let (unknown, mistakes) = errors.partition(|error| error.mistake == Mistake::UnknownKey);
        (ConfigErrors(unknown), ConfigErrors(mistakes))
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), Mistake> {
        match key {
            "default-strategy" => self.default_strategy = value.parse()?,
            "isolation-scope" => self.isolation.scope = value.parse()?,
            "isolate-from" => self.isolation.from = value.parse()?,
            "placeholder-cpu" => self.placeholder_cpu = amount("cpu", value)?,
            "placeholder-memory" => self.placeholder_memory = amount("memory", value)?,
            "placeholder-labels" => self.placeholder_labels = additions::labels(value)?,
            "placeholder-copied-labels" => self.placeholder_copied_labels = additions::copied_labels(value)?,
            "placeholder-annotations" => self.placeholder_annotations = additions::annotations(value)?,
            "placeholder-image-pull-secrets" => {
                self.placeholder_image_pull_secrets = additions::pull_secrets(value)?;
            }
            "placeholder-node-selector" => self.placeholder_node_selector = additions::node_selector(value)?,
            "placeholder-tolerations" => self.placeholder_tolerations = additions::tolerations(value)?,
            "prefer-warm-nodes" => self.prefer_warm_nodes = parsed(value, Mistake::Boolean)?,
            "keep-node-for" => self.keep_node_for = duration_or_zero(value)?,
            "keep-node-for-maximum" => self.keep_node_for_maximum = duration_or_zero(value)?,
            "keep-nodes-at-most" => self.keep_nodes_at_most = parsed(value, Mistake::Number)?,
            "pull-images" => self.pull_images = parsed(value, Mistake::Boolean)?,
            "pull-images-maximum" => self.pull_images_maximum = parsed(value, Mistake::Images)?,
            "release-when" => self.release_when = value.parse()?,
            "hold-deadline" => self.hold_deadline = duration(value)?,
            "max-runs" => self.caps.cluster = caps::parse(value)?,
            "max-runs-per-namespace" => self.caps.each_namespace = caps::parse(value)?,
            "max-runs-in-namespaces" => self.caps.namespaces = caps::parse_pairs(value)?,
            "move-after" => self.move_after = duration_or_never(value)?,
            "default-reserve" => self.default_reserve = reserve::parse_setting(value)?,
            "auto-reserve-maximum" => self.auto_reserve_maximum = reserve::parse(value)?,
            _ => return Err(Mistake::UnknownKey),
        }
        Ok(())
    }
}

fn unknown_release_when(value: &str) -> UnknownName {
    unknown("moment of release", value, ReleaseWhen::VARIANTS)
}

fn amount(resource: &str, value: &str) -> Result<String, BadReserve> {
    reserve::check(resource, value).map(|()| value.to_owned())
}

fn parsed<T: FromStr>(value: &str, mistake: fn(String) -> Mistake) -> Result<T, Mistake> {
    value.parse().map_err(|_| mistake(value.to_owned()))
}

/// Whether a feature is on for a run: by the annotation of the run if its value is valid, otherwise by the configuration.
pub(crate) fn is_on(annotation: Option<&str>, default: bool) -> bool {
    annotation.and_then(|value| value.parse().ok()).unwrap_or(default)
}

fn duration(value: &str) -> Result<Duration, Mistake> {
    positive_duration(value).ok_or_else(|| Mistake::Duration(value.to_owned()))
}

fn duration_or_never(value: &str) -> Result<Option<Duration>, Mistake> {
    match positive_duration(value) {
        None if value != NEVER => Err(Mistake::DurationOrNever(value.to_owned())),
        duration => Ok(duration),
    }
}

fn duration_or_zero(value: &str) -> Result<Duration, Mistake> {
    parse_duration_or_zero(value).ok_or_else(|| Mistake::DurationOrZero(value.to_owned()))
}

/// Parses a duration that may be zero.
pub(crate) fn parse_duration_or_zero(value: &str) -> Option<Duration> {
    match value {
        "0" | "0s" => Some(Duration::ZERO),
        _ => positive_duration(value),
    }
}

fn positive_duration(value: &str) -> Option<Duration> {
    let duration = Duration::try_from(value.parse::<SignedDuration>().ok()?).ok()?;
    (!duration.is_zero()).then_some(duration)
}

fn join_sentences(errors: &[ConfigError]) -> String {
    errors
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(". ")
}

#[cfg(test)]
mod tests;
