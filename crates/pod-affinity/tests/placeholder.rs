//! A placeholder holds its place until it is told to go, and goes at once, as process 1 of a container would.

#![expect(clippy::unwrap_used, reason = "helpers of a test")]

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::{Child, Command};
use std::thread::yield_now;

fn start() -> Child {
    // No network, no configuration, no home: nothing but the command.
    Command::new(env!("CARGO_BIN_EXE_pod-affinity"))
        .arg("placeholder")
        .env_clear()
        .spawn()
        .unwrap()
}

/// Once a handler for SIGTERM is there, so that the signal does not end the process by itself.
fn wait_until_it_listens(child: &Child) {
    let listens = |status: &str| {
        let caught = status
            .lines()
            .find_map(|line| line.strip_prefix("SigCgt:"))
            .unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << (Signal::TERM.as_raw() - 1)) != 0
    };
    while !fs::read_to_string(format!("/proc/{}/status", child.id())).is_ok_and(|status| listens(&status)) {
        yield_now();
    }
}

#[test]
fn it_ends_in_order_on_either_signal() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut child = start();
        wait_until_it_listens(&child);
        assert!(child.try_wait().unwrap().is_none());
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn it_stays_small() {
    let mut child = start();
    wait_until_it_listens(&child);
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
