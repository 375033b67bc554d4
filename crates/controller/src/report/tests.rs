use super::*;
use crate::api_error::Failure;
use crate::fixture::{
    Caches, Server, actions, at, enrolment, exposition, nothing, observed_pod, observed_set, planned,
    reconciler, run, step_of,
};
use crate::observe::Recall;
use placement::node::Cause;
use placement::plan::{MoveCause, ReleaseCause};
use placement::requests::Operation;
use placement::run::{Run, SpecStatus};
use prometheus_client::registry::Registry;

/// Reports steps, one after the other, and returns what the metrics say.
fn told(steps: Vec<(Run, i64, Decision, Result<Effect, StepError>)>) -> (Vec<&'static str>, String) {
    let server = Server::start();
    let (reconciler, mut event_writer, registry): (_, _, Registry) = reconciler(&Caches::ready(), &server);
    for (run, second, decision, result) in steps {
        let observed = Observation {
            run,
            ..observed(second, &decision)
        };
        drop(
            reconciler
                .report
                .step(&reconciler.memory, &observed, planned(decision), result),
        );
    }
    (event_writer.reasons(), exposition(&registry))
}

/// Once a run is released for its node, its placeholder has one.
fn observed(second: i64, action: &Decision) -> Observation {
    let node = match action {
        Decision::Act(Step {
            event: Some(Event::Released { node, .. }),
            ..
        }) => node.as_deref(),
        _ => None,
    };
    Observation {
        now: at(second),
        pod: Some(observed_pod(node)),
        ..nothing()
    }
}

fn release(cause: ReleaseCause) -> Decision {
    let node = (cause == ReleaseCause::NodeFound).then(|| "n1".to_owned());
    step_of(Event::Released {
        cause,
        enrolment: Some(enrolment()),
        node,
        message: None,
    })
}

fn create() -> Decision {
    step_of(Event::Created(None))
}

#[tokio::test]
async fn the_events_and_times_of_a_usual_run_are_in_order() {
    let (reasons, text) = told(vec![
        (run(), 1, create(), Ok(Effect::Written)),
        (
            run(),
            2,
            Decision::Wait(Wait::Node {
                unschedulable: Some("0/3".into()),
                autoscaler: None,
                largest: None,
            }),
            Ok(Effect::Nothing),
        ),
        (run(), 4, release(ReleaseCause::NodeFound), Ok(Effect::Written)),
    ]);
    assert_eq!(reasons, ["Held", "WaitingForNode", "Released"]);
    assert!(
        text.contains("hold_seconds_sum{outcome=\"node_found\"} 4.0"),
        "{text}"
    );
    assert!(text.contains("placeholder_schedule_seconds_sum 3.0"), "{text}");
}

#[tokio::test]
async fn a_release_at_the_deadline_warns_and_is_counted_apart() {
    let (reasons, text) = told(vec![(
        run(),
        600,
        release(ReleaseCause::Deadline),
        Ok(Effect::Written),
    )]);
    assert_eq!(reasons, ["HoldDeadlineExceeded", "Released"]);
    assert!(text.contains("releases_total{cause=\"deadline\"} 1"), "{text}");
}

#[tokio::test]
async fn a_release_is_remembered_and_a_run_with_a_placeholder_that_waits_for_its_assistants_stops_no_other() {
    let server = Server::start();
    let (reconciler, ..) = reconciler(&Caches::ready(), &server);
    let memory = &reconciler.memory;
    let step = |statefulset, decision| {
        let observed = Observation {
            statefulset,
            ..nothing()
        };
        let reported = reconciler
            .report
            .step(memory, &observed, planned(decision), Ok(Effect::Written));
        drop(reported);
        let is_released = memory.peek("u1", |entry| Some(entry.released));
        (is_released, memory.turns.is_rejected(&run()))
    };
    let quota = "ResourceQuota few".to_owned();
    let wait = Decision::Wait(Wait::Places { quota });
    assert_eq!(step(Some(observed_set()), wait.clone()), (Some(false), false));
    assert_eq!(step(None, wait), (Some(false), true));
    assert_eq!(step(None, release(ReleaseCause::Deadline)), (Some(true), true));
}

#[tokio::test]
async fn a_release_without_an_answer_counts_as_a_release_and_a_rejected_release_does_not() {
    let server = Server::start();
    let (reconciler, ..) = reconciler(&Caches::ready(), &server);
    let memory = &reconciler.memory;
    let denied =
        kube::core::Status::failure("admission webhook denied the request", "Forbidden").with_code(403);
    let denied = Failure::Api(Box::new(kube::Error::Api(denied.boxed())));
    for (fault, is_released) in [(denied, false), (Failure::Late(Duration::from_secs(10)), true)] {
        let failed = StepError {
            operation: Operation::Release,
            fault,
        };
        let decision = planned(release(ReleaseCause::NodeFound));
        drop(reconciler.report.step(memory, &nothing(), decision, Err(failed)));
        assert_eq!(memory.peek("u1", |entry| Some(entry.released)), Some(is_released));
    }
}

#[tokio::test]
async fn a_release_by_another_client_is_not_counted() {
    let released = Run {
        status: SpecStatus::Unset,
        ..run()
    };
    let (_, text) = told(vec![
        (run(), 1, create(), Ok(Effect::Written)),
        (released.clone(), 3, step_of(Event::Enrolled), Ok(Effect::Written)),
        (released, 4, Decision::Wait(Wait::Settled), Ok(Effect::Nothing)),
    ]);
    assert!(
        text.contains("hold_seconds_count{outcome=\"foreign\"} 1"),
        "{text}"
    );
    let mut releases = text.lines().filter(|line| line.starts_with("releases_total"));
    assert!(releases.all(|line| line.ends_with(" 0")), "{text}");
}

#[tokio::test]
async fn the_watch_event_of_our_own_release_is_not_counted_again() {
    let back = Run {
        status: SpecStatus::Unset,
        hold: false,
        ..run()
    };
    let (_, text) = told(vec![
        (run(), 1, release(ReleaseCause::NodeFound), Ok(Effect::Written)),
        (run(), 1, Decision::Wait(Wait::Settled), Ok(Effect::Nothing)),
        (back, 2, Decision::Wait(Wait::Settled), Ok(Effect::Nothing)),
    ]);
    assert!(
        text.contains("hold_seconds_count{outcome=\"node_found\"} 1"),
        "{text}"
    );
    assert!(!text.contains("outcome=\"foreign\""), "{text}");
}

fn on_node(second: i64, done: bool, deciding: Decision) -> (Run, i64, Decision, Result<Effect, StepError>) {
    let run = Run {
        status: SpecStatus::Unset,
        hold: false,
        started: Some(at(5)),
        done,
        ..run()
    };
    (run, second, deciding, Ok(Effect::Written))
}

/// What the metrics say after these steps: seconds with a node, and ended runs.
fn node_time(steps: Vec<(Run, i64, Decision, Result<Effect, StepError>)>) -> [String; 2] {
    let (_, text) = told(steps);
    ["node_seconds_total", "runs_ended_total"].map(|name| {
        let start = format!("{name}{{run_namespace=\"ns\"}} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&start));
        value.unwrap_or("none").to_owned()
    })
}

#[tokio::test]
async fn the_time_on_a_node_is_counted_once_when_the_run_ends() {
    let delete = || actions([Action::Delete(Target::Placeholder("s1".to_owned()))]);
    let settled = || Decision::Ignore(IgnoreReason::Done);
    let usual = vec![
        (run(), 1, create(), Ok(Effect::Written)),
        (run(), 4, release(ReleaseCause::NodeFound), Ok(Effect::Written)),
        on_node(30, true, delete()),
        on_node(31, true, settled()),
    ];
    assert_eq!(node_time(usual), ["27.0", "1"]);
    let after_another_leader = vec![
        on_node(10, false, release(ReleaseCause::NodeFound)),
        on_node(31, true, settled()),
        on_node(31, true, delete()),
        on_node(32, true, settled()),
    ];
    assert_eq!(node_time(after_another_leader), ["26.0", "1"], "since the start");
    let ended_without_leader = vec![on_node(30, true, delete()), on_node(31, true, settled())];
    assert_eq!(node_time(ended_without_leader), ["none"; 2]);
    let alive = vec![(run(), 4, release(ReleaseCause::NodeFound), Ok(Effect::Written))];
    assert_eq!(node_time(alive), ["0.0", "0"]);
}

#[tokio::test]
async fn the_same_rejection_is_reported_again_only_after_minutes() {
    let refused = || {
        Err(StepError {
            operation: Operation::Release,
            fault: Failure::NotSynced,
        })
    };
    let node = || release(ReleaseCause::NodeFound);
    let (reasons, _) = told(vec![
        (run(), 0, node(), refused()),
        (run(), 5, node(), refused()),
        (run(), 400, node(), refused()),
    ]);
    assert_eq!(reasons, ["ReleaseRefused", "ReleaseRefused"]);
}

#[tokio::test]
async fn moves_and_yields_and_retries_are_remembered_for_the_pause_before_the_next() {
    let moves_off = |starts_over| {
        step_of(Event::MovedOff {
            cause: MoveCause::PlaceholderDoesNotFit,
            pod: None,
            starts_over,
        })
    };
    let retry = Requeue::TaskRuns {
        names: Vec::new(),
        rejection: "7".to_owned(),
    };
    let steps = [
        (moves_off(false), [1, 0, 0]),
        (moves_off(true), [1, 0, 0]),
        (step_of(Event::MadeRoom { tasks: Vec::new() }), [0, 1, 0]),
        (actions([Action::Requeue(retry)]), [0, 0, 1]),
        (actions([]), [0, 0, 0]),
    ];
    for (decision, expected) in steps {
        let (observed, plan) = (observed(7, &decision), planned(decision.clone()));
        let (reconciler, _, registry) = reconciler(&Caches::ready(), &Server::start());
        let (report, memory) = (&reconciler.report, &reconciler.memory);
        report.step(memory, &observed, plan, Ok(Effect::Written)).unwrap();
        let (entry, _) = memory.recall(&observed.run, None, None, observed.now);
        let repeated = entry.repeated;
        let counted = [repeated.moves, repeated.yields, repeated.retries];
        assert_eq!(counted.map(|it| it.count), expected, "{decision:?}");
        let last = counted.iter().find_map(|it| it.last);
        assert!(last.is_none_or(|last| last == at(7)), "{decision:?}");
        let moves = format!(
            r#"moves_total{{cause="placeholder_does_not_fit"}} {}"#,
            expected[0]
        );
        let text = exposition(&registry);
        assert!(text.contains(&moves), "{decision:?}: {text}");
    }
}

/// Otherwise the StatefulSet would be requeued each second.
#[tokio::test]
async fn a_placeholder_that_was_requeued_is_given_time_to_get_its_pod() {
    let message = "maximum cpu usage per Container is 10m".to_owned();
    for event in [
        Event::PodMissing { message: None },
        Event::SizedWithinLimits { message },
    ] {
        let decision = step_of(event);
        let (observed, plan) = (observed(7, &decision), planned(decision.clone()));
        let (reconciler, ..) = reconciler(&Caches::ready(), &Server::start());
        let (report, memory) = (&reconciler.report, &reconciler.memory);
        let plan = report.step(memory, &observed, plan, Ok(Effect::Written)).unwrap();
        assert_eq!(plan.again, Some(Duration::from_secs(5)), "{decision:?}");
        let (_, requeue_in) = memory.recall(&observed.run, Some(&observed_set()), None, observed.now);
        assert_eq!(requeue_in, Duration::from_secs(5), "{decision:?}");
    }
}

/// No pod of it waits, so that nothing else brings the run back before its tasks have ended.
#[tokio::test]
async fn an_unusable_node_is_reported_every_five_minutes_while_tasks_keep_the_run_there() {
    let server = Server::start();
    let (reconciler, mut event_writer, _) = reconciler(&Caches::ready(), &server);
    let tasks = Decision::Wait(Wait::Tasks {
        cause: MoveCause::Node(Cause::NotReady),
        pod: None,
        live: 1,
    });
    let mut second = 0;
    for _ in 0..3 {
        let (observed, plan) = (observed(second, &tasks), planned(tasks.clone()));
        let plan = reconciler
            .report
            .step(&reconciler.memory, &observed, plan, Ok(Effect::Nothing));
        second += i64::try_from(plan.unwrap().again.unwrap().as_secs()).unwrap();
    }
    assert_eq!((event_writer.reasons(), second), (vec!["NodeUnfit"; 3], 900));
}

#[tokio::test]
async fn a_field_over_a_limit_is_reported_and_counted_once() {
    let run = || Run {
        over_limit: Some("tolerations"),
        ..run()
    };
    let (reasons, text) = told(vec![
        (run(), 1, create(), Ok(Effect::Written)),
        (run(), 2, Decision::Wait(Wait::Settled), Ok(Effect::Nothing)),
    ]);
    assert_eq!(reasons, ["FieldIgnored", "Held"]);
    assert!(text.contains("fields_ignored_total 1"), "{text}");
}
