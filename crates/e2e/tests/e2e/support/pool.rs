//! Testbeds that tests use one after another. Each test gets a clean testbed: a reset takes one second, a start ten seconds.

use super::usage::{self, Counted, Phase};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use testbed::product::Installed;
use testbed::{Admission, Baseline, Cores, Options, Settings, Testbed};
use tokio::sync::Semaphore;

/// A testbed that no test uses is suspended after this time: an idle testbed consumes as much CPU time in two minutes as a
/// start does.
const AWAKE: Duration = Duration::from_secs(5);
/// Concurrent starts: each start keeps a core busy.
static STARTS: Semaphore = Semaphore::const_new(2);
static STARTED: AtomicUsize = AtomicUsize::new(0);
static USED_AGAIN: AtomicUsize = AtomicUsize::new(0);
static BARE: Idle = Idle(Mutex::new(Vec::new()));
static WITH_WEBHOOK: Idle = Idle(Mutex::new(Vec::new()));
static WITH_POLICIES: Idle = Idle(Mutex::new(Vec::new()));
static SHIPPED: Idle = Idle(Mutex::new(Vec::new()));
static ALL: [&Idle; 4] = [&BARE, &WITH_WEBHOOK, &WITH_POLICIES, &SHIPPED];

/// A testbed with Tekton and without nodes, in its initial state.
struct CleanTestbed {
    testbed: Counted,
    installed: Option<Installed>,
    new: Baseline,
    asleep: bool,
}

impl CleanTestbed {
    async fn bare() -> Self {
        Self::new(start(Options::default()).await, None).await
    }

    async fn installed(admission: Admission, settings: Settings) -> Self {
        let options = Options {
            admission: Some(admission),
            settings,
            ..Options::default()
        };
        let testbed = start_exactly(options).await;
        let installed = testbed.install_pod_affinity().await.expect("pod-affinity");
        Self::new(testbed, Some(installed)).await
    }

    async fn new(mut testbed: Counted, installed: Option<Installed>) -> Self {
        let new = testbed.baseline().await.expect("a baseline");
        testbed.count(Phase::Start);
        Self {
            testbed,
            installed,
            new,
            asleep: false,
        }
    }

    async fn reset(mut self) -> Option<Self> {
        match self.reset_to_initial_state().await {
            Ok(()) => Some(self),
            Err(error) => {
                eprintln!("a testbed is replaced, because it could not be reset: {error}");
                None
            }
        }
    }

    async fn reset_to_initial_state(&mut self) -> testbed::Result<()> {
        self.testbed.count(Phase::Idle);
        if std::mem::take(&mut self.asleep) {
            self.testbed.wake().await?;
        }
        self.testbed.reset(&mut self.new).await?;
        self.testbed.count(Phase::Reset);
        Ok(())
    }

    fn suspend(mut self) -> Option<Self> {
        self.testbed.sleep().ok()?;
        self.asleep = true;
        Some(self)
    }
}

/// Unused testbeds of one kind, each with the time since when it is unused. The most recent one is taken first.
struct Idle(Mutex<Vec<(Instant, CleanTestbed)>>);

impl Idle {
    // A panic in another thread leaves the list consistent: each change of the list is one push or one pop.
    fn beds(&self) -> MutexGuard<'_, Vec<(Instant, CleanTestbed)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Suspends testbeds that were unused for a while. They are removed from the list meanwhile, because a suspension takes
    /// a moment.
    fn suspend_idle(&self) {
        let is_tired = |(since, bed): &mut (Instant, CleanTestbed)| !bed.asleep && since.elapsed() > AWAKE;
        let tired: Vec<_> = self.beds().extract_if(.., is_tired).collect();
        let asleep = tired
            .into_iter()
            .filter_map(|(since, bed)| Some((since, bed.suspend()?)));
        for bed in asleep {
            self.beds().insert(0, bed);
        }
    }

    /// A testbed that was used before, or a new one.
    async fn take(&'static self, new: impl AsyncFnOnce() -> CleanTestbed) -> PooledTestbed {
        let begun = Instant::now();
        let bed = match self.used().await {
            Some(bed) => bed,
            None => new().await,
        };
        usage::waited("a testbed", begun.elapsed());
        PooledTestbed {
            bed: Some(bed),
            broken: AtomicBool::new(false),
            back_to: self,
        }
    }

    fn put(&self, bed: CleanTestbed) {
        for idle in ALL {
            idle.suspend_idle();
        }
        // Last, because background tasks of the test run until this function returns.
        self.beds().push((Instant::now(), bed));
    }

    async fn used(&self) -> Option<CleanTestbed> {
        loop {
            let (_, used) = self.beds().pop()?;
            if let Some(reset) = used.reset().await {
                USED_AGAIN.fetch_add(1, Relaxed);
                return Some(reset);
            }
        }
    }
}

/// A testbed that returns to the pool when the test has ended.
pub(crate) struct PooledTestbed {
    bed: Option<CleanTestbed>,
    /// Whether a test failed with this testbed.
    broken: AtomicBool,
    back_to: &'static Idle,
}

impl PooledTestbed {
    /// The installation of a testbed with pod-affinity.
    pub(crate) fn installed(&self) -> &Installed {
        self.bed().installed.as_ref().expect("pod-affinity")
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Relaxed)
    }

    pub(crate) fn set_broken(&self) {
        self.broken.store(true, Relaxed);
    }

    fn bed(&self) -> &CleanTestbed {
        self.bed.as_ref().expect("the testbed exists until the drop")
    }
}

impl Deref for PooledTestbed {
    type Target = Testbed;

    fn deref(&self) -> &Testbed {
        &self.bed().testbed
    }
}

impl Drop for PooledTestbed {
    fn drop(&mut self) {
        let is_whole = !self.is_broken() && !std::thread::panicking();
        let Some(mut bed) = self.bed.take().filter(|_| is_whole) else {
            return;
        };
        bed.testbed.count(Phase::Test);
        // A testbed with a missing or replaced process ends here.
        if bed.testbed.keeps_only(&bed.new) {
            self.back_to.put(bed);
        }
    }
}

/// A testbed with pod-affinity, installed with the kind of admission that this run of the tests is for.
pub(crate) async fn installed() -> PooledTestbed {
    installed_by(admission()).await
}

fn admission() -> Admission {
    Admission::of_environment().expect("the harness has checked it")
}

/// A testbed with pod-affinity, installed with this kind of admission.
pub(crate) async fn installed_by(admission: Admission) -> PooledTestbed {
    let idle = match admission {
        Admission::Webhook => &WITH_WEBHOOK,
        Admission::Policies => &WITH_POLICIES,
    };
    idle.take(async || CleanTestbed::installed(admission, Settings::Reduced).await)
        .await
}

/// As `installed`, but with a control plane and Tekton in their shipped settings, for a test that compares with Tekton.
pub(crate) async fn shipped() -> PooledTestbed {
    SHIPPED
        .take(async || CleanTestbed::installed(admission(), Settings::Shipped).await)
        .await
}

/// A testbed with Tekton only.
pub(crate) async fn bare() -> PooledTestbed {
    BARE.take(CleanTestbed::bare).await
}

/// A new testbed with reduced settings, for a test that needs other options.
pub(crate) async fn start(options: Options) -> Counted {
    start_exactly(Options {
        settings: Settings::Reduced,
        ..options
    })
    .await
}

/// As `start`, with the settings that the options name.
pub(crate) async fn start_exactly(options: Options) -> Counted {
    let _turn = STARTS.acquire().await.expect("the semaphore is never closed");
    STARTED.fetch_add(1, Relaxed);
    let options = Options {
        cores: Cores::One,
        ..options
    };
    Counted::new(Testbed::start(options).await.expect("a testbed"))
}

/// Ends the testbeds that no test uses.
pub(crate) fn end() {
    for idle in ALL {
        for (_, mut bed) in idle.beds().drain(..) {
            bed.testbed.count(Phase::Idle);
        }
    }
}

/// How many testbeds were started, and how often a testbed was used again.
pub(crate) fn counts() -> (usize, usize) {
    (STARTED.load(Relaxed), USED_AGAIN.load(Relaxed))
}
