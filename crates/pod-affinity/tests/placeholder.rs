//! A placeholder holds its place until it is told to go, and goes at once, as process 1 of a container would.

#![expect(clippy::unwrap_used, reason = "helpers of a test")]

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::{Child, Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(20);
const SIGNALS: [Signal; 2] = [Signal::TERM, Signal::INT];

fn start() -> Child {
    // No network, no configuration, no home: nothing but the command.
    Command::new(env!("CARGO_BIN_EXE_pod-affinity"))
        .arg("placeholder")
        .env_clear()
        .spawn()
        .unwrap()
}

/// What `look` finds, or the end of the test and of the placeholder.
fn wait<T>(child: &mut Child, what: &str, mut look: impl FnMut(&mut Child) -> Option<T>) -> T {
    let end = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look(child) {
            return found;
        }
        let is_late = Instant::now() >= end;
        if is_late {
            child.kill().unwrap();
        }
        assert!(!is_late, "waited {DEADLINE:?} for a placeholder to {what}");
        sleep(Duration::from_millis(1));
    }
}

/// Until signals are kept for it, and are neither lost nor end the process by themselves.
fn wait_until_it_listens(child: &mut Child) {
    wait(child, "listen for signals", |child| {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"))?;
        let blocked = u64::from_str_radix(blocked.trim(), 16).unwrap();
        SIGNALS
            .iter()
            .all(|signal| blocked & (1 << (signal.as_raw() - 1)) != 0)
            .then_some(())
    });
}

fn wait_until_it_ends(child: &mut Child) -> ExitStatus {
    wait(child, "end", |child| child.try_wait().unwrap())
}

#[test]
fn it_ends_in_order_on_either_signal_however_early_that_comes() {
    for signal in SIGNALS {
        for _ in 0..50 {
            let mut child = start();
            wait_until_it_listens(&mut child);
            assert!(child.try_wait().unwrap().is_none());
            kill_process(Pid::from_child(&child), signal).unwrap();
            assert!(wait_until_it_ends(&mut child).success());
        }
    }
}

#[test]
fn it_stays_small() {
    let mut child = start();
    wait_until_it_listens(&mut child);
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .unwrap();
    let kibibytes: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    // Mostly what the loader has to relocate; nothing was set up.
    assert!(kibibytes < 4096, "{kibibytes} kB of its own");
}
