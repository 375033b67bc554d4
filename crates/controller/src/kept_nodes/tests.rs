//! The pod at the end of a run, what the run records of it, and its deletion.

use super::*;
use crate::fixture::{
    Caches, Call, Server, at, clock_of, cluster, done, exposition, nothing, observed_pod, observed_set, run,
};
use crate::write::Effect;
use placement::config::Config;
use placement::node::NodeState;
use placement::plan::{Decision, Inputs, Observation, plan};
use placement::run::Run;
use prometheus_client::registry::Registry;
use serde_json::json;
use std::sync::atomic::{AtomicI64, Ordering};

const PODS: &str = "/api/v1/namespaces/tekton-pod-affinity/pods";

/// The lines of the requests at the end of a run whose node is kept.
async fn at_the_end(server: &Server) -> Vec<String> {
    let config = Config {
        keep_node_for: Duration::from_mins(5),
        ..Config::default()
    };
    let done = Run { done: true, ..run() };
    let observed = Observation {
        run: done,
        config: config.into(),
        statefulset: Some(observed_set()),
        pod: Some(observed_pod(Some("n1"))),
        node: NodeState::Usable,
        ..nothing()
    };
    let Decision::Act(step) = plan(&observed, &Inputs::default()).decision else {
        panic!("nothing to do")
    };
    let effect = cluster(server).write(&observed, &step).await.unwrap();
    assert_eq!(effect, Effect::Written);
    server.calls().into_iter().map(|call| call.line).collect()
}

#[tokio::test]
async fn the_pod_gets_the_first_free_name_before_the_placeholder_is_deleted() {
    let mut server = Server::start();
    server.refuse(409, "AlreadyExists", "pods \"a\" already exists");
    server.answer(201, json!({"metadata": {}}));
    server.answer(200, json!({"metadata": {}}));
    let lines = at_the_end(&server).await;
    let post = format!("POST {PODS}?");
    assert!(
        lines[0].starts_with(&post) && lines[1].starts_with(&post),
        "{lines:?}"
    );
    assert!(lines[2].starts_with("DELETE"), "{lines:?}");
}

#[tokio::test]
async fn a_pod_that_cannot_be_created_does_not_stop_the_end_of_the_run() {
    let mut server = Server::start();
    server.refuse(
        403,
        "Forbidden",
        "no PriorityClass with name pod-affinity-kept-node was found",
    );
    server.answer(200, json!({"metadata": {}}));
    let lines = at_the_end(&server).await;
    assert_eq!(lines.len(), 2);
    assert!(lines[1].starts_with("DELETE"), "{lines:?}");
}

/// The requests of a comparison at this second.
async fn compared(caches: &Caches, second: i64) -> Vec<Call> {
    let mut server = Server::start();
    for _ in 0..=AT_ONCE {
        server.answer(200, json!({"metadata": {}}));
    }
    let mut kept = KeptNodes::new(
        caches.stores.clone(),
        cluster(&server),
        Arc::new(move || at(second)),
        Metrics::register(&mut Registry::default()),
    );
    kept.compare().await;
    server.calls()
}

async fn deleted(caches: &Caches, second: i64) -> usize {
    let calls = compared(caches, second).await;
    calls
        .iter()
        .filter(|call| call.line.starts_with("DELETE"))
        .count()
}

#[tokio::test]
async fn a_pod_is_deleted_at_its_time_or_when_another_run_uses_the_node() {
    let mut caches = Caches::ready();
    caches.add_kept_node("kept", 10);
    caches.add_pod(&run(), "p1", Some("n1"));
    assert_eq!((deleted(&caches, 9).await, deleted(&caches, 10).await), (0, 1));
    caches.add_pod(&next(), "p2", Some("n1"));
    assert_eq!(deleted(&caches, 9).await, 0, "no run has this placeholder");
    caches.add_held_run("next", "u2");
    assert_eq!(deleted(&caches, 9).await, 1);
    caches.add_pod(&next(), "p2", Some("n2"));
    assert_eq!(deleted(&caches, 9).await, 0);
}

#[tokio::test]
async fn a_new_run_with_the_name_of_the_run_that_kept_the_node_uses_the_node() {
    let mut caches = Caches::ready();
    caches.add_kept_node("kept", 10);
    for (uid, deletions) in [("u1", 0), ("u2", 1)] {
        caches.add_held_run("build", uid);
        let mut build = run();
        build.key.uid = uid.to_owned();
        caches.add_pod(&build, uid, Some("n1"));
        assert_eq!(deleted(&caches, 9).await, deletions, "{uid}");
    }
}

fn next() -> Run {
    let mut next = run();
    (next.key.name, next.key.uid) = ("next".to_owned(), "u2".to_owned());
    next
}

/// The run build is done, and records this second.
fn record(caches: &mut Caches, second: Option<i64>) {
    let recorded = second.map(|second| at(second).to_string());
    let annotations = json!({keys::HOLD: null, keys::KEPT_UNTIL: recorded});
    let mut changes = json!({"metadata": {"annotations": annotations}});
    json_patch::merge(&mut changes, &done());
    caches.add_held_run_with("build", "u1", &changes);
}

/// The second that the comparison records on the run.
async fn corrected(caches: &Caches, second: i64) -> Option<i64> {
    let calls = compared(caches, second).await;
    let call = calls.iter().find(|call| call.line.starts_with("PATCH"))?;
    let until = call.body["metadata"]["annotations"][keys::KEPT_UNTIL]
        .as_str()
        .unwrap();
    let until: Timestamp = until.parse().unwrap();
    Some(until.duration_since(at(0)).as_secs())
}

#[tokio::test]
async fn a_done_run_records_until_when_its_node_is_kept() {
    let mut caches = Caches::ready();
    caches.add_kept_node("kept", 10);
    caches.add_held_run("build", "u1");
    assert_eq!(
        compared(&caches, 3).await.len(),
        0,
        "the run is not done in the cache"
    );
    record(&mut caches, None);
    let [call] = compared(&caches, 3).await.try_into().unwrap();
    let line = "PATCH /apis/tekton.dev/v1/namespaces/ns/pipelineruns/build?&fieldManager=pod-affinity";
    assert_eq!(call.line, line);
    let annotations = json!({keys::KEPT_UNTIL: at(10).to_string()});
    let metadata = json!({"uid": "u1", "resourceVersion": "1", "annotations": annotations});
    assert_eq!(call.body, json!({"metadata": metadata}));
    record(&mut caches, Some(10));
    assert_eq!(compared(&caches, 3).await.len(), 0);
}

#[tokio::test]
async fn the_record_is_corrected_when_the_pod_is_gone_earlier() {
    let mut caches = Caches::ready();
    record(&mut caches, Some(10));
    assert_eq!(corrected(&caches, 3).await, Some(3), "preempted");
    assert_eq!(corrected(&caches, 10).await, None, "at its time");
    caches.add_kept_node("kept", 10);
    assert_eq!(corrected(&caches, 12).await, None, "at its time");
    caches.add_held_run("next", "u2");
    caches.add_pod(&next(), "p2", Some("n1"));
    let lines = compared(&caches, 3).await.into_iter().map(|call| call.line);
    let verbs: Vec<_> = lines
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect();
    assert_eq!(verbs, ["PATCH", "DELETE"], "used by the next run");
    record(&mut caches, Some(3));
    assert_eq!(corrected(&caches, 4).await, None, "recorded already");
}

#[tokio::test]
async fn nothing_is_corrected_before_the_pods_are_listed_and_only_some_records_at_once() {
    let mut unlisted = Caches::empty();
    record(&mut unlisted, Some(10));
    assert_eq!(compared(&unlisted, 3).await.len(), 0);
    let mut caches = Caches::ready();
    let annotations = json!({keys::HOLD: null, keys::KEPT_UNTIL: at(1000).to_string()});
    let mut forged = json!({"metadata": {"annotations": annotations, "labels": {keys::OPT_IN: null}}});
    json_patch::merge(&mut forged, &done());
    caches.add_held_run_with("unlabelled", "u0", &forged);
    assert_eq!(compared(&caches, 3).await.len(), 0);
    forged["metadata"]["labels"] = json!({});
    for number in 0..2 * AT_ONCE {
        caches.add_held_run_with(&format!("run-{number}"), &format!("u-{number}"), &forged);
    }
    assert_eq!(compared(&caches, 3).await.len(), AT_ONCE);
}

#[tokio::test]
async fn the_time_of_kept_nodes_is_counted_once() {
    let server = Server::start();
    let (mut caches, mut registry) = (Caches::ready(), Registry::default());
    caches.add_kept_node("kept", 100);
    let (seconds, metrics) = (Arc::new(AtomicI64::new(10)), Metrics::register(&mut registry));
    let mut kept = KeptNodes::new(
        caches.stores.clone(),
        cluster(&server),
        clock_of(&seconds),
        metrics,
    );
    for second in [10, 14, 15] {
        seconds.store(second, Ordering::Relaxed);
        kept.compare().await;
    }
    let text = exposition(&registry);
    let line = "kept_node_seconds_total{run_namespace=\"ns\"} 5.0";
    assert!(text.contains(line), "{text}");
}
