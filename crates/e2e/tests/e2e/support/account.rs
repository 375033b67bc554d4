//! The waits of a test, and the CPU time of its testbeds.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) type Waits = BTreeMap<String, Duration>;

#[derive(Default)]
pub(crate) struct Account {
    pub(crate) waits: Waits,
    /// CPU time of testbeds, shared testbeds included.
    pub(crate) cpu_time: Duration,
}

thread_local! {
    // A test's own future runs on the thread that blocks on the future. Waits of spawned tasks are not counted.
    static ACCOUNT: RefCell<Account> = RefCell::default();
}

pub(crate) fn waited(what: &str, time: Duration) {
    ACCOUNT.with_borrow_mut(|account| *account.waits.entry(what.to_owned()).or_default() += time);
}

pub(crate) fn computed(cpu_time: Duration) {
    ACCOUNT.with_borrow_mut(|account| account.cpu_time += cpu_time);
}

/// Returns and resets the account of the test that this thread has run.
pub(crate) fn close() -> Account {
    ACCOUNT.take()
}
