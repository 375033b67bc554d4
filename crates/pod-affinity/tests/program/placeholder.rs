//! A placeholder runs until a signal, and then ends at once, also as process 1 of a container.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::{Child, Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(20);
const SIGNALS: [Signal; 2] = [Signal::TERM, Signal::INT];

fn start() -> Child {
    // The command needs no environment.
    Command::new(env!("CARGO_BIN_EXE_pod-affinity"))
        .arg("placeholder")
        .env_clear()
        .spawn()
        .unwrap()
}

/// Waits until `look` finds a value. At the deadline, stops the placeholder and fails the test.
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

/// Waits until the placeholder blocks both signals: from then on, no signal is lost or ends the process without the placeholder.
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
fn a_placeholder_ends_with_success_on_an_early_sigterm_or_sigint() {
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
fn a_placeholder_needs_less_than_4_mib() {
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
    // Most of this memory is relocated by the loader.
    assert!(kibibytes < 4096, "{kibibytes} kB of its own");
}
