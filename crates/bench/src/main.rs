//! `cargo bench-all`: measures pod-affinity beside its alternatives on the testbed, and writes down what came.
//!
//! A time never fails; a measurement that is broken does.

mod aim;
mod asked;
mod autoscaler;
mod cluster;
mod contention;
mod controller;
mod costs;
mod exposition;
mod growth;
mod load;
mod machine;
mod plot;
mod process;
mod profile;
mod pure;
mod report;
mod runs;
mod scenario;
mod scene;
mod scheduling;
mod shapes;
mod sizes;
mod stats;
mod through_api;
mod turn;
mod watch;
mod ways;
mod webhook;

use anyhow::{Context, Result, bail};
use clap::{Parser, builder::PossibleValuesParser};
use machine::{Machine, workspace};
use report::{Before, Report, Sitting};
use scenario::Scenario;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::ScopedJoinHandle;
use std::time::Instant;
use tokio::runtime::Runtime;

/// Compares pod-affinity with its alternatives, on the real control plane of the testbed.
#[derive(Debug, Parser)]
#[command(name = "cargo bench-all", bin_name = "cargo bench-all")]
struct Cli {
    /// Check in a few minutes that the measurements work. The figures mean little.
    #[arg(long)]
    quick: bool,
    /// Only these parts, separated by commas.
    #[arg(long, value_name = "PART", value_delimiter = ',', value_parser = PossibleValuesParser::new(PARTS.map(|part| part.name)))]
    only: Vec<String>,
    /// Leave out parts that have figures of this commit.
    #[arg(long, conflicts_with = "quick")]
    resume: bool,
    /// Add the rounds to those of any commit, or replace those with other variants. What is left out keeps its figures.
    #[arg(long, conflicts_with = "resume")]
    add: bool,
    /// How often each variant is measured.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Leave out measurements of more runs at once than this.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    at_most: Option<u32>,
    /// Folder for tables, JSON and plots [default: docs/benchmarks; quick: target/benchmarks].
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Binary of pod-affinity to measure. Without it, the binary is built: optimised, except with --quick.
    #[arg(long, env = "POD_AFFINITY_BINARY", value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// How much to measure, and what.
#[derive(Debug)]
struct Effort {
    quick: bool,
    rounds: u32,
    at_most: Option<u32>,
    binary: PathBuf,
}

/// A part of the measurements.
#[derive(Clone, Copy)]
struct Part {
    name: &'static str,
    /// Whether a debug build can say anything at all.
    in_quick: bool,
    measure: fn(&Runtime, &Effort) -> Result<Vec<Scenario>>,
    report: fn(&Effort, Vec<Scenario>) -> Report,
}

/// In the order in which they are measured: the short ones first.
const PARTS: [Part; 12] = [
    Part {
        name: "pure",
        in_quick: false,
        measure: |_, effort| pure::measure(effort),
        report: |_, scenarios| pure::report(scenarios),
    },
    Part {
        name: "webhook",
        in_quick: true,
        measure: |_, effort| webhook::measure(effort),
        report: |_, scenarios| webhook::report(scenarios),
    },
    Part {
        name: "api",
        in_quick: true,
        measure: |runtime, effort| runtime.block_on(through_api::measure(effort)),
        report: |_, scenarios| through_api::report(scenarios),
    },
    Part {
        name: "autoscaler",
        in_quick: true,
        measure: |runtime, effort| runtime.block_on(autoscaler::measure(effort)),
        report: autoscaler::report,
    },
    Part {
        name: "controller",
        in_quick: true,
        measure: |runtime, effort| runtime.block_on(controller::measure(effort)),
        report: |_, scenarios| controller::report(scenarios),
    },
    Part {
        name: "growth",
        in_quick: true,
        measure: |runtime, effort| runtime.block_on(growth::measure(effort)),
        report: |_, scenarios| growth::report(scenarios),
    },
    Part {
        name: "costs",
        in_quick: true,
        measure: |runtime, effort| runtime.block_on(costs::measure(effort)),
        report: |_, scenarios| costs::report(scenarios),
    },
    Part {
        name: "runs-few",
        in_quick: false,
        measure: |runtime, effort| runtime.block_on(runs::few(effort)),
        report: |_, scenarios| runs::report("runs-few", "Few runs, client limits raised", scenarios),
    },
    Part {
        name: "scheduling",
        in_quick: true,
        measure: |runtime, effort| runtime.block_on(scheduling::measure(effort)),
        report: scheduling::report,
    },
    Part {
        name: "runs",
        in_quick: true,
        measure: |runtime, effort| runtime.block_on(runs::with_raised_limits(effort)),
        report: |_, scenarios| runs::report("runs", "Whole runs, client limits raised", scenarios),
    },
    Part {
        name: "contention",
        in_quick: true,
        measure: |runtime, effort| runtime.block_on(contention::measure(effort)),
        report: |_, scenarios| contention::report(scenarios),
    },
    Part {
        name: "runs-as-shipped",
        in_quick: false,
        measure: |runtime, effort| runtime.block_on(runs::as_shipped(effort)),
        report: |_, scenarios| {
            runs::report(
                "runs-as-shipped",
                "Whole runs, client limits as shipped",
                scenarios,
            )
        },
    },
];

impl Effort {
    /// A full measurement's figure, or the quick one's.
    fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// The sizes of a part that are to be measured, by their runs at once.
    fn those_wanted<Size: Copy>(&self, sizes: &[Size], runs: fn(&Size) -> usize) -> Result<Vec<Size>> {
        let is_wanted = |size: &Size| {
            self.at_most
                .is_none_or(|most| u32::try_from(runs(size)).is_ok_and(|runs| runs <= most))
        };
        let wanted: Vec<_> = sizes.iter().copied().filter(is_wanted).collect();
        if wanted.is_empty() {
            bail!("nothing is left to measure: --at-most is below the fewest runs at once of this part");
        }
        Ok(wanted)
    }

    fn options(&self) -> testbed::Options {
        testbed::Options {
            binary: Some(self.binary.clone()),
            admission: Some(testbed::Admission::Webhook),
            ..testbed::Options::default()
        }
    }
}

fn main() -> ExitCode {
    match measure(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-all: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure(cli: &Cli) -> Result<()> {
    if rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .is_err()
    {
        bail!("another TLS provider is installed already");
    }
    let begun = Instant::now();
    let measurement = Measurement::prepare(cli)?;
    let Measurement { folder, machine, .. } = &measurement;
    let parts = cli.parts(folder, machine)?;
    let next = AtomicUsize::new(0);
    let take_parts = || -> Vec<&str> {
        let parts = std::iter::from_fn(|| parts.get(next.fetch_add(1, Relaxed)));
        let broken = parts.filter(|part| !measurement.is_taken(part));
        broken.map(|part| part.name).collect()
    };
    // What is measured has the machine to itself, but to see whether a part works, two can share it.
    let at_a_time = measurement.effort.pick(1, 2);
    let broken: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..at_a_time).map(|_| scope.spawn(take_parts)).collect();
        let ended = threads.into_iter().map(ScopedJoinHandle::join);
        ended
            .flat_map(|broken| broken.unwrap_or_else(|_| vec!["a panic: see above"]))
            .collect()
    });
    let overview = folder.join("README.md");
    eprintln!(
        "== all ended after {:.0?}: see {}",
        begun.elapsed(),
        overview.display()
    );
    if broken.is_empty() {
        Ok(())
    } else {
        bail!("broken: {}", broken.join(", "))
    }
}

/// What each part is taken with.
struct Measurement<'a> {
    cli: &'a Cli,
    effort: Effort,
    folder: PathBuf,
    machine: Machine,
    runtime: Runtime,
}

impl<'a> Measurement<'a> {
    fn prepare(cli: &'a Cli) -> Result<Self> {
        Ok(Self {
            cli,
            folder: cli.folder(),
            machine: Machine::look()?,
            effort: Effort {
                quick: cli.quick,
                rounds: cli.rounds.unwrap_or(if cli.quick { 1 } else { 5 }),
                at_most: cli.at_most,
                binary: cli.binary()?,
            },
            runtime: Runtime::new()?,
        })
    }

    /// Takes one part, and tells whether that went well: those after it may take the night, and need not wait for a repair.
    fn is_taken(&self, part: &Part) -> bool {
        let started = Instant::now();
        eprintln!("== {}", part.name);
        let taken = self.take(part);
        match &taken {
            Ok(()) => eprintln!("== {}: done in {:.0?}", part.name, started.elapsed()),
            Err(error) => eprintln!("== {}: broken: {error:#}", part.name),
        }
        taken.is_ok()
    }

    fn take(&self, part: &Part) -> Result<()> {
        let before = if self.cli.add {
            Before::read(&self.folder, part.name)?
        } else {
            Before::default()
        };
        let measured = (part.measure)(&self.runtime, &self.effort)?;
        let (scenarios, earlier) = before.and(measured);
        let report = (part.report)(&self.effort, scenarios);
        let sitting = Sitting::now(&self.machine)?;
        report.write(&self.folder, sitting, earlier, self.effort.quick)?;
        println!("{}", report.figures());
        Ok(())
    }
}

impl Cli {
    fn folder(&self) -> PathBuf {
        let usual = if self.quick {
            "target/benchmarks"
        } else {
            "docs/benchmarks"
        };
        self.out.clone().unwrap_or_else(|| workspace().join(usual))
    }

    fn parts(&self, folder: &Path, machine: &Machine) -> Result<Vec<Part>> {
        let mut parts = Vec::new();
        for part in PARTS {
            let asked_for = self.only.iter().any(|name| name == part.name);
            if !(asked_for || self.only.is_empty()) {
                continue;
            }
            if self.quick && !part.in_quick && !asked_for {
                eprintln!(
                    "== {}: left out of the quick version; ask for it with --only",
                    part.name
                );
            } else if self.resume && is_done(folder, part.name, machine)? {
                eprintln!("== {}: there already", part.name);
            } else {
                parts.push(part);
            }
        }
        Ok(parts)
    }

    fn binary(&self) -> Result<PathBuf> {
        match &self.binary {
            Some(given) => given
                .canonicalize()
                .with_context(|| format!("{} is not there", given.display())),
            None => build(self.quick),
        }
    }
}

fn is_done(folder: &Path, part: &str, machine: &Machine) -> Result<bool> {
    let taken = report::taken(folder, part)?;
    Ok(taken.is_some_and(|taken| taken["machine"]["commit"] == machine.commit.as_str()))
}

fn build(quick: bool) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let (args, folder) = if quick {
        (&[][..], "debug")
    } else {
        (&["--release"][..], "release")
    };
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--locked", "--bin=pod-affinity"])
        .args(args)
        .current_dir(workspace())
        .status()
        .context("starting cargo")?;
    if !built.success() {
        bail!("pod-affinity could not be built: see above");
    }
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from);
    Ok(target.join(folder).join("pod-affinity").canonicalize()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound_and_names_its_parts() {
        Cli::command().debug_assert();
        let cli = Cli::try_parse_from(["x", "--quick", "--only", "webhook,api"]).unwrap();
        assert_eq!(cli.only, ["webhook", "api"]);
        assert!(Cli::try_parse_from(["x", "--only", "all"]).is_err());
        assert!(Cli::try_parse_from(["x", "--rounds", "0"]).is_err());
    }

    #[test]
    fn a_part_is_left_out_only_if_its_figures_are_of_this_commit() {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine::look().unwrap();
        let cli = Cli::try_parse_from(["x", "--resume", "--only", "webhook"]).unwrap();
        let found = |commit: &str| {
            let text = serde_json::json!({"machine": {"commit": commit}}).to_string();
            std::fs::write(folder.path().join("webhook.json"), text).unwrap();
            cli.parts(folder.path(), &machine).unwrap().len()
        };
        assert_eq!((found("another"), found(&machine.commit)), (1, 0));
    }
}
