//! The explanation as data and as text: fields for programs, sections in order for people, and what would help.
//!
//! docs/cli.md documents the fields, and a test compares them.

use crate::list::Row;
use crate::words::{WIDTH, wrap};
use jiff::Timestamp;
use serde::Serialize;
use std::fmt::Write;

/// Columns before the text of a section.
const INDENT: usize = 13;
/// Version of the data. Fields may be added to it; a field that is renamed or removed needs a new version.
pub(crate) const VERSION: &str = "cli.pod-affinity.tekton.dev/v1";
/// Kind of the data.
pub(crate) const KIND: &str = "RunExplanation";

/// The explanation of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Explanation {
    #[serde(flatten)]
    pub(crate) summary: Summary,
    #[serde(rename = "whatWouldHelp")]
    pub(crate) help: Vec<String>,
    pub(crate) not_read: Vec<String>,
    #[serde(rename = "chapters")]
    pub(crate) sections: Vec<Section>,
}

/// The fields that do not change while only time passes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Summary {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    #[serde(flatten)]
    pub(crate) row: Row,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) isolation: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) succeeded: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) scheduler: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) autoscaler: Option<String>,
    pub(crate) nodes: Vec<Candidate>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) events: Vec<EventSummary>,
}

/// A node, and the reasons against it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Candidate {
    pub(crate) node: String,
    pub(crate) reasons: Vec<Reason>,
}

/// A reason against a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Reason {
    #[serde(rename = "type")]
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

/// The pod of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Task {
    pub(crate) name: String,
    pub(crate) pod: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
    pub(crate) phase: String,
    pub(crate) opted_out: bool,
}

/// The last event of pod-affinity with this reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct EventSummary {
    pub(crate) time: Timestamp,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// A section of the text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Section {
    pub(crate) title: &'static str,
    pub(crate) text: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) details: Vec<String>,
}

impl Section {
    /// A section without lines.
    pub(crate) fn new(title: &'static str, text: impl Into<String>) -> Self {
        Self {
            title,
            text: text.into(),
            details: Vec::new(),
        }
    }

    /// A section that consists of lines; `None` without lines.
    pub(crate) fn list(title: &'static str, text: &str, lines: impl Iterator<Item = String>) -> Option<Self> {
        let section = Self::new(title, text).details(lines);
        (!section.details.is_empty()).then_some(section)
    }

    /// Adds lines.
    pub(crate) fn details(mut self, details: impl IntoIterator<Item = String>) -> Self {
        self.details.extend(details);
        self
    }
}

impl Explanation {
    /// Whether only time has passed between the two.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        self.summary == other.summary && self.help == other.help
    }

    /// The text, in lines of 80 columns; `bold` marks the titles.
    pub(crate) fn text(&self, bold: impl Fn(&str) -> String) -> String {
        let row = &self.summary.row;
        let run = bold(&format!("PipelineRun {}/{}", row.namespace, row.name));
        let mut text = format!("{run}: {}\n", row.state);
        for section in &self.sections {
            text.push('\n');
            write_section(&mut text, section, &bold);
        }
        if !self.help.is_empty() {
            let _ = write!(text, "\n{}\n", bold("What would help"));
            self.help
                .iter()
                .for_each(|advice| write_item(&mut text, "  * ", 4, advice));
        }
        text
    }
}

fn write_section(text: &mut String, section: &Section, bold: &impl Fn(&str) -> String) {
    let padding = " ".repeat(INDENT.saturating_sub(section.title.len()));
    let head = format!("{}{padding}", bold(section.title));
    write_item(text, &head, INDENT, &section.text);
    let lead = format!("{}- ", " ".repeat(INDENT));
    for detail in &section.details {
        write_item(text, &lead, INDENT + 2, detail);
    }
}

fn write_item(text: &mut String, head: &str, indent: usize, item: &str) {
    let pad = " ".repeat(indent);
    for (index, line) in wrap(item, WIDTH - indent).iter().enumerate() {
        text.push_str(if index == 0 { head } else { &pad });
        text.push_str(line);
        text.push('\n');
    }
}
