//! The caps: how many labelled runs may have a placeholder at the same time, in the cluster and in each namespace.

use std::collections::BTreeMap;
use thiserror::Error;

/// The caps of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caps {
    /// `max-runs`.
    pub cluster: Option<usize>,
    /// `max-runs-per-namespace`.
    pub each_namespace: Option<usize>,
    /// `max-runs-in-namespaces`.
    pub namespaces: BTreeMap<String, usize>,
}

/// A cap, with the number of runs that it allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cap {
    /// `max-runs`.
    Cluster(usize),
    /// `max-runs-per-namespace`.
    EachNamespace(usize),
    /// The entry of the run's namespace in `max-runs-in-namespaces`.
    Namespace(usize),
}

/// A cap has no room for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverCap {
    /// The cap.
    pub cap: Cap,
    /// The number of older runs that wait for room in the same cap.
    pub ahead: usize,
}

/// A mistake in a cap.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadCap {
    /// The value is no number.
    #[error("{0:?} is not a number of runs, such as 5; leave it empty for no limit")]
    Number(String),
    /// The entry has no `=`.
    #[error("{0:?} is not of the form namespace=number, such as team-a=20")]
    Pair(String),
    /// The namespace appears twice.
    #[error("{0} is there more than once")]
    Duplicate(String),
}

impl Caps {
    /// The cap of a namespace; the entry of the namespace replaces the cap of each namespace.
    pub fn in_namespace(&self, namespace: &str) -> Option<Cap> {
        let own = self.namespaces.get(namespace).copied().map(Cap::Namespace);
        own.or_else(|| self.each_namespace.map(Cap::EachNamespace))
    }

    /// Whether the number of runs has no limit.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Cap {
    /// The number of runs that the cap allows.
    pub fn limit(self) -> usize {
        match self {
            Self::Cluster(limit) | Self::EachNamespace(limit) | Self::Namespace(limit) => limit,
        }
    }

    /// The key of the configuration.
    pub fn key(self) -> &'static str {
        match self {
            Self::Cluster(_) => "max-runs",
            Self::EachNamespace(_) => "max-runs-per-namespace",
            Self::Namespace(_) => "max-runs-in-namespaces",
        }
    }
}

/// Parses a number; an empty value is no cap.
pub(crate) fn parse(value: &str) -> Result<Option<usize>, BadCap> {
    match value {
        "" => Ok(None),
        value => number(value).map(Some),
    }
}

/// Parses pairs such as `team-a=20,team-b=0`. Commas or line breaks separate the pairs.
pub(crate) fn parse_pairs(value: &str) -> Result<BTreeMap<String, usize>, BadCap> {
    let mut caps = BTreeMap::new();
    let pairs = value.split([',', '\n']).map(str::trim);
    for pair in pairs.filter(|pair| !pair.is_empty()) {
        let parts = pair
            .split_once('=')
            .map(|(name, limit)| (name.trim(), limit.trim()));
        let (name, limit) = parts
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| BadCap::Pair(pair.to_owned()))?;
        if caps.insert(name.to_owned(), number(limit)?).is_some() {
            return Err(BadCap::Duplicate(name.to_owned()));
        }
    }
    Ok(caps)
}

fn number(value: &str) -> Result<usize, BadCap> {
    // `parse` would accept a sign.
    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_number.then(|| value.parse::<u32>().ok()).flatten();
    let number = number.and_then(|number| usize::try_from(number).ok());
    number.ok_or_else(|| BadCap::Number(value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_of_a_namespace_replaces_the_cap_of_each_namespace() {
        let caps = Caps {
            each_namespace: Some(5),
            namespaces: parse_pairs("team-a=20, team-b=0").unwrap(),
            cluster: None,
        };
        assert_eq!(caps.in_namespace("team-a"), Some(Cap::Namespace(20)));
        assert_eq!(caps.in_namespace("team-b"), Some(Cap::Namespace(0)));
        assert_eq!(caps.in_namespace("team-c"), Some(Cap::EachNamespace(5)));
        assert_eq!(Caps::default().in_namespace("team-a"), None);
    }

    #[test]
    fn a_cap_is_a_number_or_empty() {
        assert_eq!(
            [parse(""), parse("0"), parse("12")],
            [Ok(None), Ok(Some(0)), Ok(Some(12))]
        );
        for value in ["-1", "+1", "many", "1.5", "99999999999"] {
            assert_eq!(parse(value), Err(BadCap::Number(value.to_owned())));
        }
    }

    #[test]
    fn pairs_have_a_namespace_and_a_number() {
        let pairs = parse_pairs("a=1\n b = 2 ,").unwrap();
        assert_eq!(pairs, BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]));
        assert_eq!(parse_pairs("a"), Err(BadCap::Pair("a".to_owned())));
        assert_eq!(parse_pairs("=1"), Err(BadCap::Pair("=1".to_owned())));
        assert_eq!(parse_pairs("a=x"), Err(BadCap::Number("x".to_owned())));
        assert_eq!(parse_pairs("a=1,a=2"), Err(BadCap::Duplicate("a".to_owned())));
    }
}
