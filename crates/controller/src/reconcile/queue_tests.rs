//! The order of runs that wait for a node, and of retries.

use super::read_tests::methods;
use super::tests::held;
use super::*;
use crate::fixture::{Caches, Server, at, clock_of, node, reconciler, run, running, written};
use crate::turns;
use futures::StreamExt;
use futures::channel::mpsc::UnboundedReceiver;
use futures::future::FutureExt;
use placement::attempts::Rejection;
use placement::caps::Caps;
use placement::run::{HeldFrom, SpecStatus};
use serde_json::json;
use std::sync::atomic::{AtomicI64, Ordering};

const REFUSED: &str = "pod didn't trigger scale-up: 1 max node group size reached";

fn named(name: &str) -> Run {
    let mut run = held();
    run.key.name = name.to_owned();
    run.key.uid = format!("uid-of-{name}");
    run
}

/// The oldest run found no node, and an autoscaler adds none. The only node has another run.
fn full_pool() -> (Caches, Run) {
    let (mut caches, oldest) = unanswered_pool();
    caches.add_answer(&oldest, "cluster-autoscaler", "NotTriggerScaleUp", 1, REFUSED);
    (caches, oldest)
}

/// A full pool without an answer of an autoscaler.
fn unanswered_pool() -> (Caches, Run) {
    let mut caches = Caches::ready();
    let (oldest, on_node) = (named("oldest"), named("on-node"));
    caches.add_pod(&on_node, "p0", Some("n1"));
    caches.add_set(&oldest, "s1");
    caches.add_unschedulable_pod(&oldest, "p1", "0/1 nodes are available");
    (caches, oldest)
}

/// A reconciler, and the names of the runs that it triggers.
fn observed(caches: &Caches, server: &Server) -> (Reconciler, UnboundedReceiver<ObjectRef<PipelineRun>>) {
    let (mut reconciler, ..) = reconciler(caches, server);
    let (turns, triggers) = turns::turns();
    reconciler.memory = Memory::new(turns);
    (reconciler, triggers)
}

fn names(triggers: &mut UnboundedReceiver<ObjectRef<PipelineRun>>) -> Vec<String> {
    let next = std::iter::from_fn(|| triggers.next().now_or_never().flatten());
    next.map(|run| run.name).collect()
}

async fn step(reconciler: &Reconciler, run: &Run) -> &'static str {
    let plan = reconciler.reconcile(run.clone()).await.unwrap();
    plan.decision.name()
}

#[tokio::test]
async fn a_run_in_line_sends_no_request_until_the_older_run_has_its_node() {
    let mut server = Server::start();
    (0..3).for_each(|_| server.answer(200, written()));
    let (mut caches, oldest) = full_pool();
    let (reconciler, mut triggers) = observed(&caches, &server);
    let young = named("young");
    assert_eq!(step(&reconciler, &oldest).await, "enrol");
    assert_eq!(step(&reconciler, &young).await, "older_runs");
    assert_eq!(server.calls().len(), 1, "the labels of the oldest run");
    names(&mut triggers);
    caches.add_pod(&oldest, "p1", Some("n1"));
    assert_eq!(step(&reconciler, &oldest).await, "release");
    assert_eq!(names(&mut triggers), ["young"]);
    assert_eq!(step(&reconciler, &young).await, "create_placeholder");
}

#[tokio::test]
async fn a_new_leader_knows_the_older_run_before_it_reconciles_it() {
    let server = Server::start();
    let (mut caches, oldest) = full_pool();
    let view = json!({"metadata": {"creationTimestamp": oldest.created.map(|at| at.to_string())}});
    caches.add_held_run_with("oldest", "uid-of-oldest", &view);
    let (reconciler, _triggers) = observed(&caches, &server);
    assert_eq!(step(&reconciler, &named("young")).await, "older_runs");
}

#[tokio::test]
async fn a_new_leader_knows_which_runs_a_quota_rejected_before_it_reconciles_them() {
    let (mut caches, server) = (Caches::ready(), Server::start());
    for name in ["a", "b"] {
        let rejected = named(name);
        let created = json!({"metadata": {"creationTimestamp": rejected.created.map(|at| at.to_string())}});
        caches.add_held_run_with(name, &rejected.key.uid, &created);
        caches.add_observed_set(&rejected, "s1");
        caches.add_failed_create(&rejected, 1, "exceeded quota: q");
    }
    let (reconciler, _triggers) = observed(&caches, &server);
    assert_eq!(step(&reconciler, &named("young")).await, "older_runs");
}

#[tokio::test]
async fn the_end_of_a_run_triggers_the_next_run_of_each_line() {
    let mut server = Server::start();
    (0..2).for_each(|_| server.answer(200, written()));
    let (caches, oldest) = full_pool();
    let (reconciler, mut triggers) = observed(&caches, &server);
    let mut small = named("small");
    small.reserve = None;
    step(&reconciler, &oldest).await;
    step(&reconciler, &small).await;
    names(&mut triggers);
    let ended = Run {
        done: true,
        status: SpecStatus::Unset,
        ..named("on-node")
    };
    step(&reconciler, &ended).await;
    assert!(
        names(&mut triggers).is_empty(),
        "the oldest run shows that no node is free"
    );
    reconciler.forget(|uid| uid == "uid-of-oldest");
    assert_eq!(names(&mut triggers), ["small"]);
    step(&reconciler, &ended).await;
    assert_eq!(names(&mut triggers), ["small"]);
}

#[tokio::test]
async fn when_a_run_that_a_quota_rejected_is_deleted_the_next_run_tries() {
    let (reconciler, mut triggers) = observed(&Caches::ready(), &Server::start());
    for name in ["a", "b", "c"] {
        reconciler.memory.turns.rejected(&named(name), Rejection::Full);
    }
    reconciler.forget(|uid| uid == "uid-of-a");
    assert_eq!(names(&mut triggers), ["c"]);
}

#[tokio::test]
async fn runs_whose_placeholder_a_policy_denies_block_no_other_run() {
    let mut server = Server::start();
    let denied =
        json!({"kind": "Status", "status": "Failure", "code": 403, "message": "denied the request: no team"});
    (0..32).for_each(|_| server.answer(403, denied.clone()));
    server.answer(200, written());
    let (reconciler, _triggers) = observed(&Caches::ready(), &server);
    for number in 0..32 {
        let denied = named(&format!("denied-{number:02}"));
        reconciler.reconcile(denied).await.unwrap_err();
    }
    assert_eq!(step(&reconciler, &named("other")).await, "create_placeholder");
}

#[tokio::test]
async fn a_rejection_by_a_quota_lets_the_other_runs_of_the_namespace_wait() {
    let mut caches = Caches::ready();
    let first = named("first");
    caches.add_observed_set(&first, "s1");
    caches.add_failed_create(&first, 1, "denied by a policy");
    let (reconciler, _triggers) = observed(&caches, &Server::start());
    step(&reconciler, &first).await;
    assert!(!reconciler.memory.turns.is_rejected(&first));
    caches.add_failed_create(&first, 2, "exceeded quota: q");
    step(&reconciler, &first).await;
    assert!(reconciler.memory.turns.is_rejected(&first));
}

#[tokio::test]
async fn a_run_that_gets_no_placeholder_because_of_its_template_takes_no_turn() {
    let (reconciler, _triggers) = observed(&Caches::ready(), &Server::start());
    let invalid = Run {
        key: named("invalid").key,
        group: Some("uid-of-invalid".into()),
        ..running()
    };
    let message = |entry: &mut RunMemory| entry.recalled.invalid_template = Some("bad".into());
    reconciler.memory.with(&invalid.key.uid, message);
    step(&reconciler, &invalid).await;
    let other = named("other");
    reconciler.memory.turns.rejected(&other, Rejection::Full);
    let next = reconciler.memory.turns.next_in("ns");
    assert_eq!(next, [(other.key.uid, "other".to_owned())]);
}

#[tokio::test]
async fn without_the_right_to_read_events_each_run_gets_its_placeholder() {
    let mut server = Server::start();
    (0..2).for_each(|_| server.answer(200, written()));
    let (caches, oldest) = full_pool();
    let (mut reconciler, _triggers) = observed(&caches, &server);
    reconciler.stores.autoscalers = Caches::without_answers().stores.autoscalers;
    step(&reconciler, &oldest).await;
    assert_eq!(step(&reconciler, &named("young")).await, "create_placeholder");
}

#[tokio::test]
async fn only_nodes_without_a_placeholder_that_the_run_can_use_are_free() {
    let (mut caches, _) = full_pool();
    caches.add_node(node("n2", &json!({"metadata": {"labels": {"disk": "ssd"}}})));
    caches.add_node(node("n3", &json!({"spec": {"unschedulable": true}})));
    let failed = json!({"spec": {"nodeName": "n2"}, "status": {"phase": "Failed"}});
    caches.add_pod_of(&named("failed"), "p9", &failed);
    let free = |change: fn(&mut Run)| {
        let mut run = named("young");
        change(&mut run);
        let observed = Observation::new(run, Arc::default(), jiff::Timestamp::now());
        let free = caches.stores.free_nodes(&observed).into_iter();
        free.map(|node| node.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(free(|_| {}), ["n2"]);
    assert_eq!(
        free(|run| drop(run.template.node_selector.insert("disk".into(), "ssd".into()))),
        ["n2"]
    );
    assert!(free(|run| drop(run.template.node_selector.insert("disk".into(), "hdd".into()))).is_empty());
}

#[tokio::test]
async fn a_run_over_a_cap_gets_a_placeholder_when_another_run_is_gone() {
    let mut server = Server::start();
    (0..4).for_each(|_| server.answer(200, written()));
    let mut caches = Caches::ready();
    let first = named("first");
    caches.set_config(Config {
        caps: Caps {
            each_namespace: Some(1),
            ..Caps::default()
        },
        ..Config::default()
    });
    caches.add_set(&first, "s1");
    let view = json!({"metadata": {"creationTimestamp": first.created.map(|at| at.to_string())}});
    caches.add_held_run_with("first", "uid-of-first", &view);
    let (reconciler, mut triggers) = observed(&caches, &server);
    let mut second = named("second");
    assert_eq!(step(&reconciler, &second).await, "suspend_hold");
    second.held_from = HeldFrom::OverCap;
    second.group = Some(second.key.uid.clone());
    assert_eq!(step(&reconciler, &second).await, "older_runs");
    names(&mut triggers);
    reconciler.forget(|uid| uid == "uid-of-first");
    assert_eq!(names(&mut triggers), ["second"]);
    assert_eq!(step(&reconciler, &second).await, "date_hold");
    second.held_from = HeldFrom::Release(jiff::Timestamp::now());
    assert_eq!(step(&reconciler, &second).await, "create_placeholder");
}

#[tokio::test]
async fn runs_of_a_namespace_whose_quota_is_full_stay_in_line_and_keep_no_other_run_there() {
    let mut server = Server::start();
    (0..5).for_each(|_| server.answer(200, written()));
    let (mut caches, oldest) = unanswered_pool();
    let (reconciler, mut triggers) = observed(&caches, &server);
    let (waiting, mut other) = (named("waiting"), named("other"));
    "elsewhere".clone_into(&mut other.key.namespace);
    step(&reconciler, &oldest).await;
    assert_eq!(step(&reconciler, &waiting).await, "older_runs");
    assert_eq!(step(&reconciler, &other).await, "older_runs");
    let rejected = named("rejected");
    let reject = || reconciler.memory.turns.rejected(&rejected, Rejection::Full);
    reject();
    assert_eq!(step(&reconciler, &waiting).await, "older_runs");
    reconciler.forget(|uid| uid == rejected.key.uid);
    reject();
    caches.add_pod(&oldest, "p1", Some("n1"));
    names(&mut triggers);
    step(&reconciler, &oldest).await;
    assert_eq!(names(&mut triggers), ["other"]);
    assert_eq!(step(&reconciler, &other).await, "create_placeholder");
    reconciler.forget(|uid| uid == rejected.key.uid);
    assert_eq!(names(&mut triggers), ["waiting", "other"]);
    reject();
    assert_eq!(names(&mut triggers), ["other"]);
    caches.add_set(&rejected, "s2");
    caches.add_pod(&rejected, "p2", Some("n2"));
    let _visited = reconciler.reconcile(rejected).await;
    assert_eq!(names(&mut triggers), ["waiting", "other"]);
}

/// A reconciler at second 2 of a run whose placeholder's pod was rejected with this message, and its clock. Another run has just
/// retried.
async fn beside_a_retry(server: &mut Server, message: &str) -> (Reconciler, Arc<AtomicI64>) {
    server.answer(200, written());
    let mut caches = Caches::ready();
    caches.add_observed_set(&run(), "s1");
    caches.add_failed_create(&run(), 1, message);
    let (mut reconciler, ..) = reconciler(&caches, server);
    let seconds = Arc::default();
    reconciler.clock = clock_of(&seconds);
    reconciler.reconcile(run()).await.unwrap();
    seconds.store(2, Ordering::Relaxed);
    assert_eq!(reconciler.memory.turns.retry_pause(at(2)), None);
    (reconciler, seconds)
}

#[tokio::test]
async fn the_whole_cluster_retries_at_most_twice_a_second() {
    let mut server = Server::start();
    let (reconciler, seconds) = beside_a_retry(&mut server, "exceeded quota: q").await;
    let plan = reconciler.reconcile(run()).await.unwrap();
    assert_eq!(plan.again, Some(Duration::from_millis(500)));
    assert!(methods(&server).is_empty());
    seconds.store(3, Ordering::Relaxed);
    reconciler.reconcile(run()).await.unwrap();
    assert_eq!(methods(&server), ["PATCH"]);
}

#[tokio::test]
async fn the_first_adaptation_to_a_limit_range_is_no_retry() {
    let mut server = Server::start();
    let message = "minimum cpu usage per Container is 100m, but request is 50m";
    let (reconciler, _) = beside_a_retry(&mut server, message).await;
    reconciler.reconcile(run()).await.unwrap();
    assert_eq!(methods(&server), ["PATCH"]);
}
