//! Where and of what a measurement was taken.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::available_parallelism;
use testbed::{Versions, releases};

/// The facts without which figures say nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    cores: usize,
    cpu: String,
    memory: String,
    kernel: String,
    /// Others on the machine while it was measured, at its start.
    load: String,
    pub(crate) commit: String,
    versions: Vec<(String, String)>,
}

impl Machine {
    pub(crate) fn look() -> Result<Self> {
        Ok(Self {
            cores: available_parallelism()?.get(),
            cpu: line("/proc/cpuinfo", "model name")?,
            memory: gibibytes(&line("/proc/meminfo", "MemTotal")?),
            kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            load: read("/proc/loadavg")?
                .split(' ')
                .next()
                .unwrap_or_default()
                .to_owned(),
            commit: commit()?,
            versions: versions()?,
        })
    }

    /// Two sentences.
    pub(crate) fn words(&self) -> String {
        let Self {
            cores,
            cpu,
            memory,
            kernel,
            load,
            commit,
            versions,
        } = self;
        let versions: Vec<_> = versions
            .iter()
            .map(|(name, version)| format!("{name} {version}"))
            .collect();
        format!(
            "{cores} cores ({cpu}), {memory}, Linux {kernel}, load {load} at the start. Commit {commit}; {}.",
            versions.join(", ")
        )
    }
}

fn versions() -> Result<Vec<(String, String)>> {
    let versions = releases(Versions::of_environment()?)?.into_iter();
    Ok(versions
        .map(|(part, version)| (part.to_owned(), version))
        .collect())
}

/// The root of the checkout.
pub(crate) fn workspace() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    crates.and_then(Path::parent).unwrap_or(Path::new(".")).to_owned()
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {path}"))
}

/// What follows the colon in the first line that begins so; "unknown" where the kernel does not say.
fn line(path: &str, start: &str) -> Result<String> {
    let text = read(path)?;
    let line = text.lines().find(|line| line.starts_with(start));
    let value = line
        .and_then(|line| line.split_once(':'))
        .map(|(_, value)| value.trim());
    Ok(value.unwrap_or("unknown").to_owned())
}

fn gibibytes(kibibytes: &str) -> String {
    let number = kibibytes
        .split(' ')
        .next()
        .and_then(|number| number.parse::<u64>().ok());
    number.map_or_else(|| kibibytes.to_owned(), |number| format!("{} GiB", number >> 20))
}

/// Short, and marked when the checkout differs from it.
fn commit() -> Result<String> {
    let described = Command::new("git")
        .args(["describe", "--always", "--dirty", "--abbrev=12"])
        .current_dir(workspace())
        .output()
        .context("asking git for the commit")?;
    Ok(String::from_utf8_lossy(&described.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_tells_what_it_is() {
        let machine = Machine::look().unwrap();
        assert!(
            machine.cores > 0 && machine.memory.ends_with("GiB"),
            "{machine:?}"
        );
        assert!(machine.words().contains("kubernetes v1."), "{machine:?}");
    }
}
