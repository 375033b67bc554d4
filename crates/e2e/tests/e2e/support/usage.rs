//! The waits of a test and the CPU time of its testbeds; and the CPU time of all testbeds by part and by phase, printed as a table at
//! the end of a run of the tests.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use testbed::{CpuTimes, Part, Testbed, usage};

pub(crate) type Waits = BTreeMap<String, Duration>;

#[derive(Default)]
pub(crate) struct Account {
    pub(crate) waits: Waits,
    /// The wait that used the largest part of its deadline.
    pub(crate) closest: Option<Closest>,
    /// CPU time of testbeds, shared testbeds included.
    pub(crate) cpu_time: Duration,
}

pub(crate) struct Closest {
    pub(crate) what: String,
    pub(crate) time: Duration,
    pub(crate) deadline: Duration,
}

impl Closest {
    pub(crate) fn percent(&self) -> f64 {
        100.0 * self.time.as_secs_f64() / self.deadline.as_secs_f64()
    }
}

thread_local! {
    // A test's own future runs on the thread that blocks on the future. Waits of spawned tasks are not counted.
    static ACCOUNT: RefCell<Account> = RefCell::default();
}

pub(crate) fn waited(what: &str, time: Duration) {
    ACCOUNT.with_borrow_mut(|account| *account.waits.entry(what.to_owned()).or_default() += time);
}

pub(crate) fn waited_at_most(what: &str, time: Duration, deadline: Duration) {
    waited(what, time);
    if deadline.is_zero() {
        return;
    }
    let wait = Closest {
        what: what.to_owned(),
        time,
        deadline,
    };
    ACCOUNT.with_borrow_mut(|account| {
        let waits = account.closest.take().into_iter().chain([wait]);
        account.closest = waits.max_by(|one, other| one.percent().total_cmp(&other.percent()));
    });
}

pub(crate) fn computed(cpu_time: Duration) {
    ACCOUNT.with_borrow_mut(|account| account.cpu_time += cpu_time);
}

/// Returns and resets the account of the test that this thread has run.
pub(crate) fn close() -> Account {
    ACCOUNT.take()
}

/// The phase of a testbed.
#[derive(Clone, Copy)]
pub(crate) enum Phase {
    /// The testbed starts.
    Start,
    /// A test uses the testbed.
    Test,
    /// The testbed returns to its initial state.
    Reset,
    /// No test uses the testbed, and its processes run.
    Idle,
}

const PHASES: [&str; 4] = ["start", "tests", "resets", "idle"];

type Row = [Duration; PHASES.len()];

static TABLE: Mutex<BTreeMap<String, Row>> = Mutex::new(BTreeMap::new());

// A panic in another thread leaves the table consistent: each change of the table is one addition.
fn table() -> MutexGuard<'static, BTreeMap<String, Row>> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A testbed whose CPU time is counted until its end.
pub(crate) struct Counted {
    testbed: Testbed,
    counted: CpuTimes,
}

impl Counted {
    /// Counts the CPU time since the start of the testbed.
    pub(crate) fn new(testbed: Testbed) -> Self {
        let mut new = Self {
            testbed,
            counted: CpuTimes::new(),
        };
        new.count(Phase::Start);
        new
    }

    /// Adds the CPU time since the last call to this phase.
    pub(crate) fn count(&mut self, phase: Phase) {
        let now = self.testbed.cpu_times();
        let mut all = Duration::ZERO;
        for (part, time) in &now {
            let before = self.counted.get(part).copied().unwrap_or_default();
            let since = time.saturating_sub(before);
            table().entry(kind(*part)).or_default()[phase as usize] += since;
            all += since;
        }
        if matches!(phase, Phase::Test) {
            computed(all);
        }
        self.counted = now;
    }
}

impl Deref for Counted {
    type Target = Testbed;

    fn deref(&self) -> &Testbed {
        &self.testbed
    }
}

impl DerefMut for Counted {
    fn deref_mut(&mut self) -> &mut Testbed {
        &mut self.testbed
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.count(Phase::Test);
    }
}

/// The name of a part without the number of its replica, so that replicas are counted together.
fn kind(part: Part) -> String {
    let name = part.to_string();
    name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-')
        .to_owned()
}

/// Prints the CPU seconds of each part in each phase, and of the test process.
pub(crate) fn report() {
    let mut rows: Vec<_> = std::mem::take(&mut *table()).into_iter().collect();
    rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.iter().sum::<Duration>()));
    let sums: Row = std::array::from_fn(|phase| rows.iter().map(|(_, row)| row[phase]).sum());
    rows.push(("all testbeds".into(), sums));
    let [start, tests, resets, idle] = PHASES;
    println!("CPU seconds              {start:>8} {tests:>8} {resets:>8} {idle:>8}      all");
    for (part, row) in rows {
        let columns = row.map(|time| format!("{:8.1}", time.as_secs_f32()));
        let all = row.iter().sum::<Duration>().as_secs_f32();
        println!("{part:<24} {} {all:8.1}", columns.join(" "));
    }
    let own = usage::cpu_time(std::process::id()).unwrap_or_default();
    println!("{:<24} {:44.1}", "the tests themselves", own.as_secs_f32());
}
