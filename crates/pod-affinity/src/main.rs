//! pod-affinity: one node for all pods of a PipelineRun. One binary for all processes.

mod args;
mod config_events;
mod controller;
#[cfg(test)]
mod documented;
mod identity;
#[cfg(test)]
mod manifests;
mod placeholder;
mod start;
mod webhook;

use args::{Args, Command};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    // A cluster runs many placeholders, so a placeholder starts without argument parser, logs, runtime and crypto.
    if placeholder::is_selected() {
        return placeholder::stay();
    }
    let args = Args::parse();
    if let Err(error) = runtime::log::init(args.log_format) {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    match run(args.command) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!(%error, "the process ends");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    // The installation fails only if a provider is installed already. kube's client would choose the same provider.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match command {
        Command::Webhook(args) => webhook::run(args)?,
        Command::Controller(args) => controller::run(args)?,
        Command::ReleaseAll(args) => return Ok(cli::release_all(&args.namespace)),
        Command::Placeholder => anyhow::bail!("`placeholder` must be the first argument"),
    }
    Ok(ExitCode::SUCCESS)
}
