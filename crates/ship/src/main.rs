//! `cargo ship`: ko's commands for this Rust program. Builds the image from the source of this checkout without a container
//! daemon, pushes it, and resolves, applies, deletes or releases the manifests that refer to it.
//!
//! crane assembles and pushes images, cosign signs, helm pushes the chart, and kubectl renders kustomizations. [`run`] lists the steps
//! of each command, and [`release`] those of a release.

/// Prints one line of progress to standard error, because other programs read standard output.
macro_rules! status {
    ($($words:tt)*) => { eprintln!("ship: {}", format_args!($($words)*)) };
}

mod archive;
mod args;
mod chart;
mod compile;
mod cosign;
mod crane;
mod destination;
mod image;
mod kubectl;
mod manifest;
mod release;
mod run;
mod sbom;
mod source;
mod tool;
mod values;
mod variant;
mod verify;

use args::Args;
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run::run(Args::parse()) {
        Ok(code) => code.into(),
        Err(error) => {
            eprintln!("ship: {error:#}");
            ExitCode::FAILURE
        }
    }
}
