//! The real thing, once, from end to end: the image that `cargo ship` pushes is pulled by a real containerd, a real
//! kubelet runs our processes, a placeholder and the pods of Tekton's tasks, and all of it goes again.
//!
//! It needs root, containerd, runc and the usual network plugins. Where one of them is missing, the tests are listed as
//! ignored, and what is missing is said: nothing is then shown, and nothing counts as passed. `--include-ignored` makes
//! that a failure.
//!
//! THE FIRST RUN COMPILES the release binary and the kubelet. `POD_AFFINITY_SHIP_BINARY`, as for the tests of `ship`,
//! spares it the first.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "all of this is tests"
)]

mod images;
mod install;
mod leftovers;
#[path = "../ship/program.rs"]
mod program;
mod runs;
mod world;

use libtest_mimic::{Arguments, Failed, Trial};
use std::process::ExitCode;

const TESTS: [(&str, fn()); 2] = [
    (
        "a_labelled_run_goes_from_pending_to_succeeded_in_containers",
        runs::a_labelled_run_goes_from_pending_to_succeeded_in_containers,
    ),
    (
        "a_killed_testbed_leaves_nothing_of_its_node",
        leftovers::a_killed_testbed_leaves_nothing_of_its_node,
    ),
];

fn main() -> ExitCode {
    if leftovers::is_the_process_to_kill() {
        return leftovers::wait_to_be_killed();
    }
    // Beside each other, each would find what the other makes.
    let arguments = Arguments {
        test_threads: Some(1),
        ..Arguments::from_args()
    };
    let lacking = testbed::real_node::lacking();
    if let Some(what) = lacking.as_ref().filter(|_| !arguments.list) {
        eprintln!("\nno real node here, so nothing is tested with one: {what}");
    }
    let trials = TESTS.map(|(name, test)| {
        let lacking = lacking.clone();
        let ignored = lacking.is_some();
        Trial::test(name, move || run(test, lacking)).with_ignored_flag(ignored)
    });
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}

fn run(test: fn(), lacking: Option<String>) -> Result<(), Failed> {
    if let Some(what) = lacking {
        return Err(what.into());
    }
    test();
    Ok(())
}
