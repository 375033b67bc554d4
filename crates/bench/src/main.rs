//! `cargo bench-all`: measures pod-affinity and its alternatives side by side on the testbed, and writes docs/benchmarks.
//!
//! A slow result is not an error. A broken measurement is one.

mod admission;
mod batch;
mod chart;
mod cluster;
mod contention;
mod controller;
mod costs;
mod files;
mod growth;
mod machine;
mod math;
mod math_pipeline;
mod outcome;
mod page;
mod part;
mod parts;
mod pod_creation;
mod results;
mod runs;
mod scenario;
mod scheduling;
mod stats;
mod stored;
mod template;
mod variants;
mod warm;
mod watch;

use anyhow::{Context, Result, bail};
use clap::{Parser, builder::PossibleValuesParser};
use e2e::{cargo, workspace};
use machine::{RESULTS, Session};
use part::{BenchPart, Effort};
use parts::PARTS;
use results::Results;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::ScopedJoinHandle;
use std::time::Instant;
use tokio::runtime::Runtime;

/// Compares pod-affinity with its alternatives, on the real control plane of the testbed.
#[derive(Debug, Parser)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[command(name = "cargo bench-all", bin_name = "cargo bench-all")]
struct Cli {
    /// Check in a few minutes that the measurements work. The figures mean little.
    #[arg(long)]
    quick: bool,
    /// Measure only these parts, separated by commas.
    #[arg(long, value_name = "PART", value_delimiter = ',', value_parser = PossibleValuesParser::new(PARTS.map(|part| part.name)))]
    only: Vec<String>,
    /// Leave out parts that have results of this commit.
    #[arg(long, conflicts_with = "quick")]
    resume: bool,
    /// Add the rounds to the existing rounds of the same scenarios, and keep the other scenarios.
    #[arg(long, conflicts_with = "resume")]
    add: bool,
    /// Measure nothing: write the page and the charts from the JSON file.
    #[arg(long, conflicts_with_all = ["quick", "only", "resume", "add"])]
    render: bool,
    /// How often each variant is measured.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Leave out measurements with more runs at once.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    at_most: Option<u32>,
    /// Folder for the JSON file, the page and the charts [default: docs/benchmarks; quick: target/benchmarks].
    #[arg(long, value_name = "RESULTS")]
    out: Option<PathBuf>,
    /// Binary of pod-affinity to measure. By default it is built: optimised, except with --quick.
    #[arg(long, env = "POD_AFFINITY_BINARY", value_name = "FILE")]
    binary: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-all: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    if cli.render {
        return files::write(&cli.folder(), &Results::read(&cli.folder())?);
    }
    let installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
    if installed.is_err() {
        bail!("another TLS provider is installed already");
    }
    let start = Instant::now();
    let measurement = Measurement::prepare(cli)?;
    let broken = measurement.measure_all(&cli.parts(&measurement)?);
    let page = measurement.folder.join("README.md");
    eprintln!("== done in {:.0?}: see {}", start.elapsed(), page.display());
    if !broken.is_empty() {
        bail!("broken: {}", broken.join(", "));
    }
    Ok(())
}

/// What all parts share.
struct Measurement {
    add: bool,
    effort: Effort,
    folder: PathBuf,
    session: Session,
    runtime: Runtime,
}

impl Measurement {
    fn prepare(cli: &Cli) -> Result<Self> {
        Ok(Self {
            add: cli.add,
            folder: cli.folder(),
            session: Session::start(cli.quick)?,
            effort: Effort {
                quick: cli.quick,
                rounds: cli.rounds.unwrap_or(if cli.quick { 1 } else { 5 }),
                at_most: cli.at_most,
                binary: cli.binary()?,
            },
            runtime: Runtime::new()?,
        })
    }

    /// Returns the parts whose measurement is broken. The parts after a broken part are measured nevertheless: all parts take hours.
    fn measure_all(&self, parts: &[BenchPart]) -> Vec<&'static str> {
        let next = AtomicUsize::new(0);
        let take_parts = || -> Vec<_> {
            let parts = std::iter::from_fn(|| parts.get(next.fetch_add(1, Relaxed)));
            parts
                .filter(|part| !self.succeeds(part))
                .map(|part| part.name)
                .collect()
        };
        // A part that is measured needs the whole machine. With --quick, two parts can share it.
        let concurrent = self.effort.pick(1, 2);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..concurrent).map(|_| scope.spawn(take_parts)).collect();
            let broken = threads.into_iter().map(ScopedJoinHandle::join);
            broken
                .flat_map(|broken| broken.unwrap_or_else(|_| vec!["a panic: see above"]))
                .collect()
        })
    }

    fn succeeds(&self, part: &BenchPart) -> bool {
        let start = Instant::now();
        eprintln!("== {}", part.name);
        let measured = self.measure(part);
        match &measured {
            Ok(()) => eprintln!("== {}: done in {:.0?}", part.name, start.elapsed()),
            Err(error) => eprintln!("== {}: broken: {error:#}", part.name),
        }
        measured.is_ok()
    }

    fn measure(&self, part: &BenchPart) -> Result<()> {
        let scenarios = (part.measure)(&self.runtime, &self.effort)?;
        let session = self.session.clone();
        let page = files::record(&self.folder, part, session, scenarios, self.add)?;
        println!("{page}");
        Ok(())
    }
}

impl Cli {
    fn folder(&self) -> PathBuf {
        let usual = if self.quick { "target/benchmarks" } else { RESULTS };
        self.out.clone().unwrap_or_else(|| workspace().join(usual))
    }

    fn parts(&self, measurement: &Measurement) -> Result<Vec<BenchPart>> {
        let results = Results::read(&measurement.folder)?;
        let mut parts = Vec::from(PARTS);
        parts.retain(|part| {
            let is_named = self.only.iter().any(|name| name == part.name);
            let is_wanted = is_named || (self.only.is_empty() && (part.in_quick || !self.quick));
            is_wanted && !(self.resume && results.has(part, &measurement.session))
        });
        Ok(parts)
    }

    fn binary(&self) -> Result<PathBuf> {
        match &self.binary {
            Some(binary) => binary
                .canonicalize()
                .with_context(|| format!("{} does not exist", binary.display())),
            None => build(self.quick),
        }
    }
}

fn build(quick: bool) -> Result<PathBuf> {
    let (args, folder) = if quick {
        (&[][..], "debug")
    } else {
        (&["--release"][..], "release")
    };
    let built = cargo()
        .args(["build", "--quiet", "--locked", "--bin=pod-affinity"])
        .args(args)
        .status()
        .context("starting cargo")?;
    if !built.success() {
        bail!("pod-affinity was not built: see above");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| workspace().join("target"), PathBuf::from);
    Ok(target.join(folder).join("pod-affinity").canonicalize()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent_and_knows_the_parts() {
        Cli::command().debug_assert();
        let cli = Cli::try_parse_from(["x", "--quick", "--only", "costs,api"]).unwrap();
        assert_eq!(cli.only, ["costs", "api"]);
        assert!(Cli::try_parse_from(["x", "--only", "all"]).is_err());
        assert!(Cli::try_parse_from(["x", "--rounds", "0"]).is_err());
    }
}
