//! The page with the table of nightly tests. A row stays unchanged until its test runs again.

use crate::tests::NIGHTLY;
use anyhow::{Context, Result};
use std::fmt;

/// The path of the page in the checkout.
pub(crate) const FILE: &str = "docs/nightly.md";
const HEAD: &str = "| test | result | minutes | date | commit |\n| --- | --- | --- | --- | --- |\n";
const PASSED: &str = "passed";

/// The last result of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) title: String,
    pub(crate) passed: bool,
    pub(crate) minutes: u64,
    pub(crate) date: String,
    pub(crate) commit: String,
}

impl Row {
    fn read(line: &str) -> Option<Self> {
        let cells = line.strip_prefix("| ")?.strip_suffix(" |")?;
        let [title, result, minutes, date, commit] =
            cells.split(" | ").collect::<Vec<_>>().try_into().ok()?;
        Some(Self {
            title: title.to_owned(),
            passed: result == PASSED,
            minutes: minutes.parse().ok()?,
            date: date.to_owned(),
            commit: commit.to_owned(),
        })
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            title,
            passed,
            minutes,
            date,
            commit,
        } = self;
        let result = if *passed { PASSED } else { "**failed**" };
        writeln!(f, "| {title} | {result} | {minutes} | {date} | {commit} |")
    }
}

/// The text above the table, and the rows in the order of the tests.
pub(crate) struct Page {
    text: String,
    rows: Vec<Row>,
}

impl Page {
    pub(crate) fn read(page: &str) -> Result<Self> {
        let (text, table) = page
            .split_once(HEAD)
            .with_context(|| format!("{FILE} has no table: restore the file from git"))?;
        Ok(Self {
            text: text.to_owned(),
            rows: table.lines().filter_map(Row::read).collect(),
        })
    }

    /// Replaces the row of a test, and removes the rows of tests that no longer exist.
    pub(crate) fn with(self, row: &Row) -> Self {
        let find = |title: &str| self.rows.iter().find(|row| row.title == title);
        let rows = NIGHTLY.iter().filter_map(|test| {
            if test.title == row.title {
                Some(row)
            } else {
                find(test.title)
            }
        });
        Self {
            rows: rows.cloned().collect(),
            text: self.text,
        }
    }
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{HEAD}", self.text)?;
        self.rows.iter().try_for_each(|row| write!(f, "{row}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(test: usize, passed: bool) -> Row {
        Row {
            title: NIGHTLY[test].title.into(),
            passed,
            minutes: 3,
            date: "2026-11-26".into(),
            commit: "0123456789ab".into(),
        }
    }

    #[test]
    fn a_new_result_replaces_the_row_of_its_test_and_keeps_the_others() {
        let gone = row(0, true).to_string().replace(NIGHTLY[0].title, "gone");
        let page = format!("# Text\n\n{HEAD}{}{gone}{}", row(0, true), row(2, false));
        let page = Page::read(&page)
            .unwrap()
            .with(&row(0, false))
            .with(&row(1, true));
        let expected = format!(
            "# Text\n\n{HEAD}{}{}{}",
            row(0, false),
            row(1, true),
            row(2, false)
        );
        assert_eq!(page.to_string(), expected);
    }

    #[test]
    fn a_page_without_a_table_is_an_error_that_names_the_file() {
        let error = Page::read("# Text").err().unwrap();
        assert!(error.to_string().contains(FILE), "{error}");
    }

    #[test]
    fn each_row_of_the_page_belongs_to_a_test() {
        let page = include_str!("../../../../../docs/nightly.md");
        let rows = Page::read(page).unwrap().rows;
        let known = |row: &Row| NIGHTLY.iter().any(|test| test.title == row.title);
        assert!(rows.iter().all(known), "{rows:?}");
    }
}
