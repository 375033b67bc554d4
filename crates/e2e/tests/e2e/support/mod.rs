//! Helpers of several files of tests, in one file per topic.

use std::time::Duration;

/// Counts the waits of a test, and the CPU time of its testbeds.
pub(crate) mod account;
/// A CSI attacher that acts as the driver of block volumes.
pub(crate) mod attacher;
/// Watches a testbed during a test, and reports each run that shares a node or is split.
pub(crate) mod auditor;
/// Testbeds that several tests share, or that one test uses alone.
pub(crate) mod beds;
/// Acts as cert-manager's controller and cainjector.
pub(crate) mod cert_manager;
/// Streams the objects of a kind.
pub(crate) mod changes;
/// PVCs, and runs that mount them.
pub(crate) mod claims;
/// The command line tool, run against a testbed.
pub(crate) mod cli;
/// The configuration of pod-affinity.
pub(crate) mod configuration;
/// Events on a run.
pub(crate) mod events;
/// Runs all tests in the right order, and prints the report at the end.
pub(crate) mod harness;
/// A release, installed by the commands of the pages.
pub(crate) mod install;
/// kubectl, run against a testbed.
pub(crate) mod kubectl;
/// The levels of tests: `cargo test`, `cargo test-all`, `cargo test-nightly`.
pub(crate) mod level;
/// A steady load on pod admission, and the calls that were lost.
pub(crate) mod load;
/// Markers for tests that assert an absence.
pub(crate) mod marker;
/// Patches and cordons nodes.
pub(crate) mod nodes;
/// Objects of other owners: quotas, pods of other applications, Secrets.
pub(crate) mod objects;
/// The blocks of commands in the documentation, and the tests that execute them.
pub(crate) mod pages;
/// StatefulSets and pods of placeholders.
pub(crate) mod placeholders;
/// Testbeds that are reset between two tests.
pub(crate) mod pool;
/// A CSI provisioner that acts as the driver of zonal volumes.
pub(crate) mod provisioner;
/// Creates runs, lets them end, and waits for their states.
pub(crate) mod runs;
/// Seeds of random tests that failed.
pub(crate) mod seeds;
/// Builds the release and the program `ship`.
pub(crate) mod ship_program;
/// The CPU time of testbeds, by part and by phase.
pub(crate) mod usage;

/// Timeout of waits that take seconds in a passing test. Only a failing test waits this long.
pub(crate) const SOON: Duration = Duration::from_secs(90);
