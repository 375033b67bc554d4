//! `cargo ship`: ko's commands for this Rust program. Builds the image from the source of this checkout without a container
//! daemon, pushes it, and resolves, applies, deletes or releases the manifests that refer to it.
//!
//! The modules [`image`], [`manifest`], [`sbom`], [`destination`], [`refusal`] and [`release`] are pure functions of their
//! input; small modules call cargo, git, kubectl and registries; [`run`] lists the steps of each command.

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
mod provenance;
mod refusal;
mod registry;
mod release;
mod run;
mod say;
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
