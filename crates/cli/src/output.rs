//! Standard output and standard error. Without a terminal, or with `NO_COLOR`, there are no colours.

use crate::args::Prose;
use crate::doctor::Level;
use crate::timeline::model::Phase;
use crate::timeline::text::Ink;
use crate::words::WIDTH;
use anstyle::{AnsiColor, Style};
use serde::Serialize;
use std::io::{self, Write};

const BOLD: Style = Style::new().bold();

/// Writes to standard output.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = anstream::stdout();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes a line to standard error.
pub(crate) fn note(text: &str) {
    // Without a standard error, the line is lost.
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// A value as JSON or YAML.
pub(crate) fn data(value: &impl Serialize, yaml: bool) -> String {
    if yaml {
        serde_yaml::to_string(value).unwrap_or_default()
    } else {
        serde_json::to_string_pretty(value)
            .map(|text| format!("{text}\n"))
            .unwrap_or_default()
    }
}

/// A value as text, JSON or YAML.
pub(crate) fn prose(format: Prose, value: &impl Serialize, text: impl FnOnce() -> String) -> String {
    match format {
        Prose::Text => text(),
        Prose::Json => data(value, false),
        Prose::Yaml => data(value, true),
    }
}

/// Bold text.
pub(crate) fn bold(text: &str) -> String {
    format!("{BOLD}{text}{BOLD:#}")
}

/// Text in the colour of the level.
pub(crate) fn mark(level: Level, text: &str) -> String {
    let colour = match level {
        Level::Ok => AnsiColor::Green,
        Level::Warning => AnsiColor::Yellow,
        Level::Bad => AnsiColor::Red,
    };
    let style = Style::new().bold().fg_color(Some(colour.into()));
    format!("{style}{text}{style:#}")
}

/// Text in the colour of the part of the picture.
pub(crate) fn ink(ink: Ink, text: &str) -> String {
    let colour = match ink {
        Ink::Plain => return text.to_owned(),
        Ink::Of(Phase::Held) => AnsiColor::Yellow,
        Ink::Of(Phase::Waiting) => AnsiColor::Magenta,
        Ink::Of(Phase::Running) => AnsiColor::Blue,
        Ink::Of(Phase::Reserved | Phase::Kept) => AnsiColor::Cyan,
        Ink::Of(Phase::Unknown) | Ink::Unlabelled => AnsiColor::BrightBlack,
        Ink::Failed => AnsiColor::Red,
    };
    let style = Style::new().fg_color(Some(colour.into()));
    format!("{style}{text}{style:#}")
}

/// The width of the terminal. Without a terminal: the variable `COLUMNS`, or [`WIDTH`].
pub(crate) fn width() -> usize {
    let terminal = rustix::termios::tcgetwinsize(io::stdout()).ok();
    let columns = terminal
        .map(|size| usize::from(size.ws_col))
        .filter(|columns| *columns > 0);
    let wanted = || std::env::var("COLUMNS").ok()?.parse().ok();
    columns.or_else(wanted).unwrap_or(WIDTH)
}
