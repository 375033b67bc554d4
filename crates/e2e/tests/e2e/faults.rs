//! Runs succeed despite faults of the controllers and of their connection to the API server, soon after the fault is over,
//! and all their objects are removed.

use crate::support::SOON;
use crate::support::auditor::Auditor;
use crate::support::controller::{leader, leads, until_a_replica_leads};
use crate::support::faulted_runs::{CONTROLLERS, OURS, RECOVERED, Runs, keep_alive_on};
use crate::support::load::alone;
use crate::support::pool::{self, PooledTestbed};
use std::time::{Duration, Instant};
use testbed::pace::SHORT_LEASE;
use testbed::product::Installed;
use testbed::{Fault, Part, Testbed};

/// How long a replica leads before it is killed. The replicas need five to eight seconds for the election.
const LED: Duration = Duration::from_secs(4);
/// How long pod-affinity's processes wait for data of a connection.
const SILENCE: Duration = Duration::from_secs(90);
/// How long the Lease of a leader that is paused keeps the other replica from leading: 15 seconds with the shipped settings, two seconds
/// until the next attempt, and the same again on a busy machine.
const REPLACED: Duration = Duration::from_secs(34);
/// Longer than a leader keeps its lease after the last renewal with the shipped settings.
const OUTAGE: Duration = Duration::from_secs(12);
/// Longer than a leader keeps a short lease.
const SHORT_OUTAGE: Duration = Duration::from_secs(6);
/// A testbed that restarts its controllers when they end, as a kubelet would.
async fn kept_alive(
    nodes: usize,
    through_a_proxy: bool,
    environment: &[(&str, &str)],
) -> (PooledTestbed, Installed) {
    let bed = pool::bare().await;
    if through_a_proxy {
        bed.faults().unwrap();
    }
    let installed = keep_alive_on(&bed, nodes, environment).await;
    (bed, installed)
}

/// Waits for this time, in which controllers that end are restarted.
async fn for_a_while(bed: &Testbed, time: Duration) {
    tokio::select! {
        () = tokio::time::sleep(time) => {}
        death = bed.until_a_part_dies() => panic!("{death:?}"),
    }
}

fn restarts(bed: &Testbed) -> u32 {
    CONTROLLERS.iter().map(|part| bed.restarts(*part)).sum()
}

async fn until_leading(bed: &Testbed, installed: &Installed, replica: u8) {
    bed.until(format!("controller {replica} to lead"), SOON, async || {
        if leads(installed, replica).await {
            Ok(())
        } else {
            Err("not yet")
        }
    })
    .await
    .unwrap();
}

/// A fault of the connection to the API server, its duration, and how often watches are cut meanwhile.
struct FaultCase {
    name: &'static str,
    fault: Fault,
    lasts: Duration,
    cuts: bool,
}

impl FaultCase {
    const fn new(name: &'static str, fault: Fault) -> Self {
        Self {
            name,
            fault,
            lasts: OUTAGE,
            cuts: false,
        }
    }

    async fn inject(&self, bed: &Testbed) {
        let faults = bed.faults().unwrap();
        let end = Instant::now() + self.lasts;
        while Instant::now() < end {
            for_a_while(bed, Duration::from_secs(1)).await;
            if self.cuts {
                faults.cut();
            }
        }
        faults.set(Fault::None);
    }
}

#[e2e_test(first, second)]
async fn runs_succeed_with_an_api_server_that_is_slow_or_rejects_or_cuts_watches_or_returns_conflicts() {
    let refused = |status| Fault::Refused(axum::http::StatusCode::from_u16(status).unwrap());
    let troubles = [
        FaultCase::new("slow", Fault::Slow(Duration::from_secs(2))),
        FaultCase::new("too-many", refused(429)),
        FaultCase::new("broken", refused(500)),
        FaultCase::new("conflicts", Fault::Conflicts),
        FaultCase {
            cuts: true,
            ..FaultCase::new("cut", Fault::None)
        },
    ];
    let (bed, _) = kept_alive(OURS * 3, true, &[]).await;
    let auditor = Auditor::start(&bed).await;
    let faults = bed.faults().unwrap();
    for trouble in &troubles {
        let mut runs = Runs::in_namespace(&bed, &auditor, trouble.name).await;
        // The fault begins while runs are held, placed and running.
        runs.create(OURS / 2).await;
        let (struck, ended) = (faults.injected(), restarts(&bed));
        faults.set(trouble.fault);
        runs.create(OURS / 2).await;
        runs.create_held_by_users().await;
        trouble.inject(&bed).await;
        let (struck, ended) = (faults.injected() - struck, restarts(&bed) - ended);
        let recovered = runs.until_none_is_held().await;
        println!(
            "{} for {:?}: {struck} requests or watches struck, {ended} controllers ended; none held {recovered:.1?} after it",
            trouble.name, trouble.lasts
        );
        assert!(struck > 0, "the fault did not strike");
        runs.all_succeed().await;
    }
    auditor.assert_no_violation();
}

/// If a machine of the control plane is lost, its connections are dead, and nothing closes them.
#[e2e_test(second)]
async fn runs_are_released_after_the_open_watches_fell_silent() {
    let (bed, _) = kept_alive(OURS, true, &[]).await;
    let auditor = Auditor::start(&bed).await;
    let mut runs = Runs::in_namespace(&bed, &auditor, "silent").await;
    runs.create(OURS / 2).await;
    let faults = bed.faults().unwrap();
    let before = faults.injected();
    faults.silence();
    runs.create(OURS / 2).await;
    let recovered = runs.until_none_is_held_within(SILENCE + RECOVERED).await;
    let silent = faults.injected() - before;
    println!("{silent} open responses fell silent; no run is held {recovered:.1?} after it");
    assert!(silent > 0, "no response was open");
    runs.all_succeed().await;
    auditor.assert_no_violation();
}

/// pod-affinity creates all placeholders within `RECOVERED` after the outage. The controllers of Kubernetes and Tekton connect again
/// with pauses of up to a minute, and need as long to release the last run.
async fn test_outage_of(part: Part) {
    let (bed, _) = kept_alive(OURS * 2, false, &SHORT_LEASE).await;
    let auditor = Auditor::start(&bed).await;
    let mut runs = Runs::in_namespace(&bed, &auditor, &format!("without-{part}")).await;
    runs.create_held_by_users().await;
    runs.create(OURS).await;
    bed.kill(part).unwrap();
    for_a_while(&bed, SHORT_OUTAGE).await;
    bed.start_again(part).await.unwrap();
    let asked = runs.until_placeholders_exist().await;
    let recovered = runs.until_none_is_held_within(SOON * 2).await;
    println!(
        "{part} unavailable for {SHORT_OUTAGE:?}: all placeholders exist {asked:.1?} later, and no run is held another {recovered:.1?} later"
    );
    runs.all_succeed().await;
    auditor.assert_no_violation();
}

#[e2e_test]
async fn runs_succeed_despite_an_outage_of_the_api_server() {
    test_outage_of(Part::ApiServer).await;
}

#[e2e_test(second)]
async fn runs_succeed_despite_an_outage_of_etcd() {
    test_outage_of(Part::Etcd).await;
}

#[e2e_test(first, second)]
async fn a_leader_that_was_paused_past_its_lease_resumes_beside_a_new_leader_without_damage() {
    let (bed, installed) = kept_alive(OURS * 4, false, &[]).await;
    let auditor = Auditor::start(&bed).await;
    let mut runs = Runs::in_namespace(&bed, &auditor, "paused").await;
    runs.create_held_by_users().await;
    runs.create(OURS).await;
    let paused = bed.until("one of two to lead", SOON, async || {
        leader(&installed).await.ok_or("neither does")
    });
    let paused = paused.await.unwrap();
    bed.pause(Part::Controller(paused)).unwrap();
    let start = Instant::now();
    runs.create(OURS).await;
    until_leading(&bed, &installed, 1 - paused).await;
    let replaced = start.elapsed();
    println!("paused leader: replaced after {replaced:.1?}");
    assert!(replaced < REPLACED, "{replaced:.1?}");
    runs.create(OURS).await;
    bed.resume(Part::Controller(paused)).unwrap();
    let recovered = runs.until_none_is_held().await;
    println!("paused leader has resumed: no run is held {recovered:.1?} after it");
    bed.until("the old leader to end", SOON, async || {
        match bed.restarts(Part::Controller(paused)) {
            0 => Err("it still runs"),
            _ => Ok(()),
        }
    })
    .await
    .unwrap();
    runs.all_succeed().await;
    until_leading(&bed, &installed, 1 - paused).await;
    auditor.assert_no_violation();
}

#[e2e_test]
async fn eight_runs_succeed_while_the_leader_is_killed() {
    test_kills(8, 1).await;
}

#[e2e_test(first, second)]
async fn forty_runs_succeed_while_each_leader_is_killed_after_four_seconds() {
    test_kills(40, 3).await;
}

#[e2e_test(nightly)]
async fn two_hundred_runs_succeed_while_each_leader_is_killed_after_four_seconds() {
    test_kills(200, 3).await;
}

/// Kills the leader at least this many times, while runs are created in two halves. Each kill may delay a release.
async fn test_kills(count: usize, at_least: usize) {
    let _alone = alone().await;
    let (bed, installed) = kept_alive(count + 20, false, &SHORT_LEASE).await;
    let auditor = Auditor::start(&bed).await;
    let mut runs = Runs::in_namespace(&bed, &auditor, "killed").await;
    runs.create_held_by_users().await;
    let start = Instant::now();
    let mut kills = 0;
    while kills < at_least || runs.ours.len() < count || runs.have_all_succeeded().await.is_err() {
        assert!(
            start.elapsed() < SOON * 5,
            "{kills} kills, {:?}",
            runs.have_all_succeeded().await
        );
        if runs.ours.len() < count {
            runs.create(count / 2).await;
        }
        let leader = until_a_replica_leads(&bed, &installed).await;
        bed.kill(Part::Controller(leader)).unwrap();
        bed.start_again(Part::Controller(leader)).await.unwrap();
        kills += 1;
        until_a_replica_leads(&bed, &installed).await;
        let held = runs.held().await.unwrap();
        for_a_while(&bed, LED).await;
        // On a slow machine, a leader may need longer to release a run.
        runs.until_held_at_most(held.len().saturating_sub(1), SOON).await;
    }
    let longest = auditor.longest_hold();
    println!(
        "{count} runs went through {kills} kills of the leader in {:.1?}; the longest hold was {longest:.1?}",
        start.elapsed()
    );
    assert!(longest < RECOVERED * u32::try_from(kills).unwrap(), "{longest:?}");
    runs.until_none_is_held().await;
    runs.all_succeed().await;
    auditor.assert_no_violation();
}
