//! The levels of tests, and the levels that this run of the tests is for.

use std::env;

/// Set by `cargo test-all` and `cargo test-nightly`: `first`, `second`, `all` or `nightly`.
const VARIABLE: &str = "POD_AFFINITY_TESTS";

/// The level of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Runs with `cargo test`: one test for each behaviour.
    First,
    /// Runs with `cargo test-all`: repetitions, and tests that need another build.
    Second,
    /// Runs with `cargo test-nightly`: tests that take hours, or need programs that must be built first.
    Nightly,
}

impl Level {
    pub(crate) const fn new(second: bool, nightly: bool) -> Self {
        match (second, nightly) {
            (_, true) => Self::Nightly,
            (true, false) => Self::Second,
            (false, false) => Self::First,
        }
    }
}

/// The levels that this run is for. Tests of other levels are listed as ignored.
pub(crate) fn wanted() -> Result<&'static [Level], String> {
    let value = env::var_os(VARIABLE).unwrap_or_else(|| "first".into());
    match value.to_str() {
        Some("first") => Ok(&[Level::First]),
        Some("second") => Ok(&[Level::Second]),
        Some("all") => Ok(&[Level::First, Level::Second]),
        Some("nightly") => Ok(&[Level::Nightly]),
        _ => Err(format!(
            "{VARIABLE} is {}: set it to first, second, all or nightly, or unset it",
            value.display()
        )),
    }
}
