//! Holds a place on a node. It must be a process that costs next to nothing and ends at once when it is asked to.

use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};
use std::env;
use std::process::ExitCode;

/// Whether this process is a placeholder.
pub(crate) fn is_asked_for() -> bool {
    env::args_os().nth(1).is_some_and(|first| first == "placeholder")
}

/// Sleeps until it is asked to end. As process 1 of a container it gets no signal for which it has no handler.
pub(crate) fn stay() -> ExitCode {
    match Signals::new([SIGTERM, SIGINT]) {
        Ok(mut signals) => {
            signals.forever().next();
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("cannot listen for signals: {error}");
            ExitCode::FAILURE
        }
    }
}
