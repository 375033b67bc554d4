//! `kubectl pod-affinity` and `tkn pod-affinity`: one program under two names.
//!
//! A command has three steps: [`gather`] reads the API server, with a deadline for each request; pure functions compute the answer
//! ([`explanation`], [`list`], [`nodes`], [`timeline`], [`cost`], [`doctor`], [`version`]); [`output`] prints it. A missing permission is named,
//! and the rest of the answer is printed. Only `release`, `disable` and `enable` write to the cluster, each with the state that it relies on.

mod admission;
mod args;
mod client;
mod commands;
mod complete;
mod cost;
mod doctor;
mod events;
mod explanation;
mod facts;
#[cfg(test)]
mod fake_api;
mod filter;
mod fit;
#[cfg(test)]
mod fixture;
mod follow;
mod gather;
mod list;
mod nodes;
mod observe;
mod output;
mod plan;
mod proxy;
mod requests;
mod state;
mod switch;
mod table;
mod target;
mod timeline;
mod version;
mod view;
mod watch;
mod words;

use args::Caller;
use std::process::ExitCode;

/// Switches pod-affinity off and releases all held runs: `disable --all-namespaces --stop-controller`, with the account of the pod.
/// Links no other command into the caller.
pub fn release_all(namespace: &str) -> ExitCode {
    commands::release_all(namespace)
}

/// Runs the program.
pub fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    let program = words.first().map(|name| name.to_string_lossy().into_owned());
    let program = program.unwrap_or_default();
    let caller = Caller::of(&program);
    if complete::is_completion(&program) {
        return commands::complete(caller, &words[1..]);
    }
    match args::parse(caller, words) {
        Ok(args) => commands::run(caller, args),
        Err(usage) => {
            // A closed standard error changes nothing.
            let _ = usage.print();
            ExitCode::from(u8::try_from(usage.exit_code()).unwrap_or(2))
        }
    }
}
