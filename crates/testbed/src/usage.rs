//! The CPU time of a process, as the kernel reports it.

use crate::error::{Error, Result};
use rustix::param::clock_ticks_per_second;
use std::fs;
use std::io;
use std::time::Duration;

/// CPU time of all threads since the start of the process.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let unexpected = || io::Error::new(io::ErrorKind::InvalidData, "it is not as proc(5) says");
    let ticks = fs::read_to_string(&path).and_then(|text| ticks(&text).ok_or_else(unexpected));
    let ticks = ticks.map_err(Error::io("reading", &path))?;
    Ok(Duration::from_millis(ticks * 1000 / clock_ticks_per_second()))
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
    fn a_name_with_brackets_and_blanks_does_not_confuse() {
        let stat = "7 (a) b) S 1 1 1 0 -1 0 0 0 0 0 150 50 0 0 20 0 1";
        assert_eq!(ticks(stat), Some(200));
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
