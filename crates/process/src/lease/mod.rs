//! Leader election by a Lease, as client-go does it: one leader writes, the others wait.
//!
//! [`decide`] is pure, [`elector`] reads and writes the Lease, [`leadership`] is what the rest of the process sees. No
//! fencing is promised: two processes may believe to lead for a moment, so every write must be safe for two writers.

pub mod decide;
pub mod elector;
pub mod leadership;

use std::time::Duration;

/// How a candidate behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long the others wait after the last renewal that they saw.
    pub duration: Duration,
    /// How long the leader counts on its own last renewal. Shorter than `duration`, so that it stops before another starts.
    pub renew_deadline: Duration,
    /// Between two attempts.
    pub retry: Duration,
}

impl Default for Terms {
    /// client-go's own values.
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}
