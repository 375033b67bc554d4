//! What the configuration adds to placeholders for the policies and reports of a cluster: labels, annotations, labels
//! that are copied from the run, pull secrets, a node selector, tolerations.
//!
//! An addition must not change which pods the selectors of Tekton, Kueue or pod-affinity match, so keys of their
//! domains are rejected.

use crate::keys;
use crate::label_syntax::{is_domain, is_key, is_label_value};
use crate::text::quoted;
use k8s_openapi::api::core::v1::Toleration;
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// The limit in bytes of one setting. Each setting becomes part of every placeholder, and the size of an object is
/// limited.
const LONGEST: usize = 16 << 10;

/// The effects of a taint.
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Keys of labels and annotations that every placeholder has.
const PLACEHOLDER_KEYS: [&str; 5] = [
    keys::APP,
    keys::COMPONENT,
    keys::MANAGED_BY,
    keys::SAFE_TO_EVICT,
    keys::DO_NOT_DISRUPT,
];

/// Domains whose keys cannot be added, each with the reason. The whole domain of Tekton is reserved, because a later
/// version may select by more keys.
const RESERVED_DOMAINS: [(&str, &str); 3] = [
    (
        keys::OWN_PREFIX,
        "pod-affinity finds the pods of a run by keys of this domain",
    ),
    (
        "tekton.dev/",
        "Tekton and pod-affinity find the pods of a run by keys of this domain",
    ),
    (
        "kueue.x-k8s.io/",
        "Kueue would queue a placeholder with a key of this domain",
    ),
];

/// A mistake in an addition.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadAddition {
    /// An entry has no `=`.
    #[error("{0:?} is not of the form key=value, such as team=build")]
    Pair(String),
    /// A key appears twice.
    #[error("{0} is there more than once")]
    Duplicate(String),
    /// Kubernetes does not accept the key.
    #[error(
        "{0:?} is not a valid key; use up to 63 letters, digits, dots, dashes and underscores, with a letter or digit \
         at both ends, alone or after a lowercase domain and a slash, such as team or example.com/team"
    )]
    Key(String),
    /// Kubernetes does not accept the label value.
    #[error(
        "{key}={value}: {value:?} is not a valid label value; use up to 63 letters, digits, dots, dashes and \
         underscores, with a letter or digit at both ends"
    )]
    Value {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// The key is reserved, because selectors use it.
    #[error("{key} cannot be set on placeholders, because {reason}; remove it")]
    Reserved {
        /// The key.
        key: String,
        /// Which program uses the key.
        reason: &'static str,
    },
    /// Kubernetes does not accept the name of the Secret.
    #[error(
        "{0:?} is not a valid name of a Secret; use lowercase letters, digits, dots and dashes, such as registry"
    )]
    Secret(String),
    /// The text is not a toleration.
    #[error(
        "{0:?} is not a toleration; use key=value:effect, key:effect (any value) or key (any value and effect), such as \
         dedicated=ci:NoSchedule; the effects are {effects}", effects = EFFECTS.join(", ")
    )]
    Toleration(String),
    /// The setting is longer than the limit.
    #[error("the value has {0} bytes; use at most {LONGEST}")]
    TooLong(usize),
}

/// Reads `key=value` pairs, separated by commas or line breaks.
pub fn labels(text: &str) -> Result<BTreeMap<String, String>, BadAddition> {
    label_values(pairs(text, &[',', '\n'], check_key)?)
}

/// Reads labels of nodes as `key=value` pairs, separated by commas or line breaks.
pub fn node_selector(text: &str) -> Result<BTreeMap<String, String>, BadAddition> {
    label_values(pairs(text, &[',', '\n'], check_syntax)?)
}

/// Reads tolerations of the form `key=value:effect`, separated by commas or line breaks. The value and the effect are optional.
pub fn tolerations(text: &str) -> Result<Vec<Toleration>, BadAddition> {
    let all = entries(text, &[',', '\n'])?;
    all.map(|entry| toleration(entry).ok_or_else(|| BadAddition::Toleration(quoted(entry).into_owned())))
        .collect()
}

fn toleration(text: &str) -> Option<Toleration> {
    let (taint, effect) = match text.split_once(':') {
        Some((taint, effect)) => (taint, Some(effect)),
        None => (text, None),
    };
    let (key, value) = match taint.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (taint, None),
    };
    let is_valid =
        is_key(key) && value.is_none_or(is_label_value) && effect.is_none_or(|it| EFFECTS.contains(&it));
    is_valid.then(|| Toleration {
        key: Some(key.to_owned()),
        operator: Some(if value.is_some() { "Equal" } else { "Exists" }.to_owned()),
        value: value.map(str::to_owned),
        effect: effect.map(str::to_owned),
        toleration_seconds: None,
    })
}

fn label_values(labels: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, BadAddition> {
    match labels.iter().find(|(_, value)| !is_label_value(value)) {
        Some((key, value)) => Err(BadAddition::Value {
            key: key.clone(),
            value: quoted(value).into_owned(),
        }),
        None => Ok(labels),
    }
}

/// Reads `key=value` pairs, one per line, because a value may contain commas.
pub fn annotations(text: &str) -> Result<BTreeMap<String, String>, BadAddition> {
    pairs(text, &['\n'], check_key)
}

/// Reads keys of labels, separated by commas or line breaks.
pub fn copied_labels(text: &str) -> Result<BTreeSet<String>, BadAddition> {
    list(text, check_key)
}

/// Reads names of Secrets, separated by commas or line breaks.
pub fn pull_secrets(text: &str) -> Result<BTreeSet<String>, BadAddition> {
    list(text, |name| {
        is_domain(name)
            .then_some(())
            .ok_or_else(|| BadAddition::Secret(quoted(name).into_owned()))
    })
}

fn pairs(
    text: &str,
    separators: &[char],
    check: fn(&str) -> Result<(), BadAddition>,
) -> Result<BTreeMap<String, String>, BadAddition> {
    let mut pairs = BTreeMap::new();
    for entry in entries(text, separators)? {
        let (key, value) = entry
            .split_once('=')
            .ok_or_else(|| BadAddition::Pair(quoted(entry).into_owned()))?;
        let (key, value) = (key.trim(), value.trim());
        check(key)?;
        if pairs.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(BadAddition::Duplicate(key.to_owned()));
        }
    }
    Ok(pairs)
}

fn list(
    text: &str,
    check: impl Fn(&str) -> Result<(), BadAddition>,
) -> Result<BTreeSet<String>, BadAddition> {
    entries(text, &[',', '\n'])?
        .map(|entry| check(entry).map(|()| entry.to_owned()))
        .collect()
}

fn entries<'a>(text: &'a str, separators: &'a [char]) -> Result<impl Iterator<Item = &'a str>, BadAddition> {
    if text.len() > LONGEST {
        return Err(BadAddition::TooLong(text.len()));
    }
    let entries = text.split(separators).map(str::trim);
    Ok(entries.filter(|entry| !entry.is_empty()))
}

fn check_syntax(key: &str) -> Result<(), BadAddition> {
    is_key(key)
        .then_some(())
        .ok_or_else(|| BadAddition::Key(quoted(key).into_owned()))
}

fn check_key(key: &str) -> Result<(), BadAddition> {
    check_syntax(key)?;
    reason_if_reserved(key).map_or(Ok(()), |reason| {
        Err(BadAddition::Reserved {
            key: key.to_owned(),
            reason,
        })
    })
}

fn reason_if_reserved(key: &str) -> Option<&'static str> {
    if PLACEHOLDER_KEYS.contains(&key) {
        return Some("every placeholder has a value of its own for it");
    }
    let domain = RESERVED_DOMAINS
        .iter()
        .find(|(domain, _)| key.starts_with(domain));
    domain.map(|&(_, reason)| reason)
}

#[cfg(test)]
mod tests;
