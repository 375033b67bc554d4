//! Holds a place on a node. It must be a process that costs next to nothing and ends at once when it is asked to.

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;
use std::env;
use std::process::ExitCode;

/// Whether this process is a placeholder.
pub(crate) fn is_asked_for() -> bool {
    env::args_os().nth(1).is_some_and(|first| first == "placeholder")
}

/// Sleeps until it is asked to end.
///
/// The signals are blocked and waited for instead of handled: one that comes while a handler is being set up would be lost, and a
/// process 1 of a container gets none that it neither blocks nor handles.
pub(crate) fn stay() -> ExitCode {
    let asked: SigSet = [Signal::SIGTERM, Signal::SIGINT].into_iter().collect();
    let wait = || {
        asked.thread_block()?;
        SignalFd::new(&asked)?.read_signal()
    };
    match wait() {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cannot wait for a signal: {error}");
            ExitCode::FAILURE
        }
    }
}
