//! Candidates against an API server in memory, with time under the test's control.

use super::*;
use crate::fake_api::{FakeApi, LEASES, Mood};
use placement::keys::CONTROLLER_LEASE;
use tokio::time::advance;

fn lease_path() -> String {
    format!("{LEASES}/{CONTROLLER_LEASE}")
}

fn run_for(api: &FakeApi, identity: &str) -> Election {
    run_on(api, identity, Terms::default())
}

fn run_on(api: &FakeApi, identity: &str, terms: Terms) -> Election {
    let candidate = Candidate {
        namespace: "ns".to_owned(),
        lease: CONTROLLER_LEASE,
        identity: identity.to_owned(),
        terms,
    };
    Election::start(api.client(), candidate, Leading::default())
}

fn holder(api: &FakeApi) -> String {
    let lease = api.get(&lease_path()).unwrap();
    lease["spec"]["holderIdentity"].as_str().unwrap().to_owned()
}

async fn seconds_until(future: impl Future<Output = ()>) -> u64 {
    let began = Instant::now();
    future.await;
    began.elapsed().as_secs()
}

#[tokio::test(start_paused = true)]
async fn a_lone_candidate_leads_at_once_and_stays_leader() {
    let api = FakeApi::new();
    let mut a = run_for(&api, "a").leadership();
    assert_eq!(seconds_until(a.acquired()).await, 0);
    sleep(Duration::from_hours(1)).await;
    assert!(a.is_held());
    assert_eq!(holder(&api), "a");
}

#[tokio::test(start_paused = true)]
async fn of_two_candidates_one_leads() {
    let api = FakeApi::new();
    let (a, b) = (run_for(&api, "a").leadership(), run_for(&api, "b").leadership());
    for _ in 0..600 {
        advance(Duration::from_secs(1)).await;
        assert!(!(a.is_held() && b.is_held()));
    }
    assert!(a.is_held() || b.is_held());
}

#[tokio::test(start_paused = true)]
async fn who_resigns_is_followed_at_the_next_look() {
    let api = FakeApi::new();
    let a = run_for(&api, "a");
    a.leadership().acquired().await;
    let mut b = run_for(&api, "b").leadership();
    sleep(Duration::from_secs(30)).await;
    assert!(!b.is_held());
    a.resign().await;
    assert!(seconds_until(b.acquired()).await <= Terms::default().retry.as_secs());
}

/// The write changes the Lease's version, which the one that gives it up has to name.
#[tokio::test(start_paused = true)]
async fn who_resigns_while_a_renewal_is_on_its_way_gives_the_lease_up_all_the_same() {
    let api = FakeApi::new();
    let a = run_for(&api, "a");
    a.leadership().acquired().await;
    api.set_mood(Mood::Slow);
    api.take_writes();
    while api.take_writes().is_empty() {
        sleep(Duration::from_millis(100)).await;
    }
    a.resign().await;
    assert_eq!(holder(&api), "");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_died_is_followed_when_its_lease_ran_out() {
    let api = FakeApi::new();
    let a = run_for(&api, "a");
    a.leadership().acquired().await;
    let mut b = run_for(&api, "b").leadership();
    sleep(Duration::from_secs(30)).await;
    a.ended.abort();
    let waited = seconds_until(b.acquired()).await;
    assert!((13..=17).contains(&waited), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn the_terms_that_are_set_are_those_that_count() {
    let api = FakeApi::new();
    let [duration, renew_deadline, retry] = [6, 4, 1].map(Duration::from_secs);
    let terms = Terms::new(duration, renew_deadline, retry).unwrap();
    let a = run_on(&api, "a", terms.clone());
    let mut leading = a.leadership();
    leading.acquired().await;
    // A candidate goes by what the holder wrote, not by its own terms.
    let mut b = run_for(&api, "b").leadership();
    sleep(Duration::from_secs(30)).await;
    assert!(leading.is_held());
    assert_eq!(api.get(&lease_path()).unwrap()["spec"]["leaseDurationSeconds"], 6);
    a.ended.abort();
    let waited = seconds_until(b.acquired()).await;
    assert!((4..=8).contains(&waited), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_before_another_may_start() {
    for mood in [Mood::Away, Mood::Silent] {
        let api = FakeApi::new();
        let mut a = run_for(&api, "a").leadership();
        a.acquired().await;
        sleep(Duration::from_mins(1)).await;
        api.set_mood(mood);
        let led_on = seconds_until(a.lost()).await;
        assert!((8..=10).contains(&led_on), "{mood:?}: {led_on}");
        assert!(!a.is_held());
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_absence_of_the_api_server_costs_nothing() {
    let api = FakeApi::new();
    let mut a = run_for(&api, "a").leadership();
    a.acquired().await;
    api.set_mood(Mood::Silent);
    sleep(Duration::from_secs(4)).await;
    api.set_mood(Mood::Well);
    sleep(Duration::from_mins(1)).await;
    assert!(a.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_candidate_waits_for_an_api_server_that_is_away() {
    let api = FakeApi::new();
    api.set_mood(Mood::Away);
    let mut a = run_for(&api, "a").leadership();
    sleep(Duration::from_mins(10)).await;
    assert!(!a.is_held());
    api.set_mood(Mood::Well);
    assert!(seconds_until(a.acquired()).await <= 5);
}

#[tokio::test(start_paused = true)]
async fn a_lease_taken_by_force_is_lost_at_once() {
    let api = FakeApi::new();
    let mut a = run_for(&api, "a").leadership();
    a.acquired().await;
    let mut lease = api.get(&lease_path()).unwrap();
    lease["spec"]["holderIdentity"] = "thief".into();
    api.put(&lease_path(), lease);
    assert!(seconds_until(a.lost()).await <= 2 * Terms::default().retry.as_secs());
    assert_eq!(holder(&api), "thief");
}
