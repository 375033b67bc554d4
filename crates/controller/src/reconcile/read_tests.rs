//! Which inputs a reconciliation reads, how often, and in whose turn.

use super::tests::{held, written};
use super::*;
use crate::fixture::{Caches, Server, clock_of, reconciler, run};
use placement::keys;
use placement::run::SpecStatus;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;

impl Reconciler {
    /// Reads one group of inputs.
    pub(crate) async fn read_one(&self, read: Read, observed: &mut Observation) -> Result<Inputs, StepError> {
        let mut inputs = Inputs::default();
        self.read(read, observed, &mut inputs).await?;
        Ok(inputs)
    }

    /// Reads what the plan misses, until the plan misses nothing.
    pub(crate) async fn read_all(&self, observed: &mut Observation) -> Result<Inputs, StepError> {
        let mut inputs = Inputs::default();
        while let Decision::Read(read) = plan(observed, &inputs).decision {
            self.read(read, observed, &mut inputs).await?;
        }
        Ok(inputs)
    }
}

/// The methods of the calls so far.
fn methods(server: &Server) -> Vec<String> {
    let calls = server.calls().into_iter();
    calls
        .map(|call| call.line.split(' ').next().unwrap_or_default().to_owned())
        .collect()
}

/// Both runs of a namespace with room for three StatefulSets, at the same time; the methods of the calls, in order.
async fn at_the_same_time(other: Run) -> Vec<String> {
    let mut server = Server::start();
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"count/statefulsets.apps": "3"}}});
    for _ in 0..2 {
        let quotas = json!({"metadata": {}, "items": [quota]});
        server.answer(200, quotas.clone());
        server.answer(200, json!({"metadata": {}, "items": []}));
        server.answer(200, quotas);
        server.answer(201, written());
    }
    let mut caches = Caches::ready();
    let claim = json!({"name": "w", "volumeClaimTemplate": {}});
    caches.add_held_run_with("build", "u1", &json!({"spec": {"workspaces": [claim]}}));
    let (reconciler, ..) = reconciler(&caches, &server);
    let with_assistant = Run {
        templates: 1,
        ..held()
    };
    let both = (reconciler.reconcile(with_assistant), reconciler.reconcile(other));
    let (first, second) = tokio::join!(both.0, both.1);
    assert!(first.is_ok() && second.is_ok(), "{first:?}, {second:?}");
    methods(&server)
}

#[tokio::test]
async fn runs_look_for_places_in_a_quota_of_sets_and_take_them_one_after_the_other() {
    for templates in [0, 1] {
        let mut other = Run { templates, ..held() };
        other.key.uid = "u2".into();
        let calls = Box::pin(at_the_same_time(other)).await;
        let turn = ["GET", "GET", "GET", "PATCH"];
        assert_eq!(calls, [turn, turn].concat(), "{templates}");
    }
}

#[tokio::test]
async fn a_run_keeps_its_turn_until_its_placeholder_is_created() {
    let mut server = Server::start();
    server.answer(200, json!({"metadata": {}, "items": []}));
    server.hang();
    let (reconciler, ..) = reconciler(&Caches::ready(), &server);
    let creates = async {
        while methods(&server) != ["GET", "PATCH"] {
            tokio::task::yield_now().await;
        }
        reconciler.quota_lock.try_lock().is_err()
    };
    let with_assistant = Run {
        templates: 1,
        ..held()
    };
    tokio::select! {
        is_taken = creates => assert!(is_taken),
        end = reconciler.reconcile(with_assistant) => panic!("the request is not answered: {end:?}"),
    }
}

#[tokio::test]
async fn a_run_counts_what_became_of_the_others_while_it_waited_for_its_turn() {
    let mut server = Server::start();
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"count/statefulsets.apps": "2"}}});
    for items in [json!([quota]), json!([]), json!([quota])] {
        server.answer(200, json!({"metadata": {}, "items": items}));
    }
    let mut caches = Caches::ready();
    let (reconciler, ..) = reconciler(&caches, &server);
    let other = async {
        let turn = reconciler.quota_lock.lock().await;
        tokio::task::yield_now().await;
        let claim = json!({"name": "w", "volumeClaimTemplate": {}});
        let released = json!({
            "metadata": {"labels": {keys::GROUP: "u2"}},
            "spec": {"status": null, "workspaces": [claim]},
        });
        caches.add_held_run_with("other", "u2", &released);
        drop(turn);
    };
    let with_assistant = Run {
        templates: 1,
        ..held()
    };
    let ((), plan) = tokio::join!(other, reconciler.reconcile(with_assistant));
    let plan = plan.unwrap();
    assert_eq!(plan.decision.name(), "places", "{plan:?}");
}

#[tokio::test]
async fn a_run_that_goes_on_to_wait_is_told_what_an_autoscaler_says() {
    let mut server = Server::start();
    let event = |reporter: &str, reason: &str, second: u32, message: &str| {
        let at = format!("2026-01-01T00:00:{second:02}Z");
        json!({
            "metadata": {}, "involvedObject": {}, "reason": reason, "message": message, "lastTimestamp": at,
            "source": {"component": reporter},
        })
    };
    server.answer(
        200,
        json!({"metadata": {}, "items": [
            event("cluster-autoscaler", "NotTriggerScaleUp", 1, "not yet"),
            event("cluster-autoscaler", "NotTriggerScaleUp", 2, "max size reached"),
            event("default-scheduler", "FailedScheduling", 3, "0/3 nodes are available."),
        ]}),
    );
    let mut caches = Caches::ready();
    caches.add_set(&run(), "s1");
    caches.add_unschedulable_pod(&run(), "p1", "0/3 nodes are available.");
    let (mut reconciler, mut event_writer, _) = reconciler(&caches, &server);
    let seconds = Arc::default();
    reconciler.clock = clock_of(&seconds);
    let waiting = Run {
        group: Some("u1".into()),
        ..run()
    };
    let (_, inputs) = reconciler.observe(waiting.clone()).await.unwrap();
    assert!(inputs.autoscaler.get().is_ok(), "no autoscaler has answered yet");
    for second in [60, 62, 64] {
        seconds.store(second, Ordering::Relaxed);
        reconciler.reconcile(waiting.clone()).await.unwrap();
    }
    let notes = event_writer.notes();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(
        notes[0].contains("The autoscaler reports: max size reached."),
        "{notes:?}"
    );
    let calls = server.calls();
    assert_eq!(calls.len(), 1, "read once, remembered after that: {calls:?}");
    let line = "GET /api/v1/namespaces/ns/events?&fieldSelector=involvedObject.uid%3Dp1";
    assert_eq!(calls[0].line, line);
}

#[tokio::test]
async fn what_a_placeholder_is_made_of_is_read_once_a_second_and_at_once_after_a_failure() {
    let mut server = Server::start();
    let reads = |server: &mut Server| {
        server.refuse(404, "NotFound", "persistentvolumeclaims \"source\" not found");
        server.answer(200, json!({"metadata": {}, "items": []}));
    };
    reads(&mut server);
    server.answer(201, written());
    reads(&mut server);
    server.refuse(403, "Forbidden", "exceeded quota: q");
    reads(&mut server);
    let (mut reconciler, ..) = reconciler(&Caches::ready(), &server);
    let seconds = Arc::default();
    reconciler.clock = clock_of(&seconds);
    let held = Run {
        claims: vec!["source".into()],
        ..run()
    };
    let mut calls: Vec<&str> = Vec::new();
    for (second, expected) in [
        (0, ["GET", "GET", "PATCH"].as_slice()),
        (0, &[]),
        (1, &["GET", "GET", "PATCH"]),
        (1, &["GET", "GET"]),
        (1, &[]),
    ] {
        seconds.store(second, Ordering::Relaxed);
        drop(reconciler.reconcile(held.clone()).await);
        calls.extend(expected);
        assert_eq!(methods(&server), calls, "{second}");
    }
}

/// A run that runs; its placeholder is on node n1.
fn running() -> (Run, Caches) {
    let running = Run {
        status: SpecStatus::Unset,
        hold: false,
        group: Some("u1".into()),
        node: Some("n1".into()),
        ..run()
    };
    let mut caches = Caches::ready();
    caches.add_set(&run(), "s1");
    caches.add_pod(&run(), "p1", Some("n1"));
    (running, caches)
}

#[tokio::test]
async fn a_rejection_by_a_quota_is_looked_into_until_it_concerned_another_run_or_was_dealt_with() {
    let rejected = |items: Value| (200, json!({"metadata": {}, "items": items}));
    let condition = json!({"type": "Succeeded", "status": "Unknown", "reason": "ExceededResourceQuota"});
    let task = json!({"metadata": {"name": "build-test"}, "status": {"conditions": [condition]}});
    let mut server = Server::start();
    for (status, body) in [
        rejected(json!([])),
        rejected(json!([task])),
        (200, written()),
        rejected(json!([task])),
        (200, written()),
    ] {
        server.answer(status, body);
    }
    let (running, mut caches) = running();
    let (mut reconciler, ..) = reconciler(&caches, &server);
    let seconds = Arc::default();
    reconciler.clock = clock_of(&seconds);
    let mut calls: Vec<&str> = Vec::new();
    // The rejection, whether the placeholder has made room, and which calls follow.
    for (second, rejection, away, expected) in [
        (0, "7", false, ["GET"].as_slice()),
        (2, "7", false, &[]),
        (4, "8", false, &["GET", "PATCH"]),
        (6, "8", true, &["GET", "PATCH"]),
        (8, "8", true, &[]),
    ] {
        seconds.store(second, Ordering::Relaxed);
        caches.add_refusal("ns", rejection);
        if away {
            caches.add_set_of(&running, "s1", &json!({"spec": {"replicas": 0}}));
            caches.remove_pod(&running);
        }
        reconciler.reconcile(running.clone()).await.unwrap();
        calls.extend(expected);
        assert_eq!(methods(&server), calls, "{second}");
    }
}
