use super::*;
use crate::fixture::{Caches, Server, at, exposition, is_at_rest, reconciler, run, written};
use jiff::Timestamp;
use placement::run::SpecStatus;
use serde_json::json;

/// Held by us, a moment ago.
pub(super) fn held() -> Run {
    Run {
        created: Some(Timestamp::now()),
        ..run()
    }
}

/// Likewise, and enrolled, as a run is that waits for a node.
fn waiting() -> Run {
    Run {
        group: Some("u1".into()),
        ..held()
    }
}

#[tokio::test]
async fn a_held_run_gets_its_placeholder_and_an_event() {
    let mut server = Server::start();
    server.answer(201, written());
    let (reconciler, mut event_writer, _) = reconciler(&Caches::ready(), &server);
    let settled = reconciler.reconcile(held()).await.unwrap();
    assert!(!is_at_rest(&settled));
    assert_eq!(event_writer.reasons(), ["Held"]);
}

#[tokio::test]
async fn a_hold_is_as_old_as_the_clock_says_by_which_the_run_is_dated() {
    for (seconds, is_released) in [(30, false), (3600, true)] {
        let mut server = Server::start();
        (0..3).for_each(|_| server.answer(200, written()));
        let (mut reconciler, ..) = reconciler(&Caches::ready(), &server);
        reconciler.clock = Arc::new(move || at(seconds));
        // By the clock of this machine it is months or years away from its creation.
        let plan = reconciler.reconcile(run()).await.unwrap();
        assert_eq!(plan.decision.name() == "release", is_released, "{plan:?}");
    }
}

#[tokio::test]
async fn a_write_is_not_repeated_while_its_echo_is_on_the_way() {
    let mut server = Server::start();
    server.answer(201, written());
    let (reconciler, ..) = reconciler(&Caches::ready(), &server);
    let held = held();
    reconciler.reconcile(held.clone()).await.unwrap();
    let again = reconciler.reconcile(held.clone()).await.unwrap().again.unwrap();
    assert!(again <= Duration::from_secs(1), "{again:?}");
    assert_eq!(server.calls().len(), 1);
}

#[tokio::test]
async fn a_run_whose_placeholder_has_a_node_is_released_in_one_call() {
    let mut server = Server::start();
    server.answer(200, written());
    let mut caches = Caches::ready();
    caches.add_set(&run(), "s1");
    caches.add_pod(&run(), "p1", Some("n1"));
    let (reconciler, mut event_writer, registry) = reconciler(&caches, &server);
    reconciler.reconcile(held()).await.unwrap();
    assert_eq!(event_writer.reasons(), ["Released"]);
    assert_eq!(server.calls().len(), 1);
    let text = exposition(&registry);
    assert!(text.contains("releases_total{cause=\"node_found\"} 1"), "{text}");
    assert!(text.contains("reconcile_seconds_count 1"), "{text}");
}

#[tokio::test]
async fn a_rejected_step_is_reported_counted_and_retried() {
    let mut server = Server::start();
    server.refuse(
        403,
        "Forbidden",
        "statefulsets \"x\" is forbidden: exceeded quota: q",
    );
    let (reconciler, mut event_writer, registry) = reconciler(&Caches::ready(), &server);
    reconciler.reconcile(held()).await.unwrap_err();
    let retry = reconciler.retry_after("u1").as_millis();
    assert!((200..=400).contains(&retry), "{retry}");
    assert_eq!(event_writer.reasons(), ["Held", "PlaceholderRefused"]);
    let text = exposition(&registry);
    assert!(
        text.contains("reconcile_errors_total{step=\"placeholder\",reason=\"quota\"} 1"),
        "{text}"
    );
}

#[tokio::test]
async fn a_run_whose_template_is_invalid_is_released_with_the_message_of_the_api_server() {
    let mut server = Server::start();
    let message =
        "StatefulSet.apps \"x\" is invalid: spec.template.spec.nodeSelector: Invalid value: \"not valid!\"";
    let causes =
        json!({"causes": [{"reason": "FieldValueInvalid", "field": "spec.template.spec.nodeSelector"}]});
    server.answer(
        422,
        json!({
            "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Invalid", "code": 422, "message": message,
            "details": causes,
        }),
    );
    server.answer(200, written());
    let (reconciler, mut event_writer, _) = reconciler(&Caches::ready(), &server);
    reconciler.reconcile(held()).await.unwrap_err();
    reconciler.reconcile(held()).await.unwrap();
    assert_eq!(event_writer.reasons(), ["Held", "Released"]);
    let calls = server.calls();
    assert!(calls[1].line.contains("pipelineruns"), "{calls:?}");
}

#[tokio::test]
async fn a_refused_step_waits_though_something_wakes_its_run() {
    let mut server = Server::start();
    server.refuse(403, "Forbidden", "exceeded quota: q");
    let (reconciler, ..) = reconciler(&Caches::ready(), &server);
    let held = held();
    reconciler.reconcile(held.clone()).await.unwrap_err();
    let again = reconciler.reconcile(held.clone()).await.unwrap().again.unwrap();
    assert!(again <= reconciler.retry_after("u1"), "{again:?}");
    assert_eq!(server.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_reconciliation_before_the_first_lists_is_retried() {
    let server = Server::start();
    let (reconciler, ..) = reconciler(&Caches::empty(), &server);
    reconciler.reconcile(held()).await.unwrap_err();
    assert!(!reconciler.retry_after("u1").is_zero());
    assert!(server.calls().is_empty());
}

#[tokio::test]
async fn an_overtaken_release_is_decided_again_soon_and_is_no_error() {
    let mut server = Server::start();
    server.refuse(
        422,
        "Invalid",
        "the server rejected our request due to an error in our request",
    );
    let mut caches = Caches::ready();
    caches.add_set(&run(), "s1");
    caches.add_pod(&run(), "p1", Some("n1"));
    let (reconciler, mut event_writer, registry) = reconciler(&caches, &server);
    let again = reconciler.reconcile(held()).await.unwrap().again.unwrap();
    assert!(again < Duration::from_secs(1), "{again:?}");
    assert_eq!(event_writer.reasons(), [""; 0]);
    assert!(exposition(&registry).contains("overtaken_total 1"));
}

#[tokio::test]
async fn the_reason_of_a_wait_for_a_node_is_reported_once() {
    let server = Server::start();
    let mut caches = Caches::ready();
    caches.add_set(&run(), "s1");
    caches.add_unschedulable_pod(&run(), "p1", "0/3 nodes are available.");
    let (reconciler, mut event_writer, _) = reconciler(&caches, &server);
    let waiting = waiting();
    for _ in 0..3 {
        reconciler.reconcile(waiting.clone()).await.unwrap();
    }
    assert_eq!(event_writer.reasons(), ["WaitingForNode"]);
    assert!(server.calls().is_empty());
}

#[tokio::test]
async fn a_placeholder_whose_controller_is_busy_is_not_nudged() {
    let server = Server::start();
    let mut caches = Caches::ready();
    caches.add_set(&run(), "s1");
    let (reconciler, ..) = reconciler(&caches, &server);
    let settled = reconciler.reconcile(held()).await.unwrap();
    assert!(!is_at_rest(&settled) && settled.again.is_some());
    assert!(server.calls().is_empty());
}

#[tokio::test]
async fn a_new_placeholder_is_given_a_moment_to_make_its_pod() {
    let server = Server::start();
    let mut caches = Caches::ready();
    caches.add_observed_set(&run(), "s1");
    let (reconciler, ..) = reconciler(&caches, &server);
    let again = reconciler.reconcile(held()).await.unwrap().again.unwrap();
    assert!(again <= Duration::from_secs(2), "{again:?}");
    assert!(server.calls().is_empty());
}

#[tokio::test]
async fn a_run_cancelled_while_held_is_counted_and_forgotten() {
    let mut server = Server::start();
    server.answer(201, written());
    let (reconciler, _, registry) = reconciler(&Caches::ready(), &server);
    let held = held();
    reconciler.reconcile(held.clone()).await.unwrap();
    let cancelled = Run {
        done: true,
        status: SpecStatus::Other("Cancelled".into()),
        ..held
    };
    let settled = reconciler.reconcile(cancelled.clone()).await.unwrap();
    assert!(is_at_rest(&settled));
    assert!(exposition(&registry).contains("hold_seconds_count{outcome=\"cancelled\"} 1"));
    assert!(reconciler.memory.forget("u1").is_none());
}

#[tokio::test]
async fn done_runs_cost_no_call_and_no_memory() {
    let server = Server::start();
    let (reconciler, mut event_writer, _) = reconciler(&Caches::ready(), &server);
    let done = Run {
        done: true,
        status: SpecStatus::Unset,
        hold: false,
        ..run()
    };
    assert!(is_at_rest(&reconciler.reconcile(done.clone()).await.unwrap()));
    assert!(server.calls().is_empty());
    assert_eq!(event_writer.reasons(), [""; 0]);
    assert!(reconciler.memory.forget("u1").is_none());
}

#[tokio::test]
async fn a_late_label_is_reported_once() {
    let server = Server::start();
    let (reconciler, mut event_writer, _) = reconciler(&Caches::ready(), &server);
    let running = Run {
        status: SpecStatus::Unset,
        hold: false,
        ..run()
    };
    for _ in 0..3 {
        reconciler.reconcile(running.clone()).await.unwrap();
    }
    assert_eq!(event_writer.reasons(), ["LabelledTooLate"]);
}

#[tokio::test]
async fn a_held_run_that_lost_its_label_is_released_and_its_placeholder_deleted() {
    let mut server = Server::start();
    server.answer(200, written());
    server.answer(200, json!({"kind": "Status", "status": "Success"}));
    let mut caches = Caches::ready();
    caches.add_set(&run(), "s1");
    let (reconciler, mut event_writer, _) = reconciler(&caches, &server);
    let unlabelled = Run {
        opt_in: None,
        ..held()
    };
    let released = Run {
        status: SpecStatus::Unset,
        hold: false,
        ..unlabelled.clone()
    };
    reconciler.reconcile(unlabelled).await.unwrap();
    reconciler.reconcile(released).await.unwrap();
    let methods: Vec<_> = server
        .calls()
        .into_iter()
        .map(|it| it.line[..5].to_owned())
        .collect();
    assert_eq!(methods, ["PATCH", "DELET"]);
    assert_eq!(event_writer.reasons(), ["Released", "CleanedUp"]);
}

#[tokio::test]
async fn a_run_that_was_deleted_while_held_is_counted_and_forgotten() {
    let mut server = Server::start();
    server.answer(201, written());
    let (reconciler, _, registry) = reconciler(&Caches::ready(), &server);
    reconciler.reconcile(held()).await.unwrap();
    reconciler.forget(|uid| uid == "u2");
    assert!(!exposition(&registry).contains("outcome=\"deleted\""));
    reconciler.forget(|uid| uid == "u1");
    assert!(exposition(&registry).contains("hold_seconds_count{outcome=\"deleted\"} 1"));
    assert!(reconciler.memory.forget("u1").is_none());
}
