//! Candidates against a fake API server, with paused time.

use super::*;
use crate::install::CONTROLLER_LEASE;
use testing::{Behaviour, FakeApi};
use tokio::time::advance;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases";

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
async fn a_standby_leads_one_retry_period_after_the_leader_resigned() {
    let api = FakeApi::new();
    let a = run_for(&api, "a");
    a.leadership().acquired().await;
    let mut b = run_for(&api, "b").leadership();
    sleep(Duration::from_secs(30)).await;
    assert!(!b.is_held());
    a.resign().await;
    assert!(seconds_until(b.acquired()).await <= Terms::default().retry.as_secs());
}

/// The pending write changes the resourceVersion that the release has to name.
#[tokio::test(start_paused = true)]
async fn a_leader_that_resigns_during_a_renewal_releases_the_lease() {
    let api = FakeApi::new();
    let a = run_for(&api, "a");
    a.leadership().acquired().await;
    api.set_behaviour(Behaviour::Slow);
    api.take_writes();
    while api.take_writes().is_empty() {
        sleep(Duration::from_millis(100)).await;
    }
    a.resign().await;
    assert_eq!(holder(&api), "");
}

#[tokio::test(start_paused = true)]
async fn a_standby_leads_when_the_lease_of_a_dead_leader_has_expired() {
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
async fn a_standby_waits_for_the_duration_in_the_lease() {
    let api = FakeApi::new();
    let [duration, renew_deadline, retry] = [6, 4, 1].map(Duration::from_secs);
    let terms = Terms::new(duration, renew_deadline, retry).unwrap();
    let a = run_on(&api, "a", terms.clone());
    let mut leading = a.leadership();
    leading.acquired().await;
    // This candidate has the default terms, with a longer lease duration.
    let mut b = run_for(&api, "b").leadership();
    sleep(Duration::from_secs(30)).await;
    assert!(leading.is_held());
    assert_eq!(api.get(&lease_path()).unwrap()["spec"]["leaseDurationSeconds"], 6);
    a.ended.abort();
    let waited = seconds_until(b.acquired()).await;
    assert!((4..=8).contains(&waited), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_before_another_may_lead() {
    for behaviour in [Behaviour::Unavailable, Behaviour::Silent] {
        let api = FakeApi::new();
        let mut a = run_for(&api, "a").leadership();
        a.acquired().await;
        sleep(Duration::from_mins(1)).await;
        api.set_behaviour(behaviour);
        let led_on = seconds_until(a.lost()).await;
        assert!((8..=10).contains(&led_on), "{behaviour:?}: {led_on}");
        assert!(!a.is_held());
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_keeps_the_lease_during_a_short_outage_of_the_api_server() {
    for behaviour in [Behaviour::Silent, Behaviour::Unanswering] {
        let api = FakeApi::new();
        let mut a = run_for(&api, "a").leadership();
        a.acquired().await;
        api.set_behaviour(behaviour);
        sleep(Duration::from_secs(4)).await;
        api.set_behaviour(Behaviour::Healthy);
        sleep(Duration::from_mins(1)).await;
        assert!(a.is_held(), "{behaviour:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_candidate_waits_until_the_api_server_is_available() {
    let api = FakeApi::new();
    api.set_behaviour(Behaviour::Unavailable);
    let mut a = run_for(&api, "a").leadership();
    sleep(Duration::from_mins(10)).await;
    assert!(!a.is_held());
    api.set_behaviour(Behaviour::Healthy);
    assert!(seconds_until(a.acquired()).await <= 5);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_another_client_overwrote_is_lost_at_once() {
    let api = FakeApi::new();
    let mut a = run_for(&api, "a").leadership();
    a.acquired().await;
    let mut lease = api.get(&lease_path()).unwrap();
    lease["spec"]["holderIdentity"] = "thief".into();
    api.put(&lease_path(), lease);
    assert!(seconds_until(a.lost()).await <= 2 * Terms::default().retry.as_secs());
    assert_eq!(holder(&api), "thief");
}

fn in_seconds(seconds: u64) -> Standing {
    Standing::Leading(Instant::now() + Duration::from_secs(seconds))
}

#[tokio::test(start_paused = true)]
async fn leadership_without_a_renewal_ends_by_itself() {
    let (_elector, view) = watch::channel(in_seconds(10));
    let mut leadership = Leadership(view);
    assert!(leadership.is_held());
    let began = Instant::now();
    leadership.lost().await;
    assert_eq!(began.elapsed().as_secs(), 10);
    assert!(!leadership.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_renewal_extends_the_leadership() {
    let (elector, view) = watch::channel(in_seconds(10));
    let mut leadership = Leadership(view);
    advance(Duration::from_secs(9)).await;
    elector.send_replace(in_seconds(10));
    let began = Instant::now();
    leadership.lost().await;
    assert_eq!(began.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_standby_does_not_lead() {
    let (elector, view) = watch::channel(Standing::Unknown);
    let mut leadership = Leadership(view);
    elector.send_replace(Standing::Standby);
    leadership.known().await;
    assert!(!leadership.is_held());
    elector.send_replace(in_seconds(1));
    leadership.acquired().await;
    assert!(leadership.is_held());
    elector.send_replace(Standing::Over);
    leadership.lost().await;
    assert!(!leadership.is_held());
}
