//! Testbeds that one test has after another: each gets it as new, but a reset takes one second and a start ten.

use std::ops::Deref;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use testbed::product::Installed;
use testbed::{Baseline, Options, Testbed, wait};
use tokio::sync::Semaphore;

/// Starts at a time: each keeps a core busy.
static STARTS: Semaphore = Semaphore::const_new(2);
static IDLE: Mutex<Vec<Bed>> = Mutex::new(Vec::new());

/// A testbed with pod-affinity and without nodes, as it was when it was new.
struct Bed {
    testbed: Testbed,
    installed: Installed,
    new: Baseline,
}

impl Bed {
    async fn start() -> Self {
        let testbed = start(Options::default()).await;
        let installed = testbed.install_pod_affinity().await.expect("pod-affinity");
        let new = testbed.baseline().await.expect("a baseline");
        Self {
            testbed,
            installed,
            new,
        }
    }

    async fn reset(mut self) -> Option<Self> {
        match self.testbed.reset(&mut self.new).await {
            Ok(()) => Some(self),
            Err(error) => {
                eprintln!("a testbed is replaced, because it could not be reset: {error}");
                None
            }
        }
    }
}

/// A testbed that goes back to the others when the test has ended.
pub(crate) struct Lent(Option<Bed>);

impl Lent {
    pub(crate) fn installed(&self) -> &Installed {
        &self.bed().installed
    }

    fn bed(&self) -> &Bed {
        self.0.as_ref().expect("it is there until the drop")
    }
}

impl Deref for Lent {
    type Target = Testbed;

    fn deref(&self) -> &Testbed {
        &self.bed().testbed
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let bed = self.0.take().filter(|_| !std::thread::panicking());
        // A testbed whose processes are others now ends here.
        if let Some(bed) = bed.filter(|bed| bed.testbed.has_the_processes_of(&bed.new)) {
            idle().push(bed);
        }
    }
}

// A panic elsewhere leaves the list whole: each change to it is one push or one pop.
fn idle() -> std::sync::MutexGuard<'static, Vec<Bed>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One that was used before, or a new one.
pub(crate) async fn take() -> Lent {
    let begun = Instant::now();
    let bed = match used().await {
        Some(bed) => bed,
        None => Bed::start().await,
    };
    wait::waited("a testbed", begun.elapsed());
    Lent(Some(bed))
}

async fn used() -> Option<Bed> {
    loop {
        let used = idle().pop()?;
        if let Some(reset) = used.reset().await {
            return Some(reset);
        }
    }
}

/// A testbed of its own for a test that needs other options.
pub(crate) async fn start(options: Options) -> Testbed {
    let _turn = STARTS.acquire().await.expect("nobody closes it");
    Testbed::start(options).await.expect("a testbed")
}
