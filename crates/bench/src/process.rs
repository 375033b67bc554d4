//! What a process uses, by the kernel's account of it.

use anyhow::{Context, Result};
use rustix::param::clock_ticks_per_second;
use std::fs;

/// CPU seconds since the start of the process, all its threads.
#[allow(clippy::cast_precision_loss, reason = "ticks, far below 2^52")]
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let ticks = ticks(&text).with_context(|| format!("{path} is not as expected: {text}"))?;
    Ok(ticks as f64 / clock_ticks_per_second() as f64)
}

/// User and system time are the 12th and 13th words after the name, which is in brackets and may hold anything.
fn ticks(stat: &str) -> Option<u64> {
    let (_, after) = stat.rsplit_once(')')?;
    let mut words = after.split_whitespace().skip(11);
    let mut next = || words.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
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
    fn a_name_with_brackets_and_blanks_does_not_confuse() {
        let stat = "7 (a) b) S 1 1 1 0 -1 0 0 0 0 0 150 50 0 0 20 0 1";
        assert_eq!(ticks(stat), Some(200));
    }

    #[test]
    fn this_process_uses_something() {
        let pid = std::process::id();
        assert!(cpu_seconds(pid).unwrap() >= 0.0);
        assert!(resident(pid).unwrap() > 0.5);
        assert!(most_resident(pid).unwrap() >= resident(pid).unwrap() * 0.9);
    }
}
