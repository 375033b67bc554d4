//! Parses the results that the harness of the end-to-end tests printed.

use std::collections::BTreeMap;

/// The results of one run of the tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) passed: usize,
    pub(crate) failed: Vec<String>,
    /// Number of ignored tests for each reason.
    pub(crate) ignored: BTreeMap<String, usize>,
}

impl Outcome {
    /// Returns `None` if the output is incomplete: the harness prints the number of tests at its end.
    pub(crate) fn parse(printed: &str) -> Option<Self> {
        let mut outcome = Self::default();
        for line in printed.lines() {
            outcome.add(line);
        }
        let counted = printed
            .lines()
            .find_map(|line| line.strip_prefix("test result: "))?;
        let wanted = format!(
            " {} passed; {} failed; {} ignored;",
            outcome.passed,
            outcome.failed.len(),
            outcome.ignored.values().sum::<usize>()
        );
        counted.contains(&wanted).then_some(outcome)
    }

    /// Parses `test NAME ... ok`, `FAILED`, `ignored` or `ignored (REASON)`; other lines are ignored.
    fn add(&mut self, line: &str) {
        let test = line
            .strip_prefix("test ")
            .and_then(|line| line.split_once(" ... "));
        match test {
            Some((_, "ok")) => self.passed += 1,
            Some((name, "FAILED")) => self.failed.push(name.trim().to_owned()),
            Some((_, rest)) => {
                let Some(reason) = rest.strip_prefix("ignored") else {
                    return;
                };
                let reason = reason
                    .strip_prefix(" (")
                    .and_then(|reason| reason.strip_suffix(')'));
                *self
                    .ignored
                    .entry(reason.unwrap_or("on request only").to_owned())
                    .or_default() += 1;
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "
running 5 tests
test holds::a        ... ok
test holds::bb       ... FAILED
something that a test printed
test policies::one   ... ignored (no policies (here))
test policies::two   ... ignored (no policies (here))
test policies::three ... ignored

failures:
    holds::bb

test result: FAILED. 1 passed; 1 failed; 3 ignored; 0 measured; 0 filtered out; finished in 1.00s
";

    #[test]
    fn tests_are_counted_with_the_names_of_those_that_failed_and_the_reasons_of_those_that_were_ignored() {
        let ignored = [
            ("no policies (here)".to_owned(), 2),
            ("on request only".to_owned(), 1),
        ];
        let expected = Outcome {
            passed: 1,
            failed: vec!["holds::bb".into()],
            ignored: ignored.into(),
        };
        assert_eq!(Outcome::parse(PRINTED), Some(expected));
    }

    #[test]
    fn an_output_that_ends_early_or_lacks_a_line_is_no_outcome() {
        assert_eq!(Outcome::parse(&PRINTED.replace("test result", "")), None);
        assert_eq!(Outcome::parse(&PRINTED.replace("test holds::a ", "")), None);
    }
}
