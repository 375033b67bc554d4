//! The levels of tests, and which of them this run is for.

use std::env;

/// Set by `cargo test-all` and `cargo test-nightly`: `first`, `second`, `all` or `nightly`.
const VARIABLE: &str = "POD_AFFINITY_TESTS";

/// When a test runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// With `cargo test`: one test for each behaviour.
    First,
    /// With `cargo test-all`: repetition, and what needs another build.
    Second,
    /// With `cargo test-nightly`: hours, or programs that must be built first.
    Nightly,
}

impl Level {
    pub(crate) const fn of(second: bool, nightly: bool) -> Self {
        match (second, nightly) {
            (_, true) => Self::Nightly,
            (true, false) => Self::Second,
            (false, false) => Self::First,
        }
    }
}

/// The levels that a run is for. Tests of other levels are listed as ignored.
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
