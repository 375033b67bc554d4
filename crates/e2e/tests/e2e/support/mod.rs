//! What the tests share. Helpers that more than one file of tests calls belong here, in the file of their topic.

use std::time::Duration;

/// Counts what a test waits for, and the CPU time of its testbeds.
pub(crate) mod account;
/// A CSI attacher that plays the driver of block volumes.
pub(crate) mod attacher;
/// Watches a testbed during a test, and reports each run that shares a node or is split.
pub(crate) mod auditor;
/// The testbeds that tests share or have for themselves.
pub(crate) mod beds;
/// cert-manager's cainjector and controller, played by the test.
pub(crate) mod cert_manager;
/// The objects of a kind as they come and change.
pub(crate) mod changes;
/// PVCs, and runs that mount them.
pub(crate) mod claims;
/// The command line tool, run against a testbed.
pub(crate) mod cli;
/// The configuration of pod-affinity.
pub(crate) mod configuration;
/// Events on a run.
pub(crate) mod events;
/// Runs all tests, in which order, and the report at the end.
pub(crate) mod harness;
/// A release, installed by the commands of the pages.
pub(crate) mod install;
/// kubectl, run against a testbed.
pub(crate) mod kubectl;
/// The levels of tests: `cargo test`, `cargo test-all`, `cargo test-nightly`.
pub(crate) mod level;
/// A steady load on pod admission, and the calls that are lost.
pub(crate) mod load;
/// Markers for tests that assert an absence.
pub(crate) mod marker;
/// Nodes: cordoned, patched.
pub(crate) mod nodes;
/// Objects of other owners: quotas, pods of other applications, Secrets.
pub(crate) mod objects;
/// The blocks of commands in the documentation, and which test executes each.
pub(crate) mod pages;
/// StatefulSets and pods of placeholders.
pub(crate) mod placeholders;
/// Testbeds that are reset between two tests.
pub(crate) mod pool;
/// A CSI provisioner that plays the driver of zonal volumes.
pub(crate) mod provisioner;
/// Runs: created, told to end, waited for.
pub(crate) mod runs;
/// Seeds of random tests that failed.
pub(crate) mod seeds;
/// Builds the release and the program `ship`.
pub(crate) mod ship_program;
/// The CPU time of testbeds, by part and by phase.
pub(crate) mod usage;

/// Longest wait for anything that should take seconds; only a failing test takes this long.
pub(crate) const SOON: Duration = Duration::from_secs(90);
