//! Helpers of several files of tests, in one file per topic.

use std::time::Duration;

/// Tekton's assistants and their nodes.
pub(crate) mod assistants;
/// Watches a testbed during a test, and reports each run that shares a node or is split.
pub(crate) mod auditor;
/// A testbed with an autoscaler.
pub(crate) mod autoscalers;
/// Acts as cert-manager's controller and cainjector.
pub(crate) mod cert_manager;
/// The command line tool, run against a testbed.
pub(crate) mod cli;
/// Waits until the controller leads, has read a configuration, or has handled a run.
pub(crate) mod controller;
/// Custom tasks, which a test ends.
pub(crate) mod custom_runs;
/// Events on a run.
pub(crate) mod events;
/// A CSI driver that attaches block volumes and creates zonal volumes.
pub(crate) mod fake_csi;
/// Runs that a fault affects.
pub(crate) mod faulted_runs;
/// Runs all tests in the right order, and prints the report at the end.
pub(crate) mod harness;
/// helm, with the chart of a release.
pub(crate) mod helm;
/// A release, installed by the commands of the pages.
pub(crate) mod install;
/// kubectl, run against a testbed.
pub(crate) mod kubectl;
/// The levels of tests: `cargo test`, `cargo test-all`, `cargo test-nightly`.
pub(crate) mod level;
/// A steady load on pod admission, and the calls that were lost.
pub(crate) mod load;
/// Objects that tests create, change and watch: quotas, pods of other applications, Secrets, nodes.
pub(crate) mod objects;
/// The blocks of commands in the documentation, and the tests that execute them.
pub(crate) mod pages;
/// StatefulSets and pods of placeholders.
pub(crate) mod placeholders;
/// Testbeds that are reset between two tests.
pub(crate) mod pool;
/// PVCs, and runs that mount them.
pub(crate) mod pvcs;
/// Random values, and the seeds of random tests that failed.
pub(crate) mod random;
/// Creates runs, lets them end, and waits for their states.
pub(crate) mod runs;
/// Builds the release and the program `ship`.
pub(crate) mod ship_program;
/// Testbeds that several tests share, or that one test uses alone.
pub(crate) mod testbeds;
/// The waits of a test, and the CPU time of testbeds.
pub(crate) mod usage;

/// Timeout of waits that take seconds in a passing test. Only a failing test waits this long.
pub(crate) const SOON: Duration = Duration::from_secs(90);
