//! What a process uses, by the kernel's account of it.

use anyhow::{Context, Result};
use std::fs;
use testbed::usage;

/// CPU seconds since the start of the process, all its threads.
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64> {
    Ok(usage::cpu_time(pid)?.as_secs_f64())
}

/// Megabytes resident now.
pub(crate) fn resident(pid: u32) -> Result<f64> {
    status(pid, "VmRSS:")
}

/// Most megabytes that were ever resident.
pub(crate) fn most_resident(pid: u32) -> Result<f64> {
    status(pid, "VmHWM:")
}

fn status(pid: u32, key: &str) -> Result<f64> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    Ok(kibibytes.with_context(|| format!("{path} has no {key}"))? * 1024.0 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_something() {
        let pid = std::process::id();
        assert!(cpu_seconds(pid).unwrap() >= 0.0);
        assert!(resident(pid).unwrap() > 0.5);
        assert!(most_resident(pid).unwrap() >= resident(pid).unwrap() * 0.9);
    }
}
