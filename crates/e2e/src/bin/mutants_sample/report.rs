//! The final results of the mutants in a sample.

use crate::crates::{Mutated, Tests};
use crate::equivalent::Equivalent;
use crate::mutant::Mutant;
use crate::outcome::Outcome;
use std::fmt;

/// The result of a mutant after all tests that run against it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    CaughtByOwn,
    /// Caught by all cases of the properties, or by the tests of a crate that depends on the mutated one.
    CaughtByOthers,
    Timeout,
    Missed,
    /// Missed, and listed as equivalent.
    Equivalent,
    Unviable,
    /// Not finished: tests have still to run.
    Open,
}

impl End {
    fn of(own: Option<Outcome>, all: Option<Outcome>, is_equivalent: bool) -> Self {
        match own {
            None => Self::Open,
            Some(Outcome::Unviable) => Self::Unviable,
            Some(Outcome::Caught) => Self::CaughtByOwn,
            Some(Outcome::Timeout) => Self::Timeout,
            Some(Outcome::Missed) if is_equivalent => Self::Equivalent,
            Some(Outcome::Missed) => match all {
                None => Self::Open,
                Some(Outcome::Caught) => Self::CaughtByOthers,
                Some(Outcome::Timeout) => Self::Timeout,
                Some(Outcome::Missed | Outcome::Unviable) => Self::Missed,
            },
        }
    }

    fn is_caught(self) -> bool {
        matches!(self, Self::CaughtByOwn | Self::CaughtByOthers | Self::Timeout)
    }
}

pub(crate) struct Report<'a> {
    /// The command that repeats this sample.
    command: String,
    ends: Vec<(&'a Mutant, End)>,
    equivalent: &'a Equivalent,
    /// Entries of equivalent.txt that match no mutant of the code.
    stale: Vec<&'a str>,
}

impl<'a> Report<'a> {
    pub(crate) fn new(
        command: String,
        all: &[Mutant],
        sample: &'a [Mutant],
        outcome: impl Fn(Tests, &Mutant) -> Option<Outcome>,
        equivalent: &'a Equivalent,
    ) -> Self {
        let end = |mutant: &Mutant| {
            let is_equivalent = equivalent.contains(&mutant.key);
            let [own, all] = [Tests::Own, Tests::All].map(|tests| outcome(tests, mutant));
            End::of(own, all, is_equivalent)
        };
        let ends = sample.iter().map(|mutant| (mutant, end(mutant))).collect();
        Self {
            command,
            ends,
            stale: equivalent.stale(all.iter().map(|mutant| mutant.key.as_str())),
            equivalent,
        }
    }

    /// Whether all tests have run, and caught at least this share of the viable mutants that are not equivalent, in percent.
    pub(crate) fn is_good(&self, least: usize) -> bool {
        let count = |is_of: fn(End) -> bool| self.ends.iter().filter(|(_, end)| is_of(*end)).count();
        let (caught, missed) = (count(End::is_caught), count(|end| end == End::Missed));
        count(|end| end == End::Open) == 0 && caught * 100 >= least * (caught + missed)
    }

    fn those(&self, end: End) -> impl Iterator<Item = &'a Mutant> {
        let ends = self.ends.iter();
        ends.filter(move |(_, other)| *other == end)
            .map(|(mutant, _)| *mutant)
    }

    fn row(&self, name: &str, is_of: impl Fn(&Mutant) -> bool) -> String {
        let ends: Vec<_> = self.ends.iter().filter(|(mutant, _)| is_of(mutant)).collect();
        let count = |end| ends.iter().filter(|(_, other)| *other == end).count();
        let caught = ends.iter().filter(|(_, end)| end.is_caught()).count();
        let viable = ends.len() - count(End::Unviable) - count(End::Open);
        let cells = [
            viable,
            count(End::CaughtByOwn),
            count(End::CaughtByOthers),
            count(End::Timeout),
            count(End::Missed),
            count(End::Equivalent),
            count(End::Unviable),
        ];
        let cells: String = cells.iter().map(|count| format!(" {count} |")).collect();
        let part = (caught * 100)
            .checked_div(viable)
            .map_or("-".into(), |part| format!("{part} %"));
        format!("| {name} |{cells} {part} |")
    }

    /// Lists mutants with their lines, and with the end of the key that distinguishes equal changes of a file.
    fn list(&self, f: &mut fmt::Formatter<'_>, title: &str, end: End) -> fmt::Result {
        let mut those = self.those(end).peekable();
        if those.peek().is_some() {
            writeln!(f, "\n{title}:")?;
        }
        for mutant in those {
            let order = mutant.key.rsplit_once(" (").filter(|_| mutant.key.ends_with(')'));
            let order = order.filter(|(_, order)| order.contains(" of "));
            let order = order.map_or(String::new(), |(_, order)| format!(" ({order}"));
            writeln!(f, "    {}{order}", mutant.name)?;
        }
        Ok(())
    }

    /// Entries of equivalent.txt that must be removed.
    fn wrong_entries(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for key in &self.stale {
            writeln!(f, "\nequivalent.txt: no mutant matches this entry: {key}")?;
        }
        let caught = self
            .ends
            .iter()
            .filter(|(mutant, end)| end.is_caught() && self.equivalent.contains(&mutant.key));
        for (mutant, _) in caught {
            writeln!(f, "\nequivalent.txt: the tests catch this mutant: {}", mutant.key)?;
        }
        Ok(())
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.command)?;
        writeln!(
            f,
            "| crate | viable | caught by its tests | by all tests | timeout | missed | equivalent | unviable | caught |"
        )?;
        writeln!(f, "| --- | --- | --- | --- | --- | --- | --- | --- | --- |")?;
        let is_in_sample = |of: &Mutated| self.ends.iter().any(|(mutant, _)| mutant.of == *of);
        for of in Mutated::ALL.into_iter().filter(is_in_sample) {
            writeln!(f, "{}", self.row(of.name(), |mutant| mutant.of == of))?;
        }
        writeln!(f, "{}", self.row("all", |_| true))?;
        writeln!(
            f,
            "\nThe last column is the part of the viable mutants that were caught. A timeout counts as caught."
        )?;
        let open = self.those(End::Open).count();
        if open > 0 {
            writeln!(
                f,
                "\nNot finished: tests have still to run against {open} mutants."
            )?;
        }
        self.list(f, "missed", End::Missed)?;
        self.list(f, "timeout", End::Timeout)?;
        self.list(f, "equivalent", End::Equivalent)?;
        self.wrong_entries(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(of: Mutated, number: usize) -> Mutant {
        Mutant {
            of,
            name: format!("crates/{of}/src/a.rs:{number}:5: delete ! in f"),
            key: format!("crates/{of}/src/a.rs: delete ! in f ({number} of 8)"),
        }
    }

    fn sample() -> Vec<Mutant> {
        let placement = (1..=7).map(|number| mutant(Mutated::Placement, number));
        placement.chain([mutant(Mutated::Admission, 1)]).collect()
    }

    fn outcome(tests: Tests, mutant: &Mutant) -> Option<Outcome> {
        let at = sample().iter().position(|other| other == mutant)?;
        let own = "caught caught missed missed timeout missed unviable caught";
        let all = "- - caught missed - - - -";
        let word = match tests {
            Tests::Own => own.split(' ').nth(at),
            Tests::All => all.split(' ').nth(at),
        };
        Outcome::parse(word?)
    }

    fn text(listed: &[&Mutant], outcome: impl Fn(Tests, &Mutant) -> Option<Outcome>) -> (String, bool) {
        let entries = listed.iter().map(|mutant| format!("{}\n  Reason.\n", mutant.key));
        let equivalent = Equivalent::parse(&entries.collect::<String>()).unwrap();
        let sample = sample();
        let report = Report::new("command".into(), &sample[1..], &sample, outcome, &equivalent);
        (report.to_string(), report.is_good(100))
    }

    #[test]
    fn the_table_counts_what_became_of_the_mutants_of_each_crate_and_the_missed_ones_have_names() {
        let (text, is_good) = text(&[&sample()[5]], outcome);
        for part in [
            "| placement | 6 | 2 | 1 | 1 | 1 | 1 | 1 | 66 % |\n",
            "| admission | 1 | 1 | 0 | 0 | 0 | 0 | 0 | 100 % |\n",
            "| all | 7 | 3 | 1 | 1 | 1 | 1 | 1 | 71 % |\n",
            "\nmissed:\n    crates/placement/src/a.rs:4:5: delete ! in f (4 of 8)\n\n",
            "\ntimeout:\n    crates/placement/src/a.rs:5:5: delete ! in f (5 of 8)\n\n",
            "\nequivalent:\n    crates/placement/src/a.rs:6:5: delete ! in f (6 of 8)\n",
        ] {
            assert!(text.contains(part), "{part}{text}");
        }
        assert!(!is_good && !text.contains("Not finished") && !text.contains("equivalent.txt"));
        assert!(!text.contains("controller"));
    }

    #[test]
    fn a_sample_is_good_if_the_missed_mutants_are_listed_as_equivalent() {
        let sample = sample();
        assert!(text(&[&sample[3], &sample[5]], outcome).1);
    }

    #[test]
    fn a_sample_with_one_of_five_mutants_missed_is_good_if_less_is_required() {
        let (sample, equivalent) = (sample(), Equivalent::parse("").unwrap());
        let report = Report::new("command".into(), &sample, &sample[..5], outcome, &equivalent);
        assert!(report.is_good(80) && !report.is_good(81));
    }

    #[test]
    fn an_entry_is_wrong_if_the_tests_catch_its_mutant_or_the_code_has_no_such_mutant() {
        let (text, _) = text(&[&sample()[0]], outcome);
        for wrong in ["the tests catch this mutant", "no mutant matches this entry"] {
            let line = format!("\nequivalent.txt: {wrong}: {}\n", sample()[0].key);
            assert!(text.contains(&line), "{line}{text}");
        }
    }

    #[test]
    fn a_survivor_of_its_own_tests_is_open_until_all_tests_ran() {
        let own = |tests, mutant: &Mutant| outcome(tests, mutant).filter(|_| tests == Tests::Own);
        let (text, is_good) = text(&[], own);
        for part in [
            "tests have still to run against 3 mutants",
            "| placement | 3 | 2 | 0 | 1 | 0 | 0 | 1 | 100 % |\n",
        ] {
            assert!(text.contains(part), "{part}{text}");
        }
        assert!(!is_good);
    }
}
