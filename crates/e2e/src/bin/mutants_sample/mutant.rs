//! The mutants that cargo-mutants can create, and the order in which a seed draws them.

use crate::crates::Mutated;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// A change of the code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mutant {
    pub(crate) of: Mutated,
    /// The name that cargo-mutants prints: `FILE:LINE:COLUMN: CHANGE`.
    pub(crate) name: String,
    /// The name without line and column. If several mutants have the same name, their order is added: `(2 of 3)`.
    pub(crate) key: String,
}

/// An entry of cargo-mutants' list.
#[derive(Deserialize)]
struct Listed {
    name: String,
    package: String,
}

/// The mutants in the order of the code.
pub(crate) fn listed(json: &str) -> Result<Vec<Mutant>> {
    let listed: Vec<Listed> = serde_json::from_str(json).context("reading the list of cargo-mutants")?;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for mutant in &listed {
        *counts.entry(without_position(&mutant.name)).or_default() += 1;
    }
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mutants = listed.into_iter().map(|Listed { name, package }| {
        let of = Mutated::named(&package).with_context(|| format!("a mutant of {package}"))?;
        let short = without_position(&name);
        let at = seen.entry(short.clone()).or_default();
        *at += 1;
        let key = match counts.get(&short) {
            Some(&count) if count > 1 => format!("{short} ({at} of {count})"),
            _ => short,
        };
        Ok(Mutant { of, name, key })
    });
    mutants.collect()
}

fn without_position(name: &str) -> String {
    let parts: Vec<_> = name.splitn(4, ':').collect();
    match parts[..] {
        [file, _line, _column, change] => format!("{file}:{change}"),
        _ => name.to_owned(),
    }
}

pub(crate) fn drawn(mut mutants: Vec<Mutant>, seed: u64) -> Vec<Mutant> {
    fastrand::Rng::with_seed(seed).shuffle(&mut mutants);
    mutants
}

/// The first mutants that contain `count` viable ones. A mutant that was not built yet counts as viable.
pub(crate) fn sample(drawn: &[Mutant], count: usize, is_unviable: impl Fn(&Mutant) -> bool) -> &[Mutant] {
    let viable = (1..).zip(drawn).filter(|(_, mutant)| !is_unviable(mutant));
    let length = match count.checked_sub(1) {
        Some(others) => viable
            .map(|(length, _)| length)
            .nth(others)
            .unwrap_or(drawn.len()),
        None => 0,
    };
    &drawn[..length]
}

/// The names of all drawn mutants except `mutants`.
pub(crate) fn others<'a>(drawn: &'a [Mutant], mutants: &[&Mutant]) -> impl Iterator<Item = &'a str> {
    let names: BTreeSet<_> = mutants.iter().map(|mutant| mutant.name.as_str()).collect();
    let all = drawn.iter().map(|mutant| mutant.name.as_str());
    all.filter(move |name| !names.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"[
        {"name": "crates/placement/src/a.rs:3:5: replace f -> B::C with None", "package": "placement", "genre": "FnValue"},
        {"name": "crates/admission/src/b.rs:1:9: replace == with != in g", "package": "admission"},
        {"name": "crates/admission/src/b.rs:8:2: replace == with != in g", "package": "admission"}
    ]"#;

    fn many() -> Vec<Mutant> {
        let mutant = |number: usize| Mutant {
            of: Mutated::Placement,
            name: format!("a.rs:{number}:1: delete !"),
            key: String::new(),
        };
        (0..100).map(mutant).collect()
    }

    #[test]
    fn a_key_has_no_line_and_tells_equal_changes_of_a_file_apart() {
        let keys: Vec<_> = listed(LIST)
            .unwrap()
            .into_iter()
            .map(|mutant| (mutant.of, mutant.key))
            .collect();
        let expected = [
            (
                Mutated::Placement,
                "crates/placement/src/a.rs: replace f -> B::C with None",
            ),
            (
                Mutated::Admission,
                "crates/admission/src/b.rs: replace == with != in g (1 of 2)",
            ),
            (
                Mutated::Admission,
                "crates/admission/src/b.rs: replace == with != in g (2 of 2)",
            ),
        ];
        assert_eq!(keys, expected.map(|(of, key)| (of, key.to_owned())));
    }

    #[test]
    fn a_seed_draws_the_same_mutants_every_time_and_another_seed_draws_others() {
        assert_eq!(drawn(many(), 7), drawn(many(), 7));
        assert_ne!(drawn(many(), 7)[..10], drawn(many(), 8)[..10]);
        let mut all = drawn(many(), 7);
        all.sort_by_key(|mutant| many().iter().position(|other| other == mutant));
        assert_eq!(all, many());
    }

    #[test]
    fn the_others_are_all_but_the_chosen_mutants() {
        let drawn = many();
        let names: Vec<_> = drawn[2..].iter().map(|mutant| mutant.name.as_str()).collect();
        assert!(others(&drawn, &[&drawn[1], &drawn[0]]).eq(names));
    }

    #[test]
    fn a_sample_goes_on_until_enough_of_its_mutants_are_viable() {
        let drawn = many();
        let is_unviable = |mutant: &Mutant| drawn[..3].contains(mutant) || *mutant == drawn[4];
        let length = |count| sample(&drawn, count, is_unviable).len();
        assert_eq!([0, 1, 2, 96, 97].map(length), [0, 4, 6, 100, 100]);
    }
}
