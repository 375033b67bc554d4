//! The placeholder process, which holds a place on a node. The process must use almost no resources and end at once on a signal.

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;
use std::env;
use std::process::ExitCode;

/// Whether the first argument selects the placeholder.
pub(crate) fn is_selected() -> bool {
    env::args_os().nth(1).is_some_and(|first| first == "placeholder")
}

/// Sleeps until SIGTERM or SIGINT.
///
/// Both signals are blocked and read, without a handler: a signal that arrives during the installation of a handler would be lost.
/// Process 1 of a container receives only signals that the process blocks or handles.
pub(crate) fn stay() -> ExitCode {
    let signals: SigSet = [Signal::SIGTERM, Signal::SIGINT].into_iter().collect();
    let wait = || {
        signals.thread_block()?;
        SignalFd::new(&signals)?.read_signal()
    };
    match wait() {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cannot wait for a signal: {error}");
            ExitCode::FAILURE
        }
    }
}
