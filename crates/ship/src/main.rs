//! `cargo ship`: what ko is to Go programs on Kubernetes, for this one. Builds the image from the source of this checkout
//! without any container daemon, pushes it, and resolves, applies, deletes or releases the manifests that refer to it.
//!
//! The pure parts ([`image`], [`manifest`], [`sbom`], [`destination`], [`refusal`], [`release`]) are functions of their
//! input; cargo, git, kubectl and registries are spoken to by small modules around them; [`run`] is the list of steps.

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
