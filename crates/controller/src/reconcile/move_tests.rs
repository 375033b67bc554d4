//! Looks at runs that leave their node.

use crate::fixture::{
    Caches, Server, exposition, is_at_rest, node, reconciler, run, running, stuck_task, written,
};
use jiff::{SignedDuration, Timestamp};
use placement::config::Config;
use placement::keys;
use placement::run::Run;
use serde_json::{Value, json};
use std::time::Duration;

fn ago(seconds: i64) -> Timestamp {
    Timestamp::now() - SignedDuration::from_secs(seconds)
}

/// Its placeholder is on node n1, and a task has found no place there for so long.
fn stuck(seconds: i64) -> Caches {
    let mut caches = Caches::ready();
    caches.add_set(&run(), "s1");
    caches.add_pod(&run(), "p1", Some("n1"));
    caches.add_task(stuck_task(&run(), "large-pod", ago(seconds)));
    caches
}

fn list(items: &Value) -> Value {
    json!({"metadata": {}, "items": items})
}

/// Answers for the count, which finds nothing, and for the write.
fn lets_go(server: &mut Server) {
    server.answer(200, node("n1", &json!({})));
    server.answer(200, list(&json!([])));
    server.answer(200, written());
}

#[tokio::test]
async fn a_stuck_task_is_given_time_and_nothing_is_asked_meanwhile() {
    let server = Server::start();
    let (reconciler, ..) = reconciler(&stuck(2), &server);
    let again = reconciler.reconcile(running()).await.unwrap().again.unwrap();
    assert!(again <= Duration::from_secs(8), "{again:?}");
    assert!(server.calls().is_empty());
}

#[tokio::test]
async fn tasks_are_counted_and_the_node_is_given_up_in_one_reconciliation() {
    let mut server = Server::start();
    lets_go(&mut server);
    let (reconciler, mut event_writer, registry) = reconciler(&stuck(60), &server);
    reconciler.reconcile(running()).await.unwrap();
    assert_eq!(event_writer.reasons(), ["MovedOff"]);
    assert_eq!(server.calls().len(), 3);
    let text = exposition(&registry);
    assert!(
        text.contains("moves_total{cause=\"task_does_not_fit\"} 1"),
        "{text}"
    );
}

#[tokio::test]
async fn a_run_does_not_give_up_its_node_twice_while_the_cache_is_stale() {
    let mut server = Server::start();
    lets_go(&mut server);
    let (reconciler, ..) = reconciler(&stuck(60), &server);
    reconciler.reconcile(running()).await.unwrap();
    let settled = reconciler.reconcile(running()).await.unwrap();
    assert!(settled.again.is_some());
    assert_eq!(server.calls().len(), 3);
}

#[tokio::test]
async fn a_live_task_keeps_the_node_and_is_counted_once_a_second_at_most() {
    let mut server = Server::start();
    let live = json!({"metadata": {}, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}});
    server.answer(200, node("n1", &json!({})));
    server.answer(200, list(&json!([live])));
    let (reconciler, mut event_writer, _) = reconciler(&stuck(60), &server);
    for _ in 0..3 {
        reconciler.reconcile(running()).await.unwrap();
    }
    assert_eq!(
        event_writer.task_runs(),
        [("WaitingForRoom", Some("large".to_owned()))]
    );
    assert_eq!(server.calls().len(), 2);
}

#[tokio::test]
async fn with_the_feature_off_nothing_is_asked_and_nothing_done() {
    let server = Server::start();
    let caches = stuck(60);
    caches.set_config(Config {
        move_after: None,
        ..Config::default()
    });
    let (reconciler, ..) = reconciler(&caches, &server);
    assert!(is_at_rest(&reconciler.reconcile(running()).await.unwrap()));
    assert!(server.calls().is_empty());
}

#[tokio::test]
async fn a_failed_count_is_logged_and_retried_with_backoff() {
    let mut server = Server::start();
    server.refuse(503, "", "later");
    let (reconciler, _, registry) = reconciler(&stuck(60), &server);
    reconciler.reconcile(running()).await.unwrap_err();
    let paused = reconciler.reconcile(running()).await.unwrap();
    assert!(paused.again.unwrap() <= reconciler.retry_after("u1"));
    assert_eq!(server.calls().len(), 1);
    assert!(exposition(&registry).contains("step=\"count\",reason=\"unavailable\""));
}

#[tokio::test]
async fn the_placeholder_follows_once_no_task_waits_and_the_time_without_a_node_is_measured() {
    let mut server = Server::start();
    lets_go(&mut server);
    let assistant = json!({"metadata": {"name": "aa-0", "uid": "a1"}, "spec": {"nodeName": "n1"}});
    server.answer(200, list(&json!([assistant])));
    (0..3).for_each(|_| server.answer(200, written()));
    let mut caches = stuck(60);
    let (reconciler, mut event_writer, registry) = reconciler(&caches, &server);
    reconciler.reconcile(running()).await.unwrap();
    let left = json!({"metadata": {"annotations": {keys::LEFT: "n1"}}});
    caches.add_set_of(&run(), "s1", &json!({"spec": {"replicas": 0, "template": left}}));
    caches.remove_pod(&run());
    let mut bound = stuck_task(&run(), "large-pod", ago(60));
    bound["spec"]["nodeName"] = json!("n2");
    caches.add_task(bound);
    reconciler.reconcile(running()).await.unwrap();
    let calls = server.calls();
    assert!(
        calls[4].line.starts_with("DELETE") && calls[4].line.contains("/aa-0"),
        "{}",
        calls[4].line
    );
    assert_eq!(calls[5].body[2]["value"], 1);
    caches.add_node(node("n2", &json!({})));
    caches.add_set(&run(), "s1");
    caches.add_pod(&run(), "p2", Some("n2"));
    reconciler.reconcile(running()).await.unwrap();
    assert_eq!(event_writer.reasons(), ["MovedOff", "Moved"]);
    assert!(exposition(&registry).contains("nodeless_seconds_count 1"));
}

#[tokio::test]
async fn a_pod_that_cannot_be_resized_is_recreated_small_in_the_next_look() {
    let mut server = Server::start();
    server.answer(200, written());
    server.refuse(422, "Invalid", "node without support for resize");
    server.answer(200, written());
    server.answer(200, json!({"kind": "Status", "status": "Success"}));
    let mut caches = Caches::ready();
    caches.add_set(&run(), "s1");
    let big = json!({"name": keys::PLACEHOLDER, "resources": {"requests": {"cpu": "4", "memory": "100Mi"}}});
    let pod = json!({
        "metadata": {"annotations": {keys::RESERVE: "cpu=4"}},
        "spec": {"nodeName": "n1", "containers": [big]},
    });
    caches.add_pod_of(&run(), "p1", &pod);
    let (reconciler, ..) = reconciler(&caches, &server);
    let held = Run {
        created: Some(Timestamp::now()),
        reserve: Some("cpu=4".into()),
        ..run()
    };
    let settled = reconciler.reconcile(held.clone()).await.unwrap();
    assert_eq!(settled.again, Some(Duration::ZERO));
    reconciler.reconcile(held.clone()).await.unwrap();
    let lines: Vec<_> = server.calls().into_iter().map(|call| call.line).collect();
    assert!(
        lines[1].contains("/resize?") && lines[3].starts_with("DELETE"),
        "{lines:?}"
    );
}

#[tokio::test]
async fn an_invalid_reserve_is_reported_once() {
    let mut server = Server::start();
    server.answer(201, written());
    let (reconciler, mut event_writer, _) = reconciler(&Caches::ready(), &server);
    let held = Run {
        created: Some(Timestamp::now()),
        reserve: Some("cpu=much".into()),
        ..run()
    };
    reconciler.reconcile(held.clone()).await.unwrap();
    assert_eq!(event_writer.reasons(), ["ReserveIgnored", "Held"]);
}
