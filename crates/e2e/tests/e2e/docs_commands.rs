//! The blocks of commands and YAML in the documentation: each block names the test that executes it, and no block is left
//! out.

use crate::support::harness::Test;
use crate::support::kubectl::workspace;
use crate::support::level::Level;
use crate::support::pages::{EXECUTED, NOT_EXECUTED, all_blocks, pages};
use std::fs;

const SHELL: &str = "sh";
const YAML: &str = "yaml";

/// Whether these commands call only cargo in a clone of this repository: tests, the demo, measurements.
fn only_calls_cargo(commands: &str) -> bool {
    let is_variable = |word: &&str| word.contains('=');
    let calls = commands.lines().map(|line| {
        let mut words = line.split_whitespace().skip_while(is_variable);
        (words.next(), words.next())
    });
    calls
        .into_iter()
        .all(|call| matches!(call, (Some("cargo"), Some(verb)) if verb != "ship"))
}

#[e2e_test]
fn every_block_of_every_page_is_executed_by_a_test_or_says_that_it_is_not() {
    let blocks = all_blocks();
    let wrong = blocks.iter().filter(|block| match block.language.as_str() {
        SHELL => !(block.text.is_empty() || block.is_executed() || only_calls_cargo(&block.text)),
        YAML => !(block.text.is_empty() || block.is_executed()),
        // Other blocks are the output of a command, a diagram, or code.
        other => !["", "mermaid", "rust"].contains(&other),
    });
    let wrong: Vec<_> = wrong
        .map(|block| format!("{}, {}: {}", block.page, block.heading, block.text))
        .collect();
    assert_eq!(wrong, [""; 0]);
    for (page, heading, test) in EXECUTED {
        let mut of_heading = blocks
            .iter()
            .filter(|block| block.is_of(page, heading))
            .peekable();
        assert!(of_heading.peek().is_some(), "{page}, {heading}");
        assert!(is_a_test(test), "{test}");
        let is_nightly = tests(test).all(|test| test.level == Level::Nightly);
        assert!(
            of_heading.all(|block| block.nightly == is_nightly),
            "{page}, {heading}: a block says that a nightly test executes it, if and only if this is so"
        );
    }
}

#[e2e_test]
fn every_block_that_is_not_executed_gives_the_reason() {
    for page in pages() {
        let text = fs::read_to_string(workspace().join(&page)).unwrap();
        let marks = text.lines().map(str::trim);
        for mark in marks.filter(|line| line.starts_with(NOT_EXECUTED)) {
            let reason = mark.trim_start_matches(NOT_EXECUTED);
            assert!(reason.starts_with(": ") && reason.len() > 10, "{page}: {mark}");
        }
    }
}

fn tests(filter: &str) -> impl Iterator<Item = &'static Test> {
    let all = inventory::iter::<Test>.into_iter();
    all.filter(move |test| test.path.contains(filter))
}

fn is_a_test(filter: &str) -> bool {
    tests(filter).next().is_some()
}

#[e2e_test]
fn every_test_that_a_page_names_in_a_command_exists() {
    let mut named = 0;
    for page in pages() {
        let text = fs::read_to_string(workspace().join(&page)).unwrap();
        let calls = text.split("cargo test -p e2e").skip(1);
        for call in calls.filter(|call| !call.starts_with(" --test structure")) {
            let call = call.split(['`', '\n', '#', '(']).next().unwrap();
            let call = call.trim_start_matches(" --test e2e");
            for filter in call
                .split_whitespace()
                .filter(|word| !word.starts_with('-') && *word != "NAME")
            {
                assert!(is_a_test(filter), "{page}: {filter}");
                named += 1;
            }
        }
    }
    assert!(named > 10, "{named}");
}
