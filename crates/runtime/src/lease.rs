//! Leader election by a Lease, with the algorithm of client-go: one leader writes, the other candidates wait.
//!
//! This file has the decisions, and is pure; `elector.rs` reads and writes the Lease. A Lease has expired when this process has seen no
//! change of the record for the lease duration. Clock skew is harmless, because times in the record are never compared with a clock.
//! There is no fencing: two processes may lead for a moment, so every write must be safe for two writers.
//!
//! This module is hand-written, because kubert and kube-lease-manager compare the times in the Lease with their own clock: a
//! process whose clock is ahead would take the Lease from its holder.

mod elector;

pub use elector::{Candidate, Election, Leadership};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use std::time::Duration;
use thiserror::Error;
use tokio::time::Instant;

/// The durations of an election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    duration: Duration,
    renew_deadline: Duration,
    retry: Duration,
}

/// Durations with which two processes could lead, or no process for long.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidTerms {
    /// A Lease stores whole seconds. A fraction would be cut off, so the Lease would expire before the leader stops.
    #[error(
        "--leader-elect-lease-duration ({0:?}) is not a number of seconds that a Lease can hold: write whole seconds, such \
         as 15s"
    )]
    Fraction(Duration),
    /// Another process would lead before this process stops.
    #[error(
        "--leader-elect-lease-duration ({duration:?}) is not longer than --leader-elect-renew-deadline \
         ({renew_deadline:?}), so another controller would lead before this one stops: raise the first or lower the second"
    )]
    Overlap {
        /// The lease duration.
        duration: Duration,
        /// The renew deadline.
        renew_deadline: Duration,
    },
    /// After one failed request the leader would lose the Lease.
    #[error(
        "--leader-elect-renew-deadline ({renew_deadline:?}) is less than twice --leader-elect-retry-period ({retry:?}), so \
         a failed renewal would not be repeated in time: raise the first or lower the second"
    )]
    NoSecondAttempt {
        /// The renew deadline.
        renew_deadline: Duration,
        /// The retry period.
        retry: Duration,
    },
    /// The process would send requests without a pause.
    #[error(
        "--leader-elect-retry-period is 0s, so the API server would be asked without a pause: write 2s or longer"
    )]
    NoPause,
}

impl Terms {
    /// Checks that the durations fit together. client-go requires a smaller margin between `renew_deadline` and `retry`: 1.2 times.
    ///
    /// `duration` is how long other candidates wait after the last renewal that they saw, `renew_deadline` how long the leader
    /// relies on its own last renewal, and `retry` the pause between two attempts.
    pub fn new(duration: Duration, renew_deadline: Duration, retry: Duration) -> Result<Self, InvalidTerms> {
        if duration.subsec_nanos() != 0 || i32::try_from(duration.as_secs()).is_err() {
            return Err(InvalidTerms::Fraction(duration));
        }
        if duration <= renew_deadline {
            return Err(InvalidTerms::Overlap {
                duration,
                renew_deadline,
            });
        }
        if renew_deadline < retry.saturating_mul(2) {
            return Err(InvalidTerms::NoSecondAttempt {
                renew_deadline,
                retry,
            });
        }
        if retry.is_zero() {
            return Err(InvalidTerms::NoPause);
        }
        Ok(Self {
            duration,
            renew_deadline,
            retry,
        })
    }
}

impl Default for Terms {
    /// The defaults of client-go.
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// The next step for the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseAction {
    /// The Lease is free, or its holder has stopped to renew: acquire the Lease.
    Acquire,
    /// This process holds the Lease.
    Renew,
    /// Another process holds the Lease.
    Wait,
}

/// A Lease, and the time on the local monotonic clock at which this process first saw the current record.
#[derive(Clone, Debug, PartialEq)]
struct ObservedLease {
    lease: Lease,
    since: Instant,
}

impl ObservedLease {
    /// The observation of this Lease: `since` is kept while the record is unchanged.
    fn update(before: Option<Self>, lease: Lease, now: Instant) -> Self {
        let unchanged = before.filter(|before| before.lease.spec == lease.spec);
        let since = unchanged.map_or(now, |before| before.since);
        Self { lease, since }
    }

    /// The record; empty if the Lease is new.
    fn spec(&self) -> LeaseSpec {
        self.lease.spec.clone().unwrap_or_default()
    }
}

/// The next step of the candidate `me`.
fn decide(observed: &ObservedLease, me: &str, now: Instant) -> LeaseAction {
    let spec = observed.spec();
    let expires_at = observed.since + lease_duration(&spec);
    match spec.holder_identity.as_deref() {
        None | Some("") => LeaseAction::Acquire,
        Some(holder) if holder == me => LeaseAction::Renew,
        Some(_) if now >= expires_at => LeaseAction::Acquire,
        Some(_) => LeaseAction::Wait,
    }
}

/// The record that acquires the Lease. Only people who read the Lease use `clock`.
fn acquired(before: &LeaseSpec, me: &str, terms: &Terms, clock: Timestamp) -> LeaseSpec {
    let transitions = before.lease_transitions.unwrap_or(0).saturating_add(1);
    LeaseSpec {
        holder_identity: Some(me.to_owned()),
        acquire_time: Some(MicroTime(clock)),
        renew_time: Some(MicroTime(clock)),
        lease_duration_seconds: i32::try_from(terms.duration.as_secs()).ok(),
        lease_transitions: Some(transitions),
        ..before.clone()
    }
}

/// The record that renews the Lease.
fn renewed(before: &LeaseSpec, clock: Timestamp) -> LeaseSpec {
    LeaseSpec {
        renew_time: Some(MicroTime(clock)),
        ..before.clone()
    }
}

/// The record that releases the Lease, so that the next leader starts at once.
fn released(before: &LeaseSpec, clock: Timestamp) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(String::new()),
        lease_duration_seconds: Some(1),
        ..renewed(before, clock)
    }
}

/// The lease duration of the record, or the default if the record has no valid duration.
fn lease_duration(spec: &LeaseSpec) -> Duration {
    let seconds = spec
        .lease_duration_seconds
        .and_then(|seconds| u64::try_from(seconds).ok());
    seconds
        .filter(|seconds| *seconds > 0)
        .map_or(Terms::default().duration, Duration::from_secs)
}

#[cfg(test)]
mod tests;
