//! End-to-end test on a real node: a real containerd pulls the image that `cargo ship` pushed, a real kubelet runs the
//! processes, a placeholder and the pods of Tekton's tasks, and all of them are removed.
//!
//! The tests need root, containerd, runc and the usual network plugins. If one of them is missing, the tests are ignored
//! with the reason. With `--include-ignored`, this is a failure.
//!
//! The first run compiles the release binary and the kubelet. `POD_AFFINITY_SHIP_BINARY`, as for the tests of `ship`,
//! replaces the build of the release binary.

mod images;
mod install;
mod leftovers;
mod pulls;
mod runs;
mod setup;
mod volumes;

pub(crate) use leftovers::{is_the_process_to_kill, wait_to_be_killed};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Only one of these tests runs at a time: each would find the objects of the others on the machine.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // A failed test has cleaned up, or the next test reports the leftovers.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
