//! `cargo ship`: ko's commands for this Rust program. Builds the image from the source of this checkout without a container
//! daemon, pushes it, and resolves, applies, deletes or releases the manifests that refer to it.
//!
//! The modules [`image`], [`manifest`], [`sbom`], [`destination`], [`push_error`] and [`release`] are pure functions of their
//! input; small modules call cargo, git, kubectl and registries; [`run`] lists the steps of each command.

/// Prints one line of progress to standard error, because other programs read standard output.
macro_rules! status {
    ($($words:tt)*) => { eprintln!("ship: {}", format_args!($($words)*)) };
}

mod archive;
mod args;
mod compile;
mod credentials;
mod destination;
mod elf;
mod image;
mod kubectl;
mod manifest;
mod platform;
mod product;
mod push_error;
mod registry;
mod release;
mod run;
mod sbom;
mod toolchain;
mod workspace;

use args::Args;
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run::run(Args::parse()) {
        Ok(code) => code.into(),
        Err(error) => {
            eprintln!("ship: {error}");
            ExitCode::FAILURE
        }
    }
}
