//! The length of the pages for users.

use crate::support::kubectl::workspace;
use crate::support::pages::pages;
use std::fs;

const MOST_WORDS: usize = 18_000;

/// Pages that are not counted, or their folders: for contributors, or generated, or read only at an alert, a release or a
/// review of the security.
const NOT_COUNTED: [&str; 11] = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "chart/README.md",
    "docs/architecture.md",
    "docs/benchmarks/",
    "docs/fault-tests.md",
    "docs/nightly.md",
    "docs/releasing.md",
    "docs/runbooks/",
    "docs/testbed.md",
];

/// The number of words, without bars of tables and other signs that stand alone.
fn words(text: &str) -> usize {
    let tokens = text.split_whitespace();
    tokens
        .filter(|token| token.contains(char::is_alphanumeric))
        .count()
}

#[e2e_test]
fn the_pages_for_users_have_at_most_18000_words() {
    let mut counted: Vec<_> = pages()
        .into_iter()
        .filter(|page| !NOT_COUNTED.iter().any(|other| page.starts_with(other)))
        .map(|page| (words(&fs::read_to_string(workspace().join(&page)).unwrap()), page))
        .collect();
    counted.sort_unstable();
    let all: usize = counted.iter().map(|(count, _)| count).sum();
    println!("the pages for users have {all} words");
    let list: Vec<_> = counted
        .iter()
        .map(|(count, page)| format!("{count:>6} {page}"))
        .collect();
    assert!(
        all <= MOST_WORDS,
        "{all} words in the pages for users:\n{}",
        list.join("\n")
    );
}
