use super::*;
use crate::api_error::Fault;
use crate::fixture::{
    Caches, Server, at, enrolment, exposition, nothing, observed_pod, planned, reconciler, run,
};
use placement::node::Cause;
use placement::plan::{MoveCause, ReleaseCause};
use placement::requests::Operation;
use placement::run::{Run, SpecStatus};
use prometheus_client::registry::Registry;

/// Reports steps, one after the other, and returns what the metrics say.
fn told(steps: Vec<(Run, i64, Decision, Result<Effect, Refused>)>) -> (Vec<&'static str>, String) {
    let server = Server::start();
    let (reconciler, mut courier, registry): (_, _, Registry) = reconciler(&Caches::ready(), &server);
    for (run, second, decision, result) in steps {
        let seen = Observation {
            run,
            ..seen(second, &decision)
        };
        drop(
            reconciler
                .report
                .step(&reconciler.memory, &seen, planned(decision), result),
        );
    }
    (courier.reasons(), exposition(&registry))
}

/// Once a run is released for its node, its placeholder has one.
fn seen(second: i64, action: &Decision) -> Observation {
    let node = matches!(action, Decision::Write(Write::Release { node: Some(_), .. })).then_some("n1");
    Observation {
        now: at(second),
        pod: Some(observed_pod(node)),
        ..nothing()
    }
}

fn release(cause: ReleaseCause) -> Decision {
    let node = (cause == ReleaseCause::NodeFound).then(|| "n1".to_owned());
    Decision::Write(Write::Release {
        cause,
        enrolment: Some(enrolment()),
        node,
    })
}

fn create() -> Decision {
    Decision::Write(Write::CreatePlaceholder(enrolment()))
}

#[tokio::test]
async fn the_usual_way_is_told_in_order_and_timed() {
    let (reasons, text) = told(vec![
        (run(), 1, create(), Ok(Effect::Written)),
        (
            run(),
            2,
            Decision::Wait(Wait::Node {
                unschedulable: Some("0/3".into()),
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
async fn a_run_released_by_somebody_else_is_no_release_of_ours() {
    let released = Run {
        status: SpecStatus::Unset,
        ..run()
    };
    let (_, text) = told(vec![
        (run(), 1, create(), Ok(Effect::Written)),
        (
            released.clone(),
            3,
            Decision::Write(Write::Enrol(enrolment())),
            Ok(Effect::Written),
        ),
        (released, 4, Decision::Wait(Wait::Steady), Ok(Effect::Nothing)),
    ]);
    assert!(
        text.contains("hold_seconds_count{outcome=\"foreign\"} 1"),
        "{text}"
    );
    let mut releases = text.lines().filter(|line| line.starts_with("releases_total"));
    assert!(releases.all(|line| line.ends_with(" 0")), "{text}");
}

#[tokio::test]
async fn our_own_release_is_not_counted_again_when_it_comes_back() {
    let back = Run {
        status: SpecStatus::Unset,
        hold: false,
        ..run()
    };
    let (_, text) = told(vec![
        (run(), 1, release(ReleaseCause::NodeFound), Ok(Effect::Written)),
        (run(), 1, Decision::Wait(Wait::Steady), Ok(Effect::Nothing)),
        (back, 2, Decision::Wait(Wait::Steady), Ok(Effect::Nothing)),
    ]);
    assert!(
        text.contains("hold_seconds_count{outcome=\"node_found\"} 1"),
        "{text}"
    );
    assert!(!text.contains("outcome=\"foreign\""), "{text}");
}

#[tokio::test]
async fn the_same_refusal_is_told_again_only_after_minutes() {
    let refused = || {
        Err(Refused {
            operation: Operation::Release,
            fault: Fault::NotSynced,
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
    let (set, cause) = (|| "s1".to_owned(), MoveCause::PlaceholderDoesNotFit);
    let (move_off, start_over) = (
        Write::MoveOff {
            set: set(),
            cause,
            pod: None,
        },
        Write::StartOver { set: set(), cause },
    );
    let writes = [
        (move_off, [1, 0, 0]),
        (start_over, [1, 0, 0]),
        (Write::MakeRoom { set: set() }, [0, 1, 0]),
        (Write::RetryTasks { tasks: Vec::new() }, [0, 0, 1]),
        (Write::Follow { set: set() }, [0, 0, 0]),
    ];
    for (write, expected) in writes {
        let decision = Decision::Write(write);
        let (mut seen, plan) = (seen(7, &decision), planned(decision.clone()));
        let (reconciler, _, registry) = reconciler(&Caches::ready(), &Server::start());
        let (report, memory) = (&reconciler.report, &reconciler.memory);
        report.step(memory, &seen, plan, Ok(Effect::Written)).unwrap();
        memory.recall(&mut seen);
        let counted = [seen.moves, seen.yields, seen.retries];
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

/// No pod of it waits, so that nothing else brings the run back before its tasks have ended.
#[tokio::test]
async fn an_unfit_node_is_told_every_five_minutes_for_as_long_as_tasks_keep_the_run_there() {
    let server = Server::start();
    let (reconciler, mut courier, _) = reconciler(&Caches::ready(), &server);
    let tasks = Decision::Wait(Wait::Tasks {
        cause: MoveCause::Node(Cause::NotReady),
        pod: None,
        live: 1,
    });
    let mut second = 0;
    for _ in 0..3 {
        let (seen, plan) = (seen(second, &tasks), planned(tasks.clone()));
        let plan = reconciler
            .report
            .step(&reconciler.memory, &seen, plan, Ok(Effect::Nothing));
        second += i64::try_from(plan.unwrap().again.unwrap().as_secs()).unwrap();
    }
    assert_eq!((courier.reasons(), second), (vec!["NodeUnfit"; 3], 900));
}
