//! Shows long work and its duration: one changing line on a terminal, plain lines elsewhere.

use std::io::{IsTerminal, Write, stderr};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A running piece of work.
#[derive(Debug)]
pub(crate) struct Progress {
    label: String,
    start: Instant,
    stop: Option<Sender<()>>,
    ticker: Option<JoinHandle<()>>,
}

impl Progress {
    pub(crate) fn start(label: String) -> Self {
        let start = Instant::now();
        let (stop, stopped) = channel();
        let text = label.clone();
        let terminal = stderr().is_terminal();
        let pause = Duration::from_secs(if terminal { 1 } else { 30 });
        show(&text, start, terminal);
        let ticker = std::thread::spawn(move || {
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                show(&text, start, terminal);
            }
        });
        Self {
            label,
            start,
            stop: Some(stop),
            ticker: Some(ticker),
        }
    }

    /// Ends the progress with a permanent line.
    pub(crate) fn done(mut self) {
        self.halt();
        let clear = if stderr().is_terminal() { "\r\x1b[K" } else { "" };
        eprintln!(
            "{clear}testbed: {}: done in {}",
            self.label,
            clock(self.start.elapsed())
        );
    }

    fn halt(&mut self) {
        drop(self.stop.take());
        if let Some(ticker) = self.ticker.take() {
            // A panic has already ended the ticker.
            let _ = ticker.join();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.halt();
    }
}

fn show(label: &str, start: Instant, terminal: bool) {
    let (before, after) = if terminal { ("\r\x1b[K", "") } else { ("", "\n") };
    eprint!(
        "{before}testbed: {label}, {} so far{after}",
        clock(start.elapsed())
    );
    // A failed write must not stop the work.
    let _ = stderr().flush();
}

fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 60 {
        format!("{seconds} s")
    } else {
        format!("{} min {:02} s", seconds / 60, seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_from_a_minute_on_are_shown_in_minutes() {
        assert_eq!(clock(Duration::from_secs(59)), "59 s");
        assert_eq!(clock(Duration::from_secs(61)), "1 min 01 s");
    }
}
