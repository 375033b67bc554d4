//! The time, the machine and the versions of a measurement.

use anyhow::{Context, Result};
use jiff::Timestamp;
use rustix::system;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::thread::available_parallelism;
use testbed::{Versions, releases};

/// The folder of the results in the checkout. Changes there do not make a commit dirty.
pub(crate) const RESULTS: &str = "docs/benchmarks";

/// When and where rounds were measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Session {
    at: String,
    commit: String,
    machine: String,
    versions: String,
    /// Whether `--quick` was set.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    quick: bool,
}

impl Session {
    pub(crate) fn start(quick: bool) -> Result<Self> {
        let versions = releases(Versions::of_environment()?)?.into_iter();
        let versions = versions.map(|(part, version)| format!("{part} {version}"));
        Ok(Self {
            at: Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string(),
            commit: e2e::commit(RESULTS)?,
            machine: machine()?,
            versions: versions.collect::<Vec<_>>().join(", "),
            quick,
        })
    }

    pub(crate) fn has_commit_of(&self, other: &Self) -> bool {
        self.commit == other.commit
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            at,
            commit,
            machine,
            versions,
            quick,
        } = self;
        let quick = if *quick {
            " **with --quick: the figures mean little**"
        } else {
            ""
        };
        write!(f, "{at}{quick}. {machine}. Commit {commit}; {versions}.")
    }
}

/// The load average at the start shows whether the machine had other work.
fn machine() -> Result<String> {
    let (cores, cpu) = (available_parallelism()?, cpu()?);
    let system = system::sysinfo();
    let memory = (system.totalram * u64::from(system.mem_unit)) >> 30;
    let (name, load) = (system::uname(), load(system.loads[0]));
    let kernel = name.release().to_string_lossy();
    Ok(format!(
        "{cores} cores ({cpu}), {memory} GiB, Linux {kernel}, load {load} at the start"
    ))
}

/// The kernel counts 65536ths.
#[allow(clippy::cast_precision_loss, reason = "a load is far below 2^52")]
fn load(load: u64) -> String {
    format!("{:.2}", load as f64 / 65536.0)
}

/// The first processor, as far as the kernel reports it. Processors of several generations may have the same name.
fn cpu() -> Result<String> {
    let text = fs::read_to_string("/proc/cpuinfo").context("reading /proc/cpuinfo")?;
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    let field = |name: &str| {
        let mut named = fields.clone().filter(|(key, _)| key.trim() == name);
        named.next().map(|(_, value)| value.trim())
    };
    let name = field("model name").unwrap_or("unknown");
    Ok(match (field("cpu family"), field("model")) {
        (Some(family), Some(model)) => format!("{name}, family {family}, model {model}"),
        (None, _) | (_, None) => name.to_owned(),
    })
}

/// The CPU time of the machine since its start, in the kernel's ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuTime {
    busy: f64,
    all: f64,
}

impl CpuTime {
    pub(crate) fn read() -> Result<Self> {
        let text = fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
        Self::parse(&text).context("/proc/stat is not as proc(5) says")
    }

    /// The fourth and the fifth number are the idle time and the time in which processes waited for disks.
    fn parse(text: &str) -> Option<Self> {
        let numbers = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        let ticks = numbers.map(str::parse).collect::<Result<Vec<f64>, _>>().ok()?;
        let all = ticks.iter().sum();
        let idle: f64 = ticks.get(3..5)?.iter().sum();
        Some(Self {
            busy: all - idle,
            all,
        })
    }

    pub(crate) fn percent_since(self, before: Self) -> f64 {
        (self.busy - before.busy) / (self.all - before.all) * 100.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_waiting_time_is_not_busy() {
        let time = |text| CpuTime::parse(text).unwrap();
        let (before, after) = (
            time("cpu  10 0 10 70 10 0\ncpu0 1"),
            time("cpu  50 5 25 90 20 10\n"),
        );
        assert!((after.percent_since(before) - 70.0).abs() < 1e-9);
        assert!(CpuTime::parse("cpu  1 2 3 4").is_none());
    }

    #[test]
    fn a_session_names_machine_and_versions() {
        let session = Session::start(true).unwrap();
        let text = session.to_string();
        for part in [" UTC **with --quick", " GiB, Linux ", "kubernetes v1."] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
