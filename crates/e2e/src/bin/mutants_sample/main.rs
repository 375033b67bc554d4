//! `cargo mutants-sample`: draws mutants of placement, controller and admission from a seed, runs the unit tests against
//! each mutant, and reports the mutants that no test catches.

mod campaign;
mod clone;
mod crates;
mod equivalent;
mod mutant;
mod outcome;
mod report;
mod tool;

use anyhow::{Context, Result, bail};
use campaign::Campaign;
use clap::Parser;
use clone::Snapshot;
use crates::Mutated;
use equivalent::Equivalent;
use mutant::Mutant;
use outcome::Outcomes;
use report::Report;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use tool::Tool;

/// Memory limit of each process.
const MEMORY: u64 = 8 << 30;

/// Draws mutants of placement, controller and admission from a seed, and runs the unit tests against each mutant.
///
/// The same command resumes an interrupted one. Results and logs are in target/mutants.
#[derive(Debug, Parser)]
#[command(name = "cargo mutants-sample", bin_name = "cargo mutants-sample")]
struct Cli {
    /// Determines which mutants are drawn, and the random cases of property tests [default: random].
    #[arg(long)]
    seed: Option<u64>,
    /// How many viable mutants to test.
    #[arg(long, default_value_t = 150)]
    count: usize,
    /// How many mutants to test at a time, each in a copy of the clone with its own builds.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    jobs: u8,
    /// Draw mutants of this crate only.
    #[arg(long, value_name = "CRATE")]
    only: Option<Mutated>,
    /// Print the first mutants of the draw, and test none.
    #[arg(long)]
    list: bool,
    /// Keep the outcomes from before the code was changed, except those of missed mutants: to see whether new tests catch
    /// them.
    #[arg(long)]
    missed: bool,
    /// The least share of the mutants that must be caught, in percent. Equivalent mutants do not count.
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u8).range(..=100))]
    least: u8,
}

impl Cli {
    fn chosen(&self, all: &[Mutant]) -> Vec<Mutant> {
        let is_chosen = |mutant: &&Mutant| self.only.is_none_or(|only| mutant.of == only);
        all.iter().filter(is_chosen).cloned().collect()
    }

    /// The command that tests the same sample.
    fn again(&self, seed: u64) -> String {
        let only = self.only.map(|only| format!(" --only {only}"));
        let missed = if self.missed { " --missed" } else { "" };
        format!(
            "cargo mutants-sample --seed {seed} --count {}{}{missed}",
            self.count,
            only.unwrap_or_default()
        )
    }
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mutants-sample: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether enough mutants were caught.
fn run(cli: &Cli) -> Result<bool> {
    let seed = cli.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    let equivalent = Equivalent::checked_in()?;
    let folder = target()?.join("mutants");
    let tool = Tool::installed(seed, locked(&folder)?)?;
    limit_memory()?;
    let snapshot = Snapshot::take(&e2e::workspace(), &folder.join("clone.index"))?;
    let copies = copies(&snapshot, &folder, cli.jobs)?;
    let all = mutant::listed(&tool.list(copies.first().context("no copy")?)?)?;
    let drawn = mutant::drawn(cli.chosen(&all), seed);
    if cli.list {
        let listed = drawn.iter().take(cli.count);
        listed.for_each(|mutant| println!("{}", mutant.name));
        return Ok(true);
    }

    println!("{}", cli.again(seed));
    let file = folder.join(format!("seed-{seed}.tsv"));
    let outcomes = Outcomes::read(file, &snapshot.code()?, cli.missed);
    let campaign = Campaign {
        tool,
        copies,
        drawn,
        outcomes: Mutex::new(outcomes),
    };
    let sample = campaign.run(cli.count, &equivalent)?;
    let outcome = |tests, mutant: &Mutant| campaign.outcomes().of(tests, mutant);
    let report = Report::new(cli.again(seed), &all, sample, outcome, &equivalent);
    println!("\n{report}");
    let file = folder.join(format!("seed-{seed}.md"));
    std::fs::write(&file, report.to_string()).with_context(|| format!("writing {}", file.display()))?;
    Ok(report.is_good(cli.least.into()))
}

/// A copy of the clone for each job.
fn copies(snapshot: &Snapshot, folder: &Path, jobs: u8) -> Result<Vec<PathBuf>> {
    let copies = (1..=jobs).map(|number| {
        let copy = folder.join(format!("copy-{number}"));
        snapshot.copy_to(&copy)?;
        Ok(copy)
    });
    copies.collect()
}

/// Opens and locks the log, and removes the content of an earlier command.
fn locked(folder: &Path) -> Result<File> {
    let path = folder.join("log");
    std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    let log = File::options().create(true).append(true).open(&path);
    let log = log.with_context(|| format!("opening {}", path.display()))?;
    if log.try_lock().is_err() {
        bail!(
            "cargo mutants-sample, or a cargo-mutants that an interrupted one left behind, still uses {}; the latter ends after \
             its mutant",
            folder.display()
        );
    }
    log.set_len(0).context("replacing the log")?;
    Ok(log)
}

/// Limits the memory, because a mutant may allocate without end.
fn limit_memory() -> Result<()> {
    let limit = Rlimit {
        current: Some(MEMORY),
        maximum: Some(MEMORY),
    };
    setrlimit(Resource::As, limit).context("limiting the memory of mutants")
}

/// The target directory in which this program was built.
fn target() -> Result<PathBuf> {
    let program = std::env::current_exe().context("the path of this program")?;
    let target = program.ancestors().nth(2);
    Ok(target.context("no target directory")?.to_owned())
}
