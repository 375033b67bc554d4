//! The durations of an election, and the decisions of a candidate at a time.

use super::*;
use tokio::time::advance;

fn terms(duration: u64, renew_deadline: u64, retry: u64) -> Result<Terms, InvalidTerms> {
    let [duration, renew_deadline, retry] = [duration, renew_deadline, retry].map(Duration::from_millis);
    Terms::new(duration, renew_deadline, retry)
}

fn rejection(duration: u64, renew_deadline: u64, retry: u64) -> String {
    terms(duration, renew_deadline, retry).unwrap_err().to_string()
}

#[test]
fn the_defaults_are_those_of_client_go_and_valid() {
    assert_eq!(terms(15_000, 10_000, 2000), Ok(Terms::default()));
}

#[test]
fn the_lease_duration_has_whole_seconds() {
    for duration in [2500, 500, u64::MAX] {
        assert!(rejection(duration, 400, 200).contains("write whole seconds, such as 15s"));
    }
}

#[test]
fn a_leader_stops_before_another_starts() {
    assert!(terms(4000, 3999, 1000).is_ok());
    assert_eq!(
        rejection(4000, 4000, 1000),
        "--leader-elect-lease-duration (4s) is not longer than --leader-elect-renew-deadline (4s), so another \
         controller would lead before this one stops: raise the first or lower the second"
    );
}

#[test]
fn a_failed_renewal_is_repeated_in_time() {
    assert!(terms(6000, 4000, 2000).is_ok());
    let rejection = rejection(6000, 4000, 2001);
    assert!(
        rejection.starts_with("--leader-elect-renew-deadline (4s) is less than twice"),
        "{rejection}"
    );
}

#[test]
fn a_retry_period_of_zero_is_refused() {
    assert!(rejection(6000, 4000, 0).starts_with("--leader-elect-retry-period is 0s"));
    assert!(rejection(1000, 0, 0).starts_with("--leader-elect-retry-period is 0s"));
}

const ME: &str = "me";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn held_by(holder: &str, clock: Timestamp) -> LeaseSpec {
    acquired(&LeaseSpec::default(), holder, &Terms::default(), clock)
}

fn observed(spec: LeaseSpec) -> ObservedLease {
    observed_after(None, spec)
}

fn observed_after(before: Option<ObservedLease>, spec: LeaseSpec) -> ObservedLease {
    let lease = Lease {
        spec: Some(spec),
        ..Lease::default()
    };
    ObservedLease::update(before, lease, Instant::now())
}

#[tokio::test(start_paused = true)]
async fn a_free_lease_is_acquired() {
    assert_eq!(
        decide(&observed(LeaseSpec::default()), ME, Instant::now()),
        LeaseAction::Acquire
    );
    let free = released(&held_by("other", at(0)), at(1));
    assert_eq!(decide(&observed(free), ME, Instant::now()), LeaseAction::Acquire);
}

#[tokio::test(start_paused = true)]
async fn the_own_lease_is_renewed_at_any_age() {
    let own = observed(held_by(ME, at(0)));
    advance(Duration::from_hours(1)).await;
    assert_eq!(decide(&own, ME, Instant::now()), LeaseAction::Renew);
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_another_process_is_acquired_after_it_was_unchanged_for_its_duration() {
    let other = observed(held_by("other", at(0)));
    assert_eq!(decide(&other, ME, Instant::now()), LeaseAction::Wait);
    advance(Duration::from_millis(14_999)).await;
    assert_eq!(decide(&other, ME, Instant::now()), LeaseAction::Wait);
    advance(Duration::from_millis(1)).await;
    assert_eq!(decide(&other, ME, Instant::now()), LeaseAction::Acquire);
}

/// With the holder's clock a day behind, its renewals look expired; with the clock a day ahead, its renewals never expire.
#[tokio::test(start_paused = true)]
async fn clock_skew_changes_no_decision() {
    for skew in [-86_400, 86_400] {
        let mut other = observed(held_by("other", at(skew)));
        advance(Duration::from_secs(14)).await;
        other = observed_after(Some(other.clone()), renewed(&other.spec(), at(skew + 14)));
        advance(Duration::from_secs(14)).await;
        assert_eq!(decide(&other, ME, Instant::now()), LeaseAction::Wait);
        advance(Duration::from_secs(1)).await;
        assert_eq!(decide(&other, ME, Instant::now()), LeaseAction::Acquire);
    }
}

#[tokio::test(start_paused = true)]
async fn reading_the_same_record_again_does_not_extend_the_lease() {
    let first = observed(held_by("other", at(0)));
    advance(Duration::from_secs(14)).await;
    let second = observed_after(Some(first.clone()), first.spec());
    assert_eq!(second, first);
}

#[test]
fn only_the_acquisition_counts_a_transition() {
    let taken = acquired(&held_by("other", at(0)), ME, &Terms::default(), at(20));
    assert_eq!(
        (taken.lease_transitions, taken.holder_identity.as_deref()),
        (Some(2), Some(ME))
    );
    assert_eq!(renewed(&taken, at(22)).lease_transitions, Some(2));
    assert_eq!(renewed(&taken, at(22)).acquire_time, Some(MicroTime(at(20))));
}
