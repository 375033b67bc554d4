//! `kubectl pod-affinity` and `tkn pod-affinity`: one program under two names.
//!
//! An answer is made in three steps: [`gather`] asks the API server, each question with a deadline; what was seen is
//! judged by pure functions ([`story`], [`list`], [`nodes`], [`timeline`], [`doctor`]); [`output`] prints it. A right that the user
//! lacks leaves a gap that is named, and the rest of the answer still comes. Only `release`, `disable` and `enable` write
//! to the cluster, each on what it saw.

mod admission;
mod args;
mod ask;
mod client;
mod commands;
mod complete;
mod doctor;
mod events;
mod facts;
#[cfg(test)]
mod fake_api;
mod filter;
mod fit;
#[cfg(test)]
mod fixture;
mod follow;
mod gather;
mod goal;
mod home;
mod list;
mod nodes;
mod output;
mod report;
mod state;
mod story;
mod switch;
mod table;
mod target;
mod timeline;
mod view;
mod watch;
mod way;
mod words;

use args::Caller;
use std::process::ExitCode;

/// Answers, and tells how that went.
pub fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    let program = words.first().map(|name| name.to_string_lossy().into_owned());
    let program = program.unwrap_or_default();
    let caller = Caller::of(&program);
    if complete::is_asked_for(&program) {
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
