//! Mutants that behave as the original code does, so that no test can catch them.

use anyhow::{Result, bail};
use std::collections::{BTreeMap, BTreeSet};

/// The file in this folder.
const FILE: &str = "equivalent.txt";

/// Reasons by the keys of mutants.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Equivalent(BTreeMap<String, String>);

impl Equivalent {
    pub(crate) fn checked_in() -> Result<Self> {
        Self::parse(include_str!("equivalent.txt"))
    }

    /// A key at the beginning of a line, followed by the reason on indented lines; `#` begins a comment.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut all: BTreeMap<String, String> = BTreeMap::new();
        let mut last = None;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let text = line.trim();
            if text.is_empty() {
                continue;
            }
            if !line.starts_with(' ') {
                last = Some(all.entry(text.to_owned()).or_default());
            } else if let Some(reason) = &mut last {
                reason.push_str(if reason.is_empty() { "" } else { " " });
                reason.push_str(text);
            } else {
                bail!("{FILE}: a reason without a mutant: {text}");
            }
        }
        if let Some((key, _)) = all.iter().find(|(_, reason)| reason.is_empty()) {
            bail!("{FILE}: a mutant without a reason: {key}");
        }
        Ok(Self(all))
    }

    pub(crate) fn contains(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// Keys that match no mutant of the code.
    pub(crate) fn stale<'a>(&self, keys: impl Iterator<Item = &'a str>) -> Vec<&str> {
        let keys: BTreeSet<_> = keys.collect();
        let all = self.0.keys().map(String::as_str);
        all.filter(|key| !keys.contains(key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Comment.\n\na.rs: delete ! in f\n    The caller\n    negates as well.\nb.rs: replace g with ()\n    No effect.\n";

    #[test]
    fn every_mutant_in_the_list_has_a_reason() {
        let all = Equivalent::parse(TEXT).unwrap();
        let expected = [
            ("a.rs: delete ! in f", "The caller negates as well."),
            ("b.rs: replace g with ()", "No effect."),
        ];
        let expected = expected.map(|(key, reason)| (key.to_owned(), reason.to_owned()));
        assert_eq!(all, Equivalent(expected.into()));
        assert!(Equivalent::parse("a.rs: delete ! in f\n").is_err());
        assert!(Equivalent::parse("    A reason.\n").is_err());
        assert!(Equivalent::checked_in().is_ok());
    }

    #[test]
    fn an_entry_that_matches_no_mutant_is_stale() {
        let all = Equivalent::parse(TEXT).unwrap();
        let keys = ["b.rs: replace g with ()", "c.rs: delete !"];
        assert_eq!(all.stale(keys.into_iter()), ["a.rs: delete ! in f"]);
    }
}
