//! `cargo test-nightly`: runs tests that take hours or need programs that must be built first, and writes their results to
//! docs/nightly.md.

mod page;
mod tests;

use anyhow::{Context, Result};
use clap::Parser;
use page::{Page, Row};
use std::fs;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;
use tests::{NIGHTLY, Nightly};

/// Variables that select a variant, which leaves out tests.
const VARIANTS: [&str; 4] = [
    "POD_AFFINITY_ADMISSION",
    "POD_AFFINITY_BINARY",
    "POD_AFFINITY_KUBERNETES",
    "POD_AFFINITY_TEKTON",
];

/// Runs the nightly tests, and writes docs/nightly.md.
#[derive(Debug, Parser)]
#[command(name = "cargo test-nightly", bin_name = "cargo test-nightly")]
struct Cli {
    /// Run only tests whose title or command contains one of these words. The other rows stay.
    words: Vec<String>,
    /// Print the commands instead of running them.
    #[arg(long)]
    list: bool,
}

impl Cli {
    fn tests(&self) -> Vec<&'static Nightly> {
        let named = |test: &&Nightly| {
            let text = format!("{} {}", test.title, test.command);
            self.words.is_empty() || self.words.iter().any(|word| text.contains(word))
        };
        NIGHTLY.iter().filter(named).collect()
    }
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("test-nightly: not all tests passed: see {}", page::FILE);
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("test-nightly: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the tests, and returns whether all passed.
fn run(cli: &Cli) -> Result<bool> {
    let tests = cli.tests();
    anyhow::ensure!(!tests.is_empty(), "no nightly test contains {:?}", cli.words);
    let mut all_passed = true;
    for test in tests {
        println!("\n== {}\n{}", test.title, test.command);
        if cli.list {
            continue;
        }
        let row = row(test).with_context(|| test.title.to_owned())?;
        all_passed &= row.passed;
        let file = e2e::workspace().join(page::FILE);
        let before = fs::read_to_string(&file).with_context(|| format!("reading {}", page::FILE))?;
        let page = Page::read(&before)?.with(&row);
        fs::write(&file, page.to_string()).with_context(|| format!("writing {}", page::FILE))?;
    }
    Ok(all_passed)
}

fn row(test: &Nightly) -> Result<Row> {
    let (commit, begun) = (e2e::commit(page::FILE)?, Instant::now());
    let date = jiff::Timestamp::now().strftime("%Y-%m-%d").to_string();
    // bash, because the commands are also on pages, in the syntax of a shell.
    let mut bash = Command::new("bash");
    for variant in VARIANTS {
        bash.env_remove(variant);
    }
    let status = bash
        .args(["-euo", "pipefail", "-c", test.command])
        .env("POD_AFFINITY_TESTS", "nightly")
        .current_dir(e2e::workspace())
        .stdin(Stdio::null())
        .status()
        .context("starting bash")?;
    Ok(Row {
        title: test.title.to_owned(),
        passed: status.success(),
        minutes: begun.elapsed().as_secs().div_ceil(60),
        date,
        commit,
    })
}
