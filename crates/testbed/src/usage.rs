//! The CPU time and the memory of a process, as the kernel reports them.

use crate::error::{Error, Result};
use rustix::param::clock_ticks_per_second;
use std::fs;
use std::io;
use std::time::Duration;

/// CPU time of all threads since the start of the process.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let ticks = read(&path, ticks).map_err(Error::io("reading", &path))?;
    Ok(Duration::from_millis(ticks * 1000 / clock_ticks_per_second()))
}

/// Bytes of physical memory.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// What the process uses now.
    pub resident: u64,
    /// The most that the process ever used.
    pub peak: u64,
}

/// The memory of a process.
pub fn memory(pid: u32) -> Result<Memory> {
    let path = format!("/proc/{pid}/status");
    let memory = read(&path, |status| {
        Some(Memory {
            resident: bytes(status, "VmRSS:")?,
            peak: bytes(status, "VmHWM:")?,
        })
    });
    memory.map_err(Error::io("reading", &path))
}

/// Bytes of memory that programs can use without swapping.
pub fn available_memory() -> Result<u64> {
    let path = "/proc/meminfo";
    read(path, |memory| bytes(memory, "MemAvailable:")).map_err(Error::io("reading", path))
}

fn read<T>(path: &str, parse: impl Fn(&str) -> Option<T>) -> io::Result<T> {
    let unexpected = || io::Error::new(io::ErrorKind::InvalidData, "it is not as proc(5) says");
    parse(&fs::read_to_string(path)?).ok_or_else(unexpected)
}

fn bytes(status: &str, key: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(key))?;
    let kibibytes: u64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// User and system time are the 12th and 13th fields after the name, which is in brackets and may contain any character.
fn ticks(stat: &str) -> Option<u64> {
    let (_, after) = stat.rsplit_once(')')?;
    let mut words = after.split_whitespace().skip(11);
    let mut next = || words.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_may_contain_brackets_and_blanks() {
        let stat = "7 (a) b) S 1 1 1 0 -1 0 0 0 0 0 150 50 0 0 20 0 1";
        assert_eq!(ticks(stat), Some(200));
    }

    #[test]
    fn the_peak_of_the_memory_is_not_below_what_is_resident() {
        let status = "VmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(
            (bytes(status, "VmRSS:"), bytes(status, "VmHWM:")),
            (Some(1 << 20), Some(2 << 20))
        );
        let memory = memory(std::process::id()).unwrap();
        assert!(
            memory.resident > 500_000 && memory.peak >= memory.resident * 9 / 10,
            "{memory:?}"
        );
    }

    #[test]
    fn a_process_that_is_gone_has_computed_nothing_that_can_be_read() {
        let mut gone = std::process::Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        let error = cpu_time(gone.id()).unwrap_err().to_string();
        assert!(error.contains(&format!("/proc/{}/stat", gone.id())), "{error}");
        assert!(cpu_time(std::process::id()).is_ok());
    }
}
