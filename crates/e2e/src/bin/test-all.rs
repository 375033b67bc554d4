//! `cargo test-all`: the tests of `cargo test`, and tests that repeat a behaviour or need another build.

use anyhow::{Context, Result};
use clap::Parser;
use std::process::ExitCode;
use std::time::Instant;

/// Runs the tests of the first and the second level.
#[derive(Debug, Parser)]
#[command(name = "cargo test-all", bin_name = "cargo test-all")]
struct Cli {
    /// Leave out the first level, which `cargo test` runs.
    #[arg(long)]
    added: bool,
}

/// A cargo command.
struct Step {
    title: &'static str,
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
}

const ALL: Step = Step {
    title: "both levels, with the webhook",
    arguments: &["test"],
    environment: &[("POD_AFFINITY_TESTS", "all")],
};

const SECOND: Step = Step {
    title: "the second level, with the webhook",
    arguments: &["test", "--test=e2e"],
    environment: &[("POD_AFFINITY_TESTS", "second")],
};

/// Tests that behave in the same way with the webhook and with policies.
const POLICIES: Step = Step {
    title: "the first level, with admission policies",
    arguments: &[
        "test",
        "--test=e2e",
        "--",
        "--skip=docs_",
        "--skip=install_",
        "--skip=metrics",
        "--skip=policies_",
        "--skip=ship::",
        "--skip=support::",
        "--skip=testbed_",
    ],
    environment: &[("POD_AFFINITY_ADMISSION", "policies")],
};

/// A measurement that fails is an error. A slow measurement is not.
const MEASURING: Step = Step {
    title: "one short round of each measurement",
    arguments: &["run", "--quiet", "--bin", "bench-all", "--", "--quick"],
    environment: &[],
};

fn main() -> ExitCode {
    let first = if Cli::parse().added { SECOND } else { ALL };
    let mut failed = Vec::new();
    for step in [first, POLICIES, MEASURING] {
        match passes(&step) {
            Ok(true) => {}
            Ok(false) => failed.push(step.title.to_owned()),
            Err(error) => failed.push(format!("{}: {error:#}", step.title)),
        }
    }
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("test-all: failed: {}", failed.join("; "));
    ExitCode::FAILURE
}

fn passes(step: &Step) -> Result<bool> {
    println!("\n== {}", step.title);
    let begun = Instant::now();
    let mut cargo = e2e::cargo();
    let cargo = cargo.args(step.arguments).envs(step.environment.iter().copied());
    let status = cargo.status().context("starting cargo")?;
    println!("== {}: {status}, {} s", step.title, begun.elapsed().as_secs());
    Ok(status.success())
}
