//! Standard output and standard error. Without a terminal, or with `NO_COLOR`, there are no colours.

use crate::args::Prose;
use crate::doctor::Level;
use crate::timeline::model::Phase;
use crate::timeline::text::Ink;
use crate::words::WIDTH;
use anstyle::{AnsiColor, Style};
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, Write};

const BOLD: Style = Style::new().bold();

/// Writes to standard output.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = anstream::stdout();
    out.write_all(safe(text).as_bytes())?;
    out.flush()
}

/// Writes a line to standard error.
pub(crate) fn note(text: &str) {
    // Without a standard error, the line is lost.
    let _ = writeln!(anstream::stderr(), "{}", safe(text));
}

/// The text with a replacement for each control character except line breaks, tabs and the styles below: a tenant's text, such as an
/// annotation, must not control the terminal of the operator.
fn safe(text: &str) -> Cow<'_, str> {
    let is_unsafe = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\t');
    if !text.contains(is_unsafe) {
        return text.into();
    }
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(is_unsafe) {
        let (plain, control) = rest.split_at(at);
        let style = style_at_start(control);
        safe += plain;
        safe += style.unwrap_or("\u{fffd}");
        let length = style.map_or_else(|| control.chars().next().map_or(0, char::len_utf8), str::len);
        rest = &control[length..];
    }
    safe += rest;
    safe.into()
}

/// The escape sequence at the start of a text, if this is bold text, a colour, or the end of both.
fn style_at_start(text: &str) -> Option<&str> {
    let (code, _) = text.strip_prefix("\u{1b}[")?.split_once('m')?;
    let is_known = |code| matches!(code, 0 | 1 | 30..38 | 90..98);
    let is_style = code.parse::<u8>().is_ok_and(is_known);
    is_style.then(|| &text[..code.len() + "\u{1b}[m".len()])
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_tenants_do_not_reach_the_terminal() {
        assert_eq!(safe("a plain\ttext\n"), "a plain\ttext\n");
        let hostile = "x\u{1b}[2J\u{1b}[8m\u{1b}]0;title\u{7}\r\u{9b}1A";
        assert_eq!(
            safe(hostile),
            "x\u{fffd}[2J\u{fffd}[8m\u{fffd}]0;title\u{fffd}\u{fffd}\u{fffd}1A"
        );
    }

    #[test]
    fn the_styles_of_the_output_stay() {
        let levels = [Level::Ok, Level::Warning, Level::Bad].map(|level| mark(level, "level"));
        let inks = [Ink::Of(Phase::Unknown), Ink::Failed].map(|of| ink(of, "bar"));
        for text in levels.iter().chain(&inks).chain([&bold("title")]) {
            assert_eq!(safe(text), *text);
            assert_ne!(safe(&text.replace('m', "n")), text.replace('m', "n"));
        }
    }
}
