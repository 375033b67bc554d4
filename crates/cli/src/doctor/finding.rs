//! Findings: what a check reports, how findings are made, and how they are printed.

use crate::requests::{RequestError, RequestResult};
use crate::words::{WIDTH, count, list, wrap};
use serde::Serialize;
use std::fmt::Write;

/// Columns before a sentence.
const INDENT: usize = 9;
/// Objects that a finding names; the rest is counted.
pub(super) const NAMED: usize = 6;

/// How severe a finding is, the least severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    Ok,
    Warning,
    Bad,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) check: &'static str,
    pub(crate) level: Level,
    pub(crate) sentence: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
}

impl Finding {
    pub(super) fn hint(self, remedy: impl Into<String>) -> Self {
        Self {
            remedy: Some(remedy.into()),
            ..self
        }
    }
}

/// The name of a check, which makes the findings of this name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Check(pub(super) &'static str);

/// The findings of a check. The error is the only finding of a check that ended early, mostly because an object was not read.
pub(super) type CheckResult = Result<Vec<Finding>, Finding>;

impl Check {
    fn finding(self, level: Level, sentence: impl Into<String>) -> Finding {
        Finding {
            check: self.0,
            level,
            sentence: sentence.into(),
            remedy: None,
        }
    }

    pub(super) fn ok(self, sentence: impl Into<String>) -> Finding {
        self.finding(Level::Ok, sentence)
    }

    pub(super) fn warning(self, sentence: impl Into<String>, remedy: impl Into<String>) -> Finding {
        self.finding(Level::Warning, sentence).hint(remedy)
    }

    pub(super) fn bad(self, sentence: impl Into<String>, remedy: impl Into<String>) -> Finding {
        self.finding(Level::Bad, sentence).hint(remedy)
    }

    pub(super) fn unread(self, error: &RequestError) -> Finding {
        let remedy = match error {
            RequestError::Forbidden(_) => "Ask a user with more permissions, or for this permission.",
            RequestError::Late(..) => "Try again, with a longer --request-timeout.",
            RequestError::NotServed(_)
            | RequestError::Changed(_)
            | RequestError::Failed(..)
            | RequestError::Unreadable(_) => "Try again; if the error persists, check the API server.",
        };
        self.warning(format!("Not checked: {error}."), remedy)
    }

    /// The objects that were read. The error is the finding that they were not.
    pub(super) fn read<T>(self, seen: &RequestResult<T>) -> Result<&T, Finding> {
        seen.as_ref().map_err(|error| self.unread(error))
    }

    /// A finding about all these objects; `None` without objects.
    pub(super) fn about(
        self,
        level: Level,
        what: &str,
        objects: &[String],
        remedy: impl Into<String>,
    ) -> Option<Finding> {
        let sentence = format!("{what}: {}.", list(objects, NAMED));
        (!objects.is_empty()).then(|| self.finding(level, sentence).hint(remedy))
    }

    /// The findings; without any, a good one with this sentence.
    pub(super) fn or_ok(
        self,
        findings: impl IntoIterator<Item = Finding>,
        sentence: impl Into<String>,
    ) -> Vec<Finding> {
        let findings: Vec<_> = findings.into_iter().collect();
        if findings.is_empty() {
            vec![self.ok(sentence)]
        } else {
            findings
        }
    }
}

/// The findings as text; `mark` colours the level.
pub(crate) fn text(findings: &[Finding], mark: impl Fn(Level, &str) -> String) -> String {
    let mut text = String::new();
    for finding in findings {
        let label = match finding.level {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Bad => "BAD",
        };
        let head = format!("{}{:2$}", mark(finding.level, label), "", INDENT - label.len());
        let sentence = format!("{}: {}", finding.check, finding.sentence);
        write_lines(&mut text, &head, INDENT, &sentence);
        if let Some(remedy) = &finding.remedy {
            write_lines(&mut text, &format!("{:INDENT$}-> ", ""), INDENT + 3, remedy);
        }
    }
    let _ = writeln!(text, "\n{}", summary(findings));
    text
}

fn write_lines(text: &mut String, head: &str, indent: usize, sentence: &str) {
    let lines = wrap(sentence, WIDTH - indent).join(&format!("\n{:indent$}", ""));
    let _ = writeln!(text, "{head}{lines}");
}

fn summary(findings: &[Finding]) -> String {
    let number = |level| findings.iter().filter(|finding| finding.level == level).count();
    let warnings = number(Level::Warning);
    match number(Level::Bad) {
        0 if warnings == 0 => "No problems found.".to_owned(),
        0 => format!("Nothing is bad; {}.", count(warnings, "warning")),
        bad => format!("{bad} bad, {}.", count(warnings, "warning")),
    }
}

/// Whether a finding is at least this severe.
pub(crate) fn is_at_least(findings: &[Finding], level: Level) -> bool {
    findings.iter().any(|finding| finding.level >= level)
}
