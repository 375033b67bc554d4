//! Which inputs a reconciliation reads, how often, and in whose turn.

use super::tests::held;
use super::*;
use crate::fixture::{Caches, Server, at, clock_of, reconciler, run, running, written};
use jiff::SignedDuration;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;

impl Reconciler {
    /// Reads one group of inputs.
    pub(crate) async fn read_one(&self, read: Read, observed: &mut Observation) -> Result<Inputs, StepError> {
        let mut inputs = Inputs::default();
        self.read(read, observed, &mut inputs, &mut None).await?;
        Ok(inputs)
    }

    /// Reads what the plan misses, until the plan misses nothing.
    pub(crate) async fn read_all(&self, observed: &mut Observation) -> Result<Inputs, StepError> {
        let mut inputs = Inputs::default();
        while let Decision::Read(read) = plan(observed, &inputs).decision {
            self.read(read, observed, &mut inputs, &mut None).await?;
        }
        Ok(inputs)
    }
}

/// The methods of the calls so far.
pub(super) fn methods(server: &Server) -> Vec<String> {
    let calls = server.calls().into_iter();
    calls
        .map(|call| call.line.split(' ').next().unwrap_or_default().to_owned())
        .collect()
}

fn with_assistant() -> Run {
    Run {
        templates: 1,
        ..held()
    }
}

/// A namespace with a quota of StatefulSets, and a run for which Tekton creates one.
fn with_quota() -> Caches {
    let mut caches = Caches::ready();
    caches.add_quota(
        &json!({"count/statefulsets.apps": "3"}),
        &json!({"count/statefulsets.apps": "0"}),
    );
    let volume = json!({"name": "w", "volumeClaimTemplate": {}});
    caches.add_held_run_with("build", "u1", &json!({"spec": {"workspaces": [volume]}}));
    caches
}

/// Answers the reads of a quota that allows so many StatefulSets.
fn allow(server: &mut Server, hard: &str) {
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"count/statefulsets.apps": hard}}});
    for items in [json!([quota]), json!([]), json!([quota])] {
        server.answer(200, json!({"metadata": {}, "items": items}));
    }
}

#[tokio::test]
async fn one_run_of_a_namespace_at_a_time_counts_a_quota_and_creates_its_placeholder() {
    for templates in [0, 1] {
        let mut server = Server::start();
        for _ in 0..2 {
            allow(&mut server, "4");
            server.answer(201, written());
        }
        let (reconciler, ..) = reconciler(&with_quota(), &server);
        let mut other = Run { templates, ..held() };
        other.key.uid = "u2".into();
        let both = tokio::join!(
            reconciler.reconcile(with_assistant()),
            reconciler.reconcile(other.clone())
        );
        assert_eq!(both.1.unwrap().again, Some(BUSY), "the other run has the turn");
        let one = ["GET", "GET", "GET", "PATCH"];
        assert_eq!(methods(&server), one, "{templates}");
        reconciler.reconcile(other).await.unwrap();
        assert_eq!(methods(&server), [one, one].concat(), "{templates}");
    }
}

#[tokio::test]
async fn a_run_keeps_its_turn_until_its_placeholder_is_created() {
    let mut server = Server::start();
    allow(&mut server, "3");
    server.hang();
    let (reconciler, ..) = reconciler(&with_quota(), &server);
    let creates = async {
        while methods(&server).last().is_none_or(|last| last != "PATCH") {
            tokio::task::yield_now().await;
        }
        reconciler.memory.turns.is_busy(&run())
    };
    tokio::select! {
        is_taken = creates => assert!(is_taken),
        end = reconciler.reconcile(with_assistant()) => panic!("the request is not answered: {end:?}"),
    }
}

#[tokio::test]
async fn a_run_keeps_its_turn_while_other_runs_of_its_namespace_are_reconciled_and_deleted() {
    let server = Server::start();
    let (reconciler, ..) = reconciler(&Caches::ready(), &server);
    let turns = &reconciler.memory.turns;
    let turn = turns.quota(&run());
    let unlabelled = Run {
        opt_in: None,
        hold: false,
        ..run()
    };
    reconciler.reconcile(unlabelled).await.unwrap();
    turns.forget(|_| true);
    assert!(turns.is_busy(&run()));
    drop(turn);
    assert!(!turns.is_busy(&run()));
}

#[tokio::test]
async fn runs_of_a_namespace_without_a_quota_of_statefulsets_need_no_turn_and_no_count() {
    let mut server = Server::start();
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "3"}}});
    server.answer(200, json!({"metadata": {}, "items": [quota]}));
    server.answer(201, written());
    let (reconciler, ..) = reconciler(&Caches::ready(), &server);
    reconciler.reconcile(with_assistant()).await.unwrap();
    assert_eq!(methods(&server), ["GET", "PATCH"]);
}

#[tokio::test]
async fn with_coschedule_disabled_no_quota_keeps_room_for_assistants() {
    let mut server = Server::start();
    server.answer(201, written());
    let mut caches = with_quota();
    caches.set_coschedule("disabled");
    let (reconciler, ..) = reconciler(&caches, &server);
    reconciler.reconcile(with_assistant()).await.unwrap();
    assert_eq!(methods(&server), ["PATCH"]);
}

/// The watch of quotas may have started again when the quota was created.
#[tokio::test]
async fn a_quota_that_the_cache_lacks_keeps_its_room_for_tektons_assistant() {
    let mut server = Server::start();
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"count/statefulsets.apps": "1"}}});
    server.answer(200, json!({"metadata": {}, "items": [quota]}));
    allow(&mut server, "1");
    let (reconciler, ..) = reconciler(&Caches::ready(), &server);
    let plan = reconciler.reconcile(with_assistant()).await.unwrap();
    assert_eq!(plan.decision.name(), "places");
    assert_eq!(methods(&server), ["GET"; 4]);
}

/// The API server does not answer the first attempt.
#[tokio::test]
async fn the_time_of_the_first_attempt_to_free_places_is_remembered_from_the_end_of_the_hold_on() {
    let mut server = Server::start();
    let (reconciler, ..) = reconciler(&with_quota(), &server);
    let since = || {
        reconciler
            .memory
            .peek("u1", |entry| entry.recalled.makes_room_since)
    };
    let mut observed = reconciler.observe(with_assistant()).await.unwrap();
    let created = observed.run.created.unwrap();
    let mut at_second = async |seconds| {
        observed.now = created + SignedDuration::from_secs(seconds);
        server.refuse(403, "Forbidden", "statefulsets.apps is forbidden");
        drop(reconciler.read_one(Read::Quota, &mut observed).await);
        observed.now
    };
    at_second(599).await;
    assert_eq!(since(), None);
    let first = at_second(600).await;
    at_second(610).await;
    assert_eq!(since(), Some(first));
}

#[tokio::test]
async fn the_time_of_the_first_attempt_to_free_places_is_remembered_for_a_run_that_opted_out() {
    let mut server = Server::start();
    server.refuse(403, "Forbidden", "statefulsets.apps is forbidden");
    let (reconciler, ..) = reconciler(&with_quota(), &server);
    let opted_out = Run {
        opt_in: None,
        ..with_assistant()
    };
    let mut observed = reconciler.observe(opted_out).await.unwrap();
    drop(reconciler.read_one(Read::Quota, &mut observed).await);
    let since = |entry: &RunMemory| entry.recalled.makes_room_since;
    assert_eq!(reconciler.memory.peek("u1", since), Some(observed.now));
}

/// The cache still has the other run as held.
#[tokio::test]
async fn the_assistant_of_a_run_that_was_released_a_moment_before_has_its_place() {
    let mut server = Server::start();
    let mut caches = with_quota();
    let volume = json!({"name": "w", "volumeClaimTemplate": {}});
    caches.add_held_run_with("other", "u2", &json!({"spec": {"workspaces": [volume]}}));
    let (reconciler, ..) = reconciler(&caches, &server);
    let mut observed = reconciler.observe(with_assistant()).await.unwrap();
    for is_released in [false, true] {
        reconciler.memory.with("u2", |entry| entry.released = is_released);
        allow(&mut server, "1");
        let inputs = reconciler.read_one(Read::Quota, &mut observed).await.unwrap();
        assert_eq!(inputs.quota.as_ref().unwrap().shortage.is_some(), is_released);
    }
}

/// A release asks the API server only if the cache has a quota of StatefulSets.
#[tokio::test]
async fn for_a_run_with_a_placeholder_the_cached_quotas_count() {
    for (mut caches, asked) in [(Caches::ready(), 0), (with_quota(), 3)] {
        caches.add_set(&with_assistant(), "s1");
        let mut server = Server::start();
        allow(&mut server, "3");
        let (reconciler, ..) = reconciler(&caches, &server);
        let mut observed = reconciler.observe(with_assistant()).await.unwrap();
        reconciler.read_one(Read::Quota, &mut observed).await.unwrap();
        assert_eq!(methods(&server).len(), asked);
    }
}

/// Answers the read of a run whose only task has this image and requests a CPU.
fn define(server: &mut Server, image: &str) {
    let step = json!({"image": image, "computeResources": {"requests": {"cpu": "1"}}});
    let pipeline = json!({"tasks": [{"name": "a", "taskSpec": {"steps": [step]}}]});
    let run = json!({"metadata": {"name": "build", "uid": "u1"}, "spec": {"pipelineSpec": pipeline}});
    server.answer(200, json!({"metadata": {}, "items": [run]}));
}

fn that_pulls_images(reserve: Option<&str>) -> Run {
    Run {
        pull_images: Some("true".into()),
        reserve: reserve.map(str::to_owned),
        ..held()
    }
}

/// The image volumes of the placeholder in the last request.
fn image_volumes(server: &Server) -> Value {
    server.calls().pop().unwrap().body["spec"]["template"]["spec"]["volumes"].clone()
}

#[tokio::test]
async fn the_definitions_are_read_once_for_the_images_and_for_the_reserve() {
    for (reserve, cpu) in [(None, "50m"), (Some("auto"), "1100m")] {
        let mut server = Server::start();
        define(&mut server, "golang");
        server.answer(201, written());
        let (reconciler, ..) = reconciler(&Caches::ready(), &server);
        reconciler.reconcile(that_pulls_images(reserve)).await.unwrap();
        assert_eq!(methods(&server), ["GET", "PATCH"], "{reserve:?}");
        let image = json!({"reference": "golang", "pullPolicy": "IfNotPresent"});
        assert_eq!(
            image_volumes(&server),
            json!([{"name": "image-0", "image": image}])
        );
        let pod = &server.calls()[1].body["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][0]["resources"]["requests"]["cpu"], cpu);
    }
}

#[tokio::test]
async fn a_run_with_an_automatic_reserve_alone_pulls_no_images() {
    let mut server = Server::start();
    define(&mut server, "golang");
    server.answer(201, written());
    let (reconciler, ..) = reconciler(&Caches::ready(), &server);
    let run = Run {
        pull_images: None,
        ..that_pulls_images(Some("auto"))
    };
    reconciler.reconcile(run).await.unwrap();
    assert_eq!(image_volumes(&server), Value::Null);
}

#[tokio::test]
async fn after_a_rejected_statefulset_a_placeholder_is_created_without_image_volumes() {
    let mut server = Server::start();
    define(&mut server, "golang");
    let denied = json!({"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "denied the request"});
    server.answer(403, denied);
    server.answer(201, written());
    let (reconciler, ..) = reconciler(&Caches::ready(), &server);
    reconciler.reconcile(that_pulls_images(None)).await.unwrap_err();
    assert_ne!(image_volumes(&server), Value::Null);
    reconciler.reconcile(that_pulls_images(None)).await.unwrap();
    assert_eq!(methods(&server), ["GET", "PATCH", "PATCH"]);
    assert_eq!(image_volumes(&server), Value::Null);
}

#[tokio::test]
async fn images_that_cannot_be_read_delay_no_placeholder() {
    let mut server = Server::start();
    server.answer(500, json!({"kind": "Status", "status": "Failure", "code": 500}));
    server.answer(201, written());
    let (reconciler, ..) = reconciler(&Caches::ready(), &server);
    reconciler.reconcile(that_pulls_images(None)).await.unwrap();
    assert_eq!(methods(&server), ["GET", "PATCH"]);
    assert_eq!(image_volumes(&server), Value::Null);
}

#[tokio::test]
async fn a_quota_that_rejects_terms_across_namespaces_limits_the_isolation_in_its_namespace_only() {
    let mut caches = Caches::ready();
    caches.add_quota(&json!({"pods": "0"}), &json!({}));
    caches.add_scoped_quota("tight", "CrossNamespacePodAffinity", "0");
    let mut elsewhere = held();
    elsewhere.key.namespace = "other".into();
    for (run, isolation) in [(held(), "namespace-all"), (elsewhere, "cluster-all")] {
        let mut server = Server::start();
        server.answer(201, written());
        let (reconciler, ..) = reconciler(&caches, &server);
        reconciler.reconcile(run).await.unwrap();
        let body = server.calls()[0].body.to_string();
        assert!(body.contains(isolation), "{body}");
        assert_eq!(
            body.contains("namespaceSelector"),
            isolation == "cluster-all",
            "{body}"
        );
    }
}

#[tokio::test]
async fn after_a_quota_rejected_a_placeholder_the_two_oldest_runs_of_the_namespace_try() {
    let mut server = Server::start();
    for _ in 0..3 {
        server.refuse(403, "Forbidden", "exceeded quota: q");
    }
    let mut caches = Caches::ready();
    let (mut reconciler, mut event_writer, _) = reconciler(&caches, &server);
    let seconds = Arc::default();
    reconciler.clock = clock_of(&seconds);
    let run = |number: i64| {
        let mut run = held();
        run.key.uid = format!("u{number}");
        run.created = Some(at(number - 9));
        run
    };
    for number in [2, 1, 3] {
        drop(reconciler.reconcile(run(number)).await);
    }
    assert_eq!(methods(&server), ["PATCH"; 2], "the third run does not try");
    let notes = event_writer.notes();
    assert!(
        notes.last().unwrap().contains("two oldest runs first"),
        "{notes:?}"
    );
    let mut elsewhere = run(4);
    elsewhere.key.namespace = "other".into();
    drop(reconciler.reconcile(elsewhere).await);
    assert_eq!(methods(&server).len(), 3, "another namespace is not concerned");
    caches.add_quota(&json!({"pods": "1"}), &json!({"pods": "0"}));
    let next: Vec<_> = reconciler
        .on_quota("ns")
        .into_iter()
        .map(|run| run.name)
        .collect();
    assert_eq!(next, ["build", "build"]);
    assert!(reconciler.on_quota("elsewhere").is_empty());
}

#[tokio::test]
async fn a_run_that_waits_reports_the_latest_answer_of_an_autoscaler_and_reads_no_event() {
    let server = Server::start();
    let mut caches = Caches::ready();
    caches.add_set(&run(), "s1");
    caches.add_unschedulable_pod(&run(), "p1", "0/3 nodes are available.");
    caches.add_answer(&run(), "cluster-autoscaler", "NotTriggerScaleUp", 1, "not yet");
    caches.add_answer(
        &run(),
        "cluster-autoscaler",
        "NotTriggerScaleUp",
        2,
        "max size reached",
    );
    caches.add_answer(
        &run(),
        "default-scheduler",
        "FailedScheduling",
        3,
        "0/3 nodes are available.",
    );
    let (reconciler, mut event_writer, _) = reconciler(&caches, &server);
    let waiting = Run {
        group: Some("u1".into()),
        ..run()
    };
    reconciler.reconcile(waiting).await.unwrap();
    let notes = event_writer.notes();
    assert!(
        notes[0].contains("The autoscaler reports: max size reached."),
        "{notes:?}"
    );
    assert!(server.calls().is_empty());
}

#[tokio::test]
async fn the_inputs_of_a_placeholder_are_read_once_a_second_and_at_once_after_a_failure() {
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

#[tokio::test]
async fn a_rejection_by_a_quota_is_read_until_it_is_handled_or_concerns_another_run() {
    let rejected = |items: Value| (200, json!({"metadata": {}, "items": items}));
    let condition = json!({"type": "Succeeded", "status": "Unknown", "reason": "ExceededResourceQuota"});
    let task = json!({"metadata": {"name": "build-test"}, "status": {"conditions": [condition]}});
    let mut server = Server::start();
    for (status, body) in [
        rejected(json!([])),
        rejected(json!([])),
        rejected(json!([])),
        rejected(json!([task])),
        (200, written()),
        rejected(json!([task])),
        (200, written()),
    ] {
        server.answer(status, body);
    }
    let mut caches = Caches::ready();
    caches.add_set(&run(), "s1");
    caches.add_pod(&run(), "p1", Some("n1"));
    let (mut reconciler, ..) = reconciler(&caches, &server);
    let seconds = Arc::default();
    reconciler.clock = clock_of(&seconds);
    let mut calls: Vec<&str> = Vec::new();
    // The rejection, whether the placeholder has made room, and which calls follow.
    for (second, rejection, away, expected) in [
        (0, "7", false, ["GET"].as_slice()),
        (2, "7", false, &["GET"]),
        (4, "7", false, &[]),
        // Tekton has not written the condition yet.
        (6, "8", false, &["GET"]),
        (8, "8", false, &["GET", "PATCH"]),
        (10, "8", true, &["GET", "PATCH"]),
        (12, "8", true, &[]),
    ] {
        seconds.store(second, Ordering::Relaxed);
        caches.add_rejected_task("ns", "build-test", rejection);
        if away {
            caches.add_set_of(&run(), "s1", &json!({"spec": {"replicas": 0}}));
            caches.remove_pod(&run());
        }
        reconciler.reconcile(running()).await.unwrap();
        calls.extend(expected);
        assert_eq!(methods(&server), calls, "{second}");
    }
}
