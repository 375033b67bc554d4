//! The page with the table of pairs. A row stays unchanged until its pair runs again.

use crate::outcome::Outcome;
use crate::pairs;
use std::collections::BTreeMap;
use std::fmt;

/// The path of the page in the checkout.
pub(crate) const FILE: &str = "docs/compatibility.md";
const TEXT: &str = include_str!("page.md");
/// The head of the table.
const HEAD: &str = "| Kubernetes | Tekton | passed | failed | ignored | date | commit |\n| --- | --- | --- | --- | --- | --- | --- |\n";

/// The result of one pair.
#[derive(Debug)]
pub(crate) struct Row {
    /// A version such as `v1.36.3`.
    pub(crate) kubernetes: String,
    pub(crate) tekton: String,
    pub(crate) outcome: Outcome,
    pub(crate) date: String,
    pub(crate) commit: String,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kubernetes,
            tekton,
            outcome,
            date,
            commit,
        } = self;
        let Outcome {
            passed,
            failed,
            ignored,
        } = outcome;
        let names: Vec<_> = failed.iter().map(|name| format!("`{name}`")).collect();
        let reasons: Vec<_> = ignored
            .iter()
            .map(|(reason, count)| format!("{count}: {reason}"))
            .collect();
        let failed = counted(failed.len(), &names.join(", "));
        let ignored = if reasons.is_empty() {
            "0".to_owned()
        } else {
            reasons.join("; ")
        };
        write!(
            f,
            "| {kubernetes} | {tekton} | {passed} | {failed} | {ignored} | {date} | {commit} |"
        )
    }
}

fn counted(count: usize, what: &str) -> String {
    if count == 0 {
        "0".to_owned()
    } else {
        format!("{count}: {what}")
    }
}

/// The minor versions of Kubernetes and Tekton.
type Pair = (u32, u32);

/// The rows, each as it is written.
#[derive(Debug)]
pub(crate) struct Page(BTreeMap<Pair, String>);

impl Page {
    /// Reads the rows of the existing page.
    pub(crate) fn read(text: &str) -> Self {
        let rows = text
            .lines()
            .filter_map(|line| Some((pair_of(line)?, line.to_owned())));
        Self(rows.collect())
    }

    pub(crate) fn with(mut self, row: &Row) -> Self {
        let line = row.to_string();
        self.0.extend(pair_of(&line).map(|pair| (pair, line)));
        self
    }
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{TEXT}\n{HEAD}")?;
        for versions in pairs::all() {
            let (kubernetes, tekton) = (versions.kubernetes, versions.tekton);
            match self.0.get(&(kubernetes.minor(), tekton.minor())) {
                Some(row) => writeln!(f, "{row}")?,
                None => writeln!(f, "| {kubernetes} | {tekton} | not run yet | | | | |")?,
            }
        }
        Ok(())
    }
}

/// The pair of a row with results.
fn pair_of(line: &str) -> Option<Pair> {
    let mut cells = line.strip_prefix("| v")?.split(" | v");
    let mut minor = || {
        let mut numbers = cells.next()?.split('.');
        (numbers.next()? == "1").then(|| numbers.next()?.parse().ok())?
    };
    Some((minor()?, minor()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kubernetes: &str, passed: usize) -> Row {
        Row {
            kubernetes: kubernetes.into(),
            tekton: "v1.15.0".into(),
            outcome: Outcome {
                passed,
                failed: vec!["a::b".into(), "c::d".into()],
                ignored: [("no policies".to_owned(), 3), ("on request".to_owned(), 1)].into(),
            },
            date: "2026-01-02".into(),
            commit: "0123456789ab".into(),
        }
    }

    #[test]
    fn a_row_names_what_failed_and_why_tests_were_ignored() {
        let expected = "| v1.34.4 | v1.15.0 | 7 | 2: `a::b`, `c::d` | 3: no policies; 1: on request | 2026-01-02 \
                        | 0123456789ab |";
        assert_eq!(row("v1.34.4", 7).to_string(), expected);
    }

    #[test]
    fn a_row_stays_until_its_pair_is_run_again_with_whatever_patch_release() {
        let first = Page::read("").with(&row("v1.34.4", 7)).with(&row("v1.35.1", 8));
        let second = Page::read(&first.to_string()).with(&row("v1.34.5", 9));
        let rows: Vec<_> = second.0.values().cloned().collect();
        assert_eq!(
            rows,
            [row("v1.34.5", 9).to_string(), row("v1.35.1", 8).to_string()]
        );
    }

    #[test]
    fn every_pair_has_a_row_and_the_page_says_which_were_not_run() {
        let page = Page::read("").with(&row("v1.34.4", 7)).to_string();
        let count = |words| page.matches(words).count();
        assert_eq!(
            (count("not run yet"), count("0123456789ab")),
            (pairs::all().len() - 1, 1)
        );
    }
}
