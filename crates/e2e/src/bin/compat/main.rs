//! `cargo compat`: runs the same end-to-end tests on pairs of Kubernetes and Tekton, and writes docs/compatibility.md.

mod outcome;
mod page;
mod pairs;

use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;
use outcome::Outcome;
use page::{Page, Row};
use std::io::{BufRead, BufReader};
use std::process::{ExitCode, Stdio};
use testbed::Versions;

/// Filters of the end-to-end tests that each pair must pass, as `cargo test` takes them.
const TESTS: [&str; 14] = [
    "one_node_per_run::",
    "holds::",
    "endings::",
    "clusters_differ::",
    "tektons_examples::",
    "moves::",
    "moves_with_volumes::",
    "order::",
    "reserve::",
    "volumes::",
    "policies_at_work::",
    "policies_equal::",
    "install_docs::uninstalling",
    "cli_doctor::",
];

/// Runs the same end-to-end tests on pairs of Kubernetes and Tekton, and writes docs/compatibility.md.
#[derive(Debug, Parser)]
#[command(name = "cargo compat", bin_name = "cargo compat")]
struct Cli {
    /// Run only this pair, such as 1.34/1.15 (can be repeated); the other rows stay.
    #[arg(long, value_name = "KUBERNETES/TEKTON", value_parser = pairs::parsed)]
    only: Vec<Versions>,
    /// Arguments for the tests, such as --test-threads=2.
    #[arg(last = true)]
    arguments: Vec<String>,
}

impl Cli {
    fn pairs(&self) -> Vec<Versions> {
        if self.only.is_empty() {
            pairs::all()
        } else {
            self.only.clone()
        }
    }
}

fn main() -> ExitCode {
    match compare(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("compat: not all tests passed: see {}", page::FILE);
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("compat: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs all pairs, and returns whether all tests passed.
fn compare(cli: &Cli) -> Result<bool> {
    let mut all_passed = true;
    for versions in cli.pairs() {
        println!("\n== {versions}");
        let row = row(versions, &cli.arguments).with_context(|| versions.to_string())?;
        all_passed &= row.outcome.failed.is_empty();
        println!("{row}");
        let file = e2e::workspace().join(page::FILE);
        // The page does not exist before the first pair.
        let before = std::fs::read_to_string(&file).unwrap_or_default();
        let page = Page::read(&before).with(&row);
        std::fs::write(&file, page.to_string()).with_context(|| format!("writing {}", page::FILE))?;
    }
    Ok(all_passed)
}

fn row(versions: Versions, arguments: &[String]) -> Result<Row> {
    // Read before the tests: the tests do not cover changes that are made while they run.
    let (commit, date) = (e2e::commit(page::FILE)?, jiff::Timestamp::now());
    let releases = testbed::releases(versions)?;
    let release = |part: &str| {
        let found = releases.iter().find(|(name, _)| *name == part);
        found.map(|(_, release)| release.clone())
    };
    Ok(Row {
        kubernetes: release("kubernetes").context("no release of Kubernetes")?,
        tekton: release("tekton").context("no release of Tekton")?,
        outcome: tested(versions, arguments)?,
        date: date.strftime("%Y-%m-%d").to_string(),
        commit,
    })
}

fn tested(versions: Versions, arguments: &[String]) -> Result<Outcome> {
    let mut tests = e2e::cargo()
        // --package is not used: see .cargo/config.toml.
        .args(["test", "--test=e2e", "--", "--color=never"])
        .args(TESTS)
        .args(arguments)
        .envs(versions.environment())
        // Tests of policies install the policies themselves.
        .env("POD_AFFINITY_ADMISSION", "webhook")
        .env("POD_AFFINITY_TESTS", "all")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting cargo")?;
    let stdout = tests.stdout.take().context("no output of cargo")?;
    let printed = shown(BufReader::new(stdout))?;
    let status = tests.wait().context("waiting for cargo")?;
    let outcome =
        Outcome::parse(&printed).ok_or_else(|| anyhow!("the tests ended without a result ({status})"))?;
    if outcome.failed.is_empty() != status.success() {
        bail!(
            "{} tests failed, but cargo ended with {status}",
            outcome.failed.len()
        );
    }
    Ok(outcome)
}

/// Prints the output line by line, and returns all of it.
fn shown(output: impl BufRead) -> Result<String> {
    let mut all = String::new();
    for line in output.lines() {
        let line = line.context("reading the output of the tests")?;
        println!("{line}");
        all += &line;
        all.push('\n');
    }
    Ok(all)
}
