//! The outcomes of mutants, in a file with one line for each outcome. Lines are only appended.

use crate::crates::Tests;
use crate::mutant::Mutant;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Caught,
    Missed,
    /// The tests did not end in time.
    Timeout,
    /// The mutant does not compile.
    Unviable,
}

impl Outcome {
    const WORDS: [(&'static str, Self); 4] = [
        ("caught", Self::Caught),
        ("missed", Self::Missed),
        ("timeout", Self::Timeout),
        ("unviable", Self::Unviable),
    ];

    pub(crate) fn parse(word: &str) -> Option<Self> {
        let known = Self::WORDS
            .iter()
            .find(|(known, _)| word.eq_ignore_ascii_case(known));
        known.map(|(_, outcome)| *outcome)
    }

    pub(crate) fn word(self) -> &'static str {
        let known = Self::WORDS.iter().find(|(_, outcome)| *outcome == self);
        known.map_or("", |(word, _)| word)
    }
}

/// The outcome of one mutant, from a line of cargo-mutants such as `caught   crates/placement/src/a.rs:1:2: replace f with
/// () in 3s build + 2s test`.
pub(crate) fn printed(line: &str) -> Option<(Outcome, &str, u64)> {
    let (word, rest) = line.split_once(' ')?;
    let outcome = Outcome::parse(word)?;
    let (name, times) = rest.trim_start().rsplit_once(" in ")?;
    let seconds = times.split(" + ").map(|time| {
        let (seconds, _phase) = time.split_once("s ")?;
        seconds.parse::<u64>().ok()
    });
    Some((outcome, name, seconds.sum::<Option<u64>>()?))
}

/// The tests that ran, and the name of the mutant.
type Run = (Tests, String);

/// The outcomes of one seed.
#[derive(Debug)]
pub(crate) struct Outcomes {
    file: PathBuf,
    /// A hash of the code from which the mutants are created.
    code: String,
    known: BTreeMap<Run, Outcome>,
}

impl Outcomes {
    /// Reads the outcomes of this code, and with `also_earlier` the outcomes of earlier code, except missed mutants, which
    /// run again.
    pub(crate) fn read(file: PathBuf, code: &str, also_earlier: bool) -> Self {
        // The file does not exist before the first outcome.
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        Self {
            file,
            code: code.to_owned(),
            known: known(&text, code, also_earlier),
        }
    }

    pub(crate) fn add(&mut self, tests: Tests, name: &str, outcome: Outcome, seconds: u64) -> Result<()> {
        let line = line(&self.code, tests, outcome, seconds, name);
        append(&self.file, &line).with_context(|| format!("writing {}", self.file.display()))?;
        self.known.insert((tests, name.to_owned()), outcome);
        Ok(())
    }

    pub(crate) fn of(&self, tests: Tests, mutant: &Mutant) -> Option<Outcome> {
        self.known.get(&(tests, mutant.name.clone())).copied()
    }
}

fn append(file: &Path, line: &str) -> std::io::Result<()> {
    let mut file = File::options().create(true).append(true).open(file)?;
    file.write_all(line.as_bytes())
}

fn line(code: &str, tests: Tests, outcome: Outcome, seconds: u64, name: &str) -> String {
    let tests = match tests {
        Tests::Own => "own",
        Tests::All => "all",
    };
    format!("{code}\t{tests}\t{}\t{seconds}\t{name}\n", outcome.word())
}

fn known(text: &str, code: &str, also_earlier: bool) -> BTreeMap<Run, Outcome> {
    let mut known = BTreeMap::new();
    for (made_from, run, outcome) in text.lines().filter_map(read_line) {
        if made_from == code || (also_earlier && outcome != Outcome::Missed) {
            known.insert(run, outcome);
        }
    }
    known
}

/// Returns `None` for a line that was written incompletely.
fn read_line(line: &str) -> Option<(&str, Run, Outcome)> {
    let mut cells = line.split('\t');
    let code = cells.next()?;
    let tests = match cells.next()? {
        "own" => Tests::Own,
        "all" => Tests::All,
        _ => return None,
    };
    let outcome = Outcome::parse(cells.next()?)?;
    let (_seconds, name) = (cells.next()?, cells.next()?);
    Some((code, (tests, name.to_owned()), outcome))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crates::Mutated;

    #[test]
    fn an_outcome_is_read_from_the_line_that_cargo_mutants_prints() {
        let name = "a.rs:1:2: replace == with != in f";
        let read =
            |line: &str| printed(line).map(|(outcome, name, seconds)| (outcome, name.to_owned(), seconds));
        for (line, outcome, seconds) in [
            ("caught   NAME in 3s build + 2s test", Outcome::Caught, 5),
            ("MISSED   NAME in 0s build + 12s test", Outcome::Missed, 12),
            ("TIMEOUT  NAME in 3s build + 120s test", Outcome::Timeout, 123),
            ("unviable NAME in 1s build", Outcome::Unviable, 1),
        ] {
            assert_eq!(
                read(&line.replace("NAME", name)),
                Some((outcome, name.to_owned(), seconds)),
                "{line}"
            );
        }
        for line in [
            "Found 15 mutants to test",
            "15 mutants tested in 2m: 1 missed, 14 caught",
            "caught",
            "",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }

    #[test]
    fn outcomes_of_the_same_code_are_known_after_an_interruption() {
        let folder = tempfile::tempdir().unwrap();
        let read = |code| Outcomes::read(folder.path().join("outcomes"), code, false);
        let mutant = Mutant {
            of: Mutated::Placement,
            name: "a: delete !".into(),
            key: String::new(),
        };
        let of = |outcomes: &Outcomes| [Tests::Own, Tests::All].map(|tests| outcomes.of(tests, &mutant));
        let expected = [Some(Outcome::Missed), Some(Outcome::Caught)];

        let mut outcomes = read("code");
        outcomes
            .add(Tests::Own, &mutant.name, Outcome::Missed, 5)
            .unwrap();
        outcomes
            .add(Tests::All, &mutant.name, Outcome::Caught, 50)
            .unwrap();
        assert_eq!(of(&outcomes), expected);
        append(&outcomes.file, "code\town\tcau").unwrap();
        assert_eq!(of(&read("code")), expected);
        assert_eq!(of(&read("other code")), [None, None]);
    }

    #[test]
    fn a_mutant_that_earlier_tests_missed_runs_again_and_one_that_they_caught_does_not() {
        let text = line("before", Tests::Own, Outcome::Missed, 5, "a: delete !")
            + &line("before", Tests::All, Outcome::Missed, 5, "a: delete !")
            + &line("before", Tests::Own, Outcome::Caught, 5, "b: delete !")
            + &line("code", Tests::Own, Outcome::Missed, 5, "c: delete !");
        let expected = [
            ((Tests::Own, "b: delete !".to_owned()), Outcome::Caught),
            ((Tests::Own, "c: delete !".to_owned()), Outcome::Missed),
        ];
        assert_eq!(known(&text, "code", true), BTreeMap::from(expected));
    }
}
