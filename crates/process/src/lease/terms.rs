//! The three durations of an election, which are valid only together.

use std::time::Duration;
use thiserror::Error;

/// The durations of an election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    pub(super) duration: Duration,
    pub(super) renew_deadline: Duration,
    pub(super) retry: Duration,
}

/// Durations with which two processes could lead, or no process for long.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unsound {
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
    pub fn new(duration: Duration, renew_deadline: Duration, retry: Duration) -> Result<Self, Unsound> {
        if duration.subsec_nanos() != 0 || i32::try_from(duration.as_secs()).is_err() {
            return Err(Unsound::Fraction(duration));
        }
        if duration <= renew_deadline {
            return Err(Unsound::Overlap {
                duration,
                renew_deadline,
            });
        }
        if renew_deadline < retry.saturating_mul(2) {
            return Err(Unsound::NoSecondAttempt {
                renew_deadline,
                retry,
            });
        }
        if retry.is_zero() {
            return Err(Unsound::NoPause);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(duration: u64, renew_deadline: u64, retry: u64) -> Result<Terms, Unsound> {
        let [duration, renew_deadline, retry] = [duration, renew_deadline, retry].map(Duration::from_millis);
        Terms::new(duration, renew_deadline, retry)
    }

    fn refusal(duration: u64, renew_deadline: u64, retry: u64) -> String {
        terms(duration, renew_deadline, retry).unwrap_err().to_string()
    }

    #[test]
    fn the_defaults_are_those_of_client_go_and_sound() {
        assert_eq!(terms(15_000, 10_000, 2000), Ok(Terms::default()));
    }

    #[test]
    fn a_lease_holds_whole_seconds() {
        for duration in [2500, 500, u64::MAX] {
            assert!(refusal(duration, 400, 200).contains("write whole seconds, such as 15s"));
        }
    }

    #[test]
    fn a_leader_stops_before_another_starts() {
        assert!(terms(4000, 3999, 1000).is_ok());
        assert_eq!(
            refusal(4000, 4000, 1000),
            "--leader-elect-lease-duration (4s) is not longer than --leader-elect-renew-deadline (4s), so another \
             controller would lead before this one stops: raise the first or lower the second"
        );
    }

    #[test]
    fn a_failed_renewal_is_repeated_in_time() {
        assert!(terms(6000, 4000, 2000).is_ok());
        let refusal = refusal(6000, 4000, 2001);
        assert!(
            refusal.starts_with("--leader-elect-renew-deadline (4s) is less than twice"),
            "{refusal}"
        );
    }

    #[test]
    fn there_is_a_pause_between_two_attempts() {
        assert!(refusal(6000, 4000, 0).starts_with("--leader-elect-retry-period is 0s"));
        assert!(refusal(1000, 0, 0).starts_with("--leader-elect-retry-period is 0s"));
    }
}
