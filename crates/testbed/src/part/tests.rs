//! Parts that start, die and are ended, with ordinary programs.

use super::*;
use crate::guard::Guard;
use std::sync::atomic::{AtomicBool, Ordering};

fn parts(folder: &Path) -> (Guard, Parts) {
    let guard = Guard::start(folder, true).unwrap();
    let parts = Parts::new(guard.group(), folder.join("logs"), Cores::All).unwrap();
    (guard, parts)
}

fn wait_for_death(parts: &Parts) -> Error {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        if let Err(error) = parts.check() {
            return error;
        }
        assert!(std::time::Instant::now() < deadline, "the part should have ended");
        std::thread::yield_now();
    }
}

#[test]
fn a_part_that_ends_is_reported_with_the_end_of_its_log_and_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let (_guard, parts) = parts(folder.path());
    let script = "echo 'listen tcp 127.0.0.1:1: bind: address already in use' >&2; exit 3";
    parts
        .start(Part::Etcd, Launch::new("sh").arg("-c").arg(script))
        .unwrap();
    let message = wait_for_death(&parts).to_string();
    assert!(
        message.contains("etcd") && message.contains("exit status: 3"),
        "{message}"
    );
    assert!(message.contains("another program took the port"), "{message}");
}

#[test]
fn a_part_that_is_kept_alive_is_started_again_when_it_dies() {
    let folder = tempfile::tempdir().unwrap();
    let (_guard, parts) = parts(folder.path());
    parts.kept_alive().insert(Part::Controller(0), 0);
    parts.start(Part::Controller(0), Launch::new("false")).unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while parts.kept_alive()[&Part::Controller(0)] < 2 {
        parts.check().unwrap();
        assert!(std::time::Instant::now() < deadline, "it should have died twice");
    }
    parts.end(|_| true);
}

#[test]
fn a_controller_that_has_lost_its_lease_is_started_again_and_one_that_fails_otherwise_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let (_guard, parts) = parts(folder.path());
    let started = folder.path().join("started");
    let script = format!(
        "echo >>{0}; [ $(wc -l <{0}) -lt 3 ] && echo 'it {LOST_ITS_LEASE}' || echo broken; exit 1",
        started.display()
    );
    let launch = Launch::new("sh").arg("-c").arg(script);
    parts.start(Part::Controller(0), launch).unwrap();
    let message = wait_for_death(&parts).to_string();
    assert!(message.contains("broken"), "{message}");
    assert_eq!(fs::read_to_string(started).unwrap().lines().count(), 3);
}

#[test]
fn the_log_message_of_a_lost_lease_is_in_the_code_of_the_controller() {
    let said = include_str!("../../../pod-affinity/src/controller.rs");
    assert!(said.contains(LOST_ITS_LEASE));
}

#[test]
fn a_part_that_is_stopped_on_purpose_is_no_error_and_starts_again() {
    let folder = tempfile::tempdir().unwrap();
    let (_guard, parts) = parts(folder.path());
    parts.start(Part::Kwok, Launch::new("sleep").arg("600")).unwrap();
    let first = parts.pid(Part::Kwok);
    parts.stop(Part::Kwok, Signal::KILL).unwrap();
    parts.check().unwrap();
    assert_eq!(parts.pid(Part::Kwok), None);
    parts.again(Part::Kwok, &[]).unwrap();
    assert_ne!(parts.pid(Part::Kwok), first);
    parts.end(|_| true);
}

#[test]
fn a_part_that_is_kept_alive_stays_stopped_although_another_thread_looks_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let (_guard, parts) = parts(folder.path());
    parts.kept_alive().insert(Part::Controller(0), 0);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                parts.check().unwrap();
            }
        });
        for _ in 0..50 {
            parts
                .start(Part::Controller(0), Launch::new("sleep").arg("600"))
                .unwrap();
            parts.stop(Part::Controller(0), Signal::KILL).unwrap();
            assert_eq!(parts.pid(Part::Controller(0)), None);
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(parts.kept_alive()[&Part::Controller(0)], 0);
}

#[test]
fn a_part_that_does_not_run_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (_guard, parts) = parts(folder.path());
    let error = parts.stop(Part::Registry, Signal::KILL).unwrap_err();
    assert!(error.to_string().starts_with("registry does not run"), "{error}");
}

#[test]
fn the_expected_end_of_a_part_is_no_error_until_the_part_is_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let (_guard, parts) = parts(folder.path());
    parts.start(Part::Webhook(0), Launch::new("false")).unwrap();
    parts.expect_end(Part::Webhook(0));
    while parts.pid(Part::Webhook(0)).is_some() {
        parts.check().unwrap();
    }
    parts.again(Part::Webhook(0), &[]).unwrap();
    wait_for_death(&parts);
}

#[test]
fn the_cpu_time_of_an_ended_part_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (_guard, parts) = parts(folder.path());
    let busy = Launch::new("sh").arg("-c").arg("while :; do :; done");
    parts.start(Part::Etcd, busy).unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    let computed = || parts.cpu_times().get(&Part::Etcd).copied().unwrap_or_default();
    while computed().is_zero() {
        assert!(std::time::Instant::now() < deadline, "it computes all the time");
        std::thread::sleep(Duration::from_millis(20));
    }
    let before = computed();
    parts.stop(Part::Etcd, Signal::KILL).unwrap();
    let stopped = computed();
    assert!(stopped >= before, "{stopped:?} after {before:?}");
    parts.end(|_| true);
    assert_eq!(computed(), stopped);
}
