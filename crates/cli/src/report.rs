//! A story as data: a title, chapters in order, and what would help. Pure, and the same for text and JSON.

use crate::words::{WIDTH, wrap};
use serde::Serialize;
use std::fmt::Write;

/// Columns before the text of a chapter.
const INDENT: usize = 13;

/// What there is to tell of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Story {
    /// `namespace/name`.
    pub(crate) run: String,
    pub(crate) state: String,
    pub(crate) chapters: Vec<Chapter>,
    #[serde(rename = "whatWouldHelp")]
    pub(crate) help: Vec<String>,
}

/// One step of the story.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Chapter {
    pub(crate) title: &'static str,
    pub(crate) text: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) details: Vec<String>,
}

impl Chapter {
    /// A chapter of one sentence or more.
    pub(crate) fn new(title: &'static str, text: impl Into<String>) -> Self {
        Self {
            title,
            text: text.into(),
            details: Vec::new(),
        }
    }

    /// With a line of its own for each.
    pub(crate) fn details(mut self, details: impl IntoIterator<Item = String>) -> Self {
        self.details.extend(details);
        self
    }
}

impl Story {
    /// The story as text of 80 columns; `bold` marks the first words of each part.
    pub(crate) fn text(&self, bold: impl Fn(&str) -> String) -> String {
        let mut text = format!("{}: {}\n", bold(&format!("PipelineRun {}", self.run)), self.state);
        for chapter in &self.chapters {
            text.push('\n');
            write_chapter(&mut text, chapter, &bold);
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

fn write_chapter(text: &mut String, chapter: &Chapter, bold: &impl Fn(&str) -> String) {
    let gap = " ".repeat(INDENT.saturating_sub(chapter.title.len()));
    let head = format!("{}{gap}", bold(chapter.title));
    write_item(text, &head, INDENT, &chapter.text);
    let lead = format!("{}- ", " ".repeat(INDENT));
    for detail in &chapter.details {
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
