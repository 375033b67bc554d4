//! The output of the demo: a terminal gets lines that change in place, any other output gets appended lines.

use std::io::{IsTerminal, Write, stdout};
use std::time::Instant;

const WIDTH: usize = 80;

/// The demo's output.
pub(crate) struct Screen {
    start: Instant,
    terminal: bool,
    colour: bool,
    shown: Vec<String>,
}

impl Screen {
    pub(crate) fn new() -> Self {
        let terminal = stdout().is_terminal();
        // See no-color.org: the variable takes effect if it is set and not empty.
        let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self {
            start: Instant::now(),
            terminal,
            colour,
            shown: Vec::new(),
        }
    }

    pub(crate) fn title(&self, text: &str) {
        let (on, off) = if self.colour {
            ("\x1b[1m", "\x1b[0m")
        } else {
            ("", "")
        };
        println!("\n{on}== {text}{off}");
    }

    /// Shows the current state of the changing lines.
    pub(crate) fn update(&mut self, lines: &[String]) {
        if self.terminal {
            self.redraw(lines);
        } else {
            self.append_changes(lines);
        }
        self.shown = lines.to_vec();
    }

    fn redraw(&self, lines: &[String]) {
        if !self.shown.is_empty() {
            print!("\x1b[{}A", self.shown.len());
        }
        for line in lines {
            println!("\x1b[K{}", cut(line));
        }
        // A failed write must not end the demo.
        let _ = stdout().flush();
    }

    fn append_changes(&self, lines: &[String]) {
        let second = self.start.elapsed().as_secs();
        for line in lines.iter().filter(|line| !self.shown.contains(line)) {
            println!("{}", cut(&format!("{second:>4} s  {line}")));
        }
    }

    /// Keeps the changing lines as they are.
    pub(crate) fn settle(&mut self) {
        self.shown.clear();
    }

    pub(crate) fn verdict(&self, good: bool, text: &str) {
        let (on, off) = match (self.colour, good) {
            (true, true) => ("\x1b[32m", "\x1b[0m"),
            (true, false) => ("\x1b[31m", "\x1b[0m"),
            (false, _) => ("", ""),
        };
        println!("{on}{}: {text}{off}", if good { "yes" } else { "no" });
    }
}

fn cut(line: &str) -> String {
    if line.chars().count() <= WIDTH {
        return line.to_owned();
    }
    line.chars().take(WIDTH - 1).chain(['>']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_cut_at_the_edge_of_the_terminal() {
        assert_eq!(cut(&"x".repeat(200)).chars().count(), WIDTH);
        assert_eq!(cut("short"), "short");
    }
}
