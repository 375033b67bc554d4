//! Restarts and kills of webhook replicas lose no admission call that could be saved.
//!
//! The testbed's front replaces the Service: it reads readiness with a delay of a fifth of a second. It does not simulate
//! the loss of a node, or the longer delay of real endpoints, for which there is `--drain-delay`.

use crate::support::SOON;
use crate::support::load::{Counted, GENTLE, Load, Lost, alone, burst};
use crate::support::pool::{self, PooledTestbed};
use crate::support::runs::{bound_task, create, let_end, nodes_of};
use crate::support::testbeds::{fresh, kill_webhooks};
use kube::api::DynamicObject;
use std::collections::BTreeSet;
use std::time::Duration;
use testbed::pace::AS_SHIPPED;
use testbed::product::Installed;
use testbed::runs::{self, RunSpec, State};
use testbed::{Nodes, Part, Testbed};
use tokio::time::{Instant, sleep};

/// Number of calls that the test makes during the restarts.
const MANY_CALLS: u32 = 600;
/// After this time the front routes no calls to an ended replica: it checks five times a second, and a check takes a moment.
const NOTICED: Duration = Duration::from_secs(1);
/// Time between kill and restart: a kubelet takes at least as long.
const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// Concurrent calls, so that the API server opens several connections; it keeps at most 25 idle connections.
const CONCURRENT_CALLS: u32 = 25;
/// The API server keeps an idle connection for 90 s.
const STILL_OPEN: Duration = Duration::from_secs(75);
/// Sooner than pod-affinity's own limit, which is two minutes.
const CLOSED: Duration = Duration::from_secs(105);

pub(crate) async fn installed() -> (PooledTestbed, Installed) {
    let bed = fresh(1).await;
    let installed = bed.installed().clone();
    (bed, installed)
}

async fn installed_as_shipped() -> (PooledTestbed, Installed) {
    let bed = pool::bare().await;
    bed.add_nodes(&Nodes::new("node", 1)).await.unwrap();
    let installed = bed.install_pod_affinity_with(&[AS_SHIPPED]).await.unwrap();
    // A controller on a busy machine may lose its Lease and end; the testbed restarts it.
    bed.keep_alive(Part::Controller(0));
    bed.keep_alive(Part::Controller(1));
    (bed, installed)
}

#[e2e_test(first, webhook)]
async fn rolling_restarts_of_the_webhook_lose_no_call() {
    let _alone = alone().await;
    // The drain of a graceful shutdown saves the calls.
    let (bed, installed) = installed_as_shipped().await;
    let client = bed.client().await.unwrap();
    let before = Counted::now(&client).await;
    let load = Load::with_rate(&bed, GENTLE).await;
    let mut restarts = 0;
    for replica in [0, 1]
        .into_iter()
        .cycle()
        .take_while(|_| load.calls() < MANY_CALLS)
    {
        bed.stop(Part::Webhook(replica)).unwrap();
        bed.start_again(Part::Webhook(replica)).await.unwrap();
        bed.webhook_serves(&installed, replica).await.unwrap();
        restarts += 1;
    }
    let outcome = load.end().await;
    let counted = Counted::now(&client).await.since(before);
    println!(
        "{restarts} restarts: {} of {} calls lost; the API server counted {counted:?}",
        outcome.lost.len(),
        outcome.calls
    );
    assert!(outcome.lost.is_empty(), "{:?}", outcome.lost);
    let nothing = Counted {
        rejections: 0,
        let_through: 0,
        refused: 0,
    };
    assert_eq!(counted, nothing);
}

/// Calls that the killed replica was processing cannot be saved: the API server does not repeat them, because it cannot know
/// whether they were executed. Calls that reach the replica before the front has noticed its end cannot be saved either.
fn is_unavoidable(call: &Lost, kills: &[Kill]) -> bool {
    kills
        .iter()
        .any(|kill| call.ended > kill.sent && call.begun < kill.done + NOTICED)
}

/// A busy machine may end a process some time after the signal.
struct Kill {
    sent: Instant,
    done: Instant,
}

#[e2e_test(webhook)]
async fn a_killed_replica_loses_only_the_calls_in_flight_and_those_before_the_service_has_noticed() {
    let _alone = alone().await;
    let (bed, installed) = installed().await;
    let client = bed.client().await.unwrap();
    let before = Counted::now(&client).await;
    let load = Load::start(&bed).await;
    let mut kills = Vec::new();
    // The API server's connection leads to either replica, so killing both in turn hits the connection at least once.
    for replica in [0, 1, 0, 1, 0, 1] {
        let sent = Instant::now();
        bed.kill(Part::Webhook(replica)).unwrap();
        let done = Instant::now();
        kills.push(Kill { sent, done });
        sleep(RESTART_PAUSE).await;
        bed.start_again(Part::Webhook(replica)).await.unwrap();
        bed.webhook_serves(&installed, replica).await.unwrap();
    }
    let outcome = load.end().await;
    let counted = Counted::now(&client).await.since(before);
    println!(
        "{} kills: {} of {} calls lost {:?}; the API server counted {counted:?}",
        kills.len(),
        outcome.lost.len(),
        outcome.calls,
        outcome.causes()
    );
    let saveable: Vec<_> = outcome
        .lost
        .iter()
        .filter(|call| !is_unavoidable(call, &kills))
        .collect();
    assert!(saveable.is_empty(), "{saveable:?}");
    let lost = u64::try_from(outcome.lost.len()).unwrap();
    assert_eq!(
        (counted.rejections, counted.refused, counted.let_through),
        (lost, lost, 0)
    );
}

/// Open connections between the webhook's replicas and the API server, by both addresses.
fn connections(installed: &Installed) -> BTreeSet<String> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let open = table.lines().filter_map(|line| {
        let [_, ours, theirs, "01", ..] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            return None;
        };
        let (_, port) = ours.split_once(':')?;
        let port = u16::from_str_radix(port, 16).unwrap();
        let serves = installed.webhook_serving.contains(&port);
        serves.then(|| format!("{ours} {theirs}"))
    });
    open.collect()
}

/// If both sides may close an idle connection, one side eventually closes it while the other side sends a request.
#[e2e_test(first, webhook, second)]
async fn the_api_server_itself_closes_idle_connections_and_no_call_is_lost() {
    let (bed, installed) = installed().await;
    let nothing = Vec::<Lost>::new;
    assert_eq!(burst(&bed, CONCURRENT_CALLS).await, nothing());
    let open = connections(&installed);
    assert!(open.len() > 1, "{open:?}");
    sleep(STILL_OPEN).await;
    let now = connections(&installed);
    // Some connections may have been closed meanwhile, if an earlier test used them last.
    assert!(!now.is_disjoint(&open), "of {open:?} none is open");
    assert_eq!(burst(&bed, CONCURRENT_CALLS).await, nothing());
    bed.until(
        "the API server to close all its connections",
        CLOSED,
        async || match connections(&installed).len() {
            0 => Ok(()),
            open => Err(format!("{open} are open")),
        },
    )
    .await
    .unwrap();
}

/// A run whose second task is created while no webhook answers.
async fn loses_a_call(bed: &Testbed, name: &str) -> RunSpec {
    let client = bed.client().await.unwrap();
    let run = RunSpec::new("default", name)
        .task("a", &[])
        .task("b", &["a"])
        .opted_in("true")
        .ending("hang");
    create(bed, &run).await;
    bound_task(bed, &run, "a").await;
    let before = Counted::now(&client).await;
    kill_webhooks(bed);
    let_end(bed, &run).await;
    bed.until("a call to be lost", SOON, async || {
        match Counted::now(&client).await.since(before).rejections {
            0 => Err("none is lost"),
            _ => Ok(()),
        }
    })
    .await
    .unwrap();
    run
}

async fn webhooks_are_back(bed: &Testbed, installed: &Installed) {
    for replica in 0..2 {
        bed.start_again(Part::Webhook(replica)).await.unwrap();
        bed.webhook_serves(installed, replica).await.unwrap();
    }
}

#[e2e_test(webhook)]
async fn a_task_whose_pod_no_webhook_answers_for_fails_unless_tekton_is_told_to_retry() {
    let (bed, installed) = installed().await;
    let once = loses_a_call(&bed, "once").await;
    let failed = |run: &DynamicObject| matches!(runs::state(run), State::Failed(_));
    bed.until_run(&once, "to fail", SOON, failed).await.unwrap();
    webhooks_are_back(&bed, &installed).await;

    bed.feature_flags(&[("enable-wait-exponential-backoff", "true")])
        .await
        .unwrap();
    let again = loses_a_call(&bed, "again").await;
    webhooks_are_back(&bed, &installed).await;
    bed.until_succeeded(&again, SOON).await.unwrap();
    assert_eq!(nodes_of(&bed, &again).await.len(), 1);
}
