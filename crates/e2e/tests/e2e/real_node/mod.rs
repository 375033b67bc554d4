//! The real thing, once, from end to end: the image that `cargo ship` pushes is pulled by a real containerd, a real
//! kubelet runs our processes, a placeholder and the pods of Tekton's tasks, and all of it goes again.
//!
//! It needs root, containerd, runc and the usual network plugins. Where one of them is missing, the tests are listed as
//! ignored, and what is missing is said: nothing is then shown, and nothing counts as passed. `--include-ignored` makes
//! that a failure.
//!
//! THE FIRST RUN COMPILES the release binary and the kubelet. `POD_AFFINITY_SHIP_BINARY`, as for the tests of `ship`,
//! spares it the first.

mod images;
mod install;
mod leftovers;
mod runs;
mod volumes;
mod world;

pub(crate) use leftovers::{is_the_process_to_kill, wait_to_be_killed};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Beside each other, each of these tests would find what the other makes.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // A test that failed has cleaned up, or the next one says what it left.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
