//! Decides whether to acquire the Lease, renew it or wait. Pure. A Lease has expired when this process has seen no change of the
//! record for the lease duration. Clock skew is harmless, because times in the record are never compared with a clock.

use super::Terms;
use jiff::Timestamp;
use k8s_openapi::{api::coordination::v1::LeaseSpec, apimachinery::pkg::apis::meta::v1::MicroTime};
use std::time::Duration;
use tokio::time::Instant;

/// The next step for the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The Lease is free, or its holder has stopped to renew: acquire the Lease.
    Acquire,
    /// This process holds the Lease.
    Renew,
    /// Another process holds the Lease.
    Wait,
}

/// The record of a Lease, and the time on the local monotonic clock at which this process first saw the record.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    spec: LeaseSpec,
    since: Instant,
}

impl Observation {
    /// The observation of this record: `since` is kept while the record is unchanged.
    pub fn update(before: Option<Self>, spec: LeaseSpec, now: Instant) -> Self {
        match before {
            Some(before) if before.spec == spec => before,
            Some(_) | None => Self { spec, since: now },
        }
    }
}

/// The next step of the candidate `me`.
pub fn decide(seen: &Observation, me: &str, now: Instant) -> Decision {
    let expires_at = seen.since + promised(&seen.spec);
    match seen.spec.holder_identity.as_deref() {
        None | Some("") => Decision::Acquire,
        Some(holder) if holder == me => Decision::Renew,
        Some(_) if now >= expires_at => Decision::Acquire,
        Some(_) => Decision::Wait,
    }
}

/// The record that acquires the Lease. Only people who read the Lease use `clock`.
pub fn acquired(before: &LeaseSpec, me: &str, terms: &Terms, clock: Timestamp) -> LeaseSpec {
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
pub fn renewed(before: &LeaseSpec, clock: Timestamp) -> LeaseSpec {
    LeaseSpec {
        renew_time: Some(MicroTime(clock)),
        ..before.clone()
    }
}

/// The record that releases the Lease, so that the next leader starts at once.
pub fn released(before: &LeaseSpec, clock: Timestamp) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(String::new()),
        lease_duration_seconds: Some(1),
        ..renewed(before, clock)
    }
}

/// The lease duration of the record, or the default if the record has no valid duration.
fn promised(spec: &LeaseSpec) -> Duration {
    let seconds = spec
        .lease_duration_seconds
        .and_then(|seconds| u64::try_from(seconds).ok());
    seconds
        .filter(|seconds| *seconds > 0)
        .map_or(Terms::default().duration, Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    const ME: &str = "me";

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn held_by(holder: &str, clock: Timestamp) -> LeaseSpec {
        acquired(&LeaseSpec::default(), holder, &Terms::default(), clock)
    }

    fn seen(spec: LeaseSpec) -> Observation {
        Observation::update(None, spec, Instant::now())
    }

    #[tokio::test(start_paused = true)]
    async fn a_free_lease_is_taken() {
        assert_eq!(
            decide(&seen(LeaseSpec::default()), ME, Instant::now()),
            Decision::Acquire
        );
        let given_up = released(&held_by("other", at(0)), at(1));
        assert_eq!(decide(&seen(given_up), ME, Instant::now()), Decision::Acquire);
    }

    #[tokio::test(start_paused = true)]
    async fn our_own_lease_is_renewed_however_old_it_is() {
        let own = seen(held_by(ME, at(0)));
        advance(Duration::from_hours(1)).await;
        assert_eq!(decide(&own, ME, Instant::now()), Decision::Renew);
    }

    #[tokio::test(start_paused = true)]
    async fn anothers_lease_is_waited_for_until_it_went_unchanged_for_its_duration() {
        let other = seen(held_by("other", at(0)));
        assert_eq!(decide(&other, ME, Instant::now()), Decision::Wait);
        advance(Duration::from_millis(14_999)).await;
        assert_eq!(decide(&other, ME, Instant::now()), Decision::Wait);
        advance(Duration::from_millis(1)).await;
        assert_eq!(decide(&other, ME, Instant::now()), Decision::Acquire);
    }

    /// The holder's clock is a day behind, so its renewals look long expired; or a day ahead, so they never would.
    #[tokio::test(start_paused = true)]
    async fn clocks_that_differ_change_nothing() {
        for skew in [-86_400, 86_400] {
            let mut other = seen(held_by("other", at(skew)));
            advance(Duration::from_secs(14)).await;
            other = Observation::update(
                Some(other.clone()),
                renewed(&other.spec, at(skew + 14)),
                Instant::now(),
            );
            advance(Duration::from_secs(14)).await;
            assert_eq!(decide(&other, ME, Instant::now()), Decision::Wait);
            advance(Duration::from_secs(1)).await;
            assert_eq!(decide(&other, ME, Instant::now()), Decision::Acquire);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn seeing_the_same_record_again_does_not_prolong_it() {
        let first = seen(held_by("other", at(0)));
        advance(Duration::from_secs(14)).await;
        let second = Observation::update(Some(first.clone()), first.spec.clone(), Instant::now());
        assert_eq!(second, first);
    }

    #[test]
    fn taking_it_counts_a_transition_and_renewing_does_not() {
        let taken = acquired(&held_by("other", at(0)), ME, &Terms::default(), at(20));
        assert_eq!(
            (taken.lease_transitions, taken.holder_identity.as_deref()),
            (Some(2), Some(ME))
        );
        assert_eq!(renewed(&taken, at(22)).lease_transitions, Some(2));
        assert_eq!(renewed(&taken, at(22)).acquire_time, Some(MicroTime(at(20))));
    }
}
