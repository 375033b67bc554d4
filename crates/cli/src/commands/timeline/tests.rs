//! The reads of `timeline`, with all rights and with few rights.

use super::*;
use crate::args::{Caller, Verb, parse};
use crate::commands::BAD;
use crate::fake_api::{AsCluster, FakeApi, run_path};
use crate::fixture::{at, done, merged, run};
use crate::timeline::{fixture, svg as drawn_svg};
use placement::keys;
use serde_json::json;

fn args(line: &str) -> TimelineArgs {
    let words = ["x", "timeline"]
        .into_iter()
        .chain(line.split_whitespace())
        .map(Into::into);
    let Verb::Timeline(args) = parse(Caller::of("x"), words).unwrap().command else {
        panic!()
    };
    args
}

fn api() -> FakeApi {
    let api = FakeApi::default();
    api.put(&run_path("build"), serde_json::to_value(run(&done())).unwrap());
    let pod = fixture::pod_of("build", "u1", "clone", Some("node-1"), 21);
    api.put(
        "/api/v1/namespaces/ci/pods/u1-clone-pod",
        serde_json::to_value(pod).unwrap(),
    );
    let event = json!({
        "metadata": {"name": "e", "namespace": "ci"}, "reason": "Released", "message": "Released: the run has a node.",
        "involvedObject": {"uid": "u1"}, "reportingComponent": "pod-affinity.tekton.dev/controller",
        "eventTime": "2027-01-15T08:00:20.000000Z",
    });
    api.put("/api/v1/namespaces/ci/events/e", event);
    api.put(
        "/api/v1/nodes/node-1",
        serde_json::to_value(fixture::here("node-1")).unwrap(),
    );
    let task_run = json!({
        "apiVersion": "tekton.dev/v1", "kind": "TaskRun",
        "metadata": {"name": "t", "namespace": "ci", "labels": {
            "tekton.dev/pipelineRun": "build", "tekton.dev/pipelineTask": "clone",
        }, "ownerReferences": [{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "build", "uid": "u1"}]},
        "status": {"podName": "u1-clone-pod", "startTime": "2027-01-15T08:00:21Z", "completionTime": "2027-01-15T08:00:40Z"},
    });
    api.put("/apis/tekton.dev/v1/namespaces/ci/taskruns/t", task_run);
    api
}

const CI: Selection<'static> = fixture::CI;

/// Reads as two minutes after the run was created, because the fake API server has no clock.
async fn read(api: &FakeApi) -> History {
    let history = Box::pin(read::history(&api.cluster().server, CI)).await.unwrap();
    History {
        now: at(120),
        ..history
    }
}

#[tokio::test]
async fn everything_that_a_run_left_is_read_and_nothing_is_written() {
    let api = api();
    let history = Box::pin(read(&api)).await;
    assert!(history.errors().is_empty(), "{:?}", history.errors());
    let timeline = timeline(&history, CI, TimeRange::Whole);
    let names: Vec<_> = timeline.lanes.iter().map(|lane| lane.place.title()).collect();
    assert_eq!(names, ["without a node", "node-1"]);
    assert_eq!(timeline.lanes[1].bars[0].tasks[0].name, "clone");
    assert!(api.writes().is_empty());
}

#[tokio::test]
async fn a_missing_right_leaves_a_gap_and_the_rest_is_drawn() {
    for plural in ["pods", "taskruns", "nodes", "events"] {
        let api = api();
        api.forbid(plural);
        let history = Box::pin(read(&api)).await;
        let timeline = timeline(&history, CI, TimeRange::Whole);
        assert!(
            !timeline.is_empty() && timeline.missing[0].contains(plural),
            "{plural}: {:?}",
            timeline.missing
        );
        assert!(drawn_svg(&timeline).contains("not read: you lack the right"));
    }
    let api = api();
    api.forbid("pipelineruns");
    assert!(Box::pin(read::history(&api.cluster().server, CI)).await.is_err());
}

#[tokio::test]
async fn the_configuration_is_read_only_to_check_the_record_of_a_kept_node() {
    let api = api();
    let reads = || {
        api.calls()
            .iter()
            .filter(|call| call.line.contains("/configmaps/"))
            .count()
    };
    Box::pin(read(&api)).await;
    assert_eq!(reads(), 0);
    let recorded = json!({"metadata": {"annotations": {keys::KEPT_UNTIL: at(90).to_string()}}});
    let kept = run(&merged(done(), &recorded));
    api.put(&run_path("build"), serde_json::to_value(kept).unwrap());
    let map = "/api/v1/namespaces/tekton-pod-affinity/configmaps/config-pod-affinity";
    api.put(
        map,
        json!({"metadata": {"name": "config-pod-affinity"}, "data": {"keep-node-for": "1m"}}),
    );
    let history = Box::pin(read(&api)).await;
    let minute = Duration::from_mins(1);
    assert_eq!((reads(), history.config.unwrap().keep_node_for), (1, minute));
    api.forbid("configmaps");
    let history = Box::pin(read(&api)).await;
    assert_eq!(history.errors().len(), 1, "{:?}", history.errors());
}

#[tokio::test]
async fn a_run_that_does_not_exist_is_an_error() {
    let api = api();
    for output in ["text", "svg", "html"] {
        let line = format!("--run pr/build -o {output}");
        assert_eq!(
            Box::pin(timeline_of(&api.cluster(), &args(&line))).await,
            Ok(ExitCode::SUCCESS)
        );
    }
    assert_eq!(
        Box::pin(timeline_of(&api.cluster(), &args("--run bild"))).await,
        Ok(ExitCode::from(BAD))
    );
    assert_eq!(
        Box::pin(timeline_of(&api.cluster(), &args(""))).await,
        Ok(ExitCode::SUCCESS)
    );
}

#[test]
fn the_note_on_an_empty_picture_names_the_selection_and_options() {
    let hour = TimeRange::Last(Duration::from_hours(1));
    assert_eq!(
        nothing(CI, hour),
        "No PipelineRuns in namespace ci in the last 1h. Use a longer --since, or -A for all namespaces."
    );
    let everywhere = Selection {
        namespace: None,
        run: None,
        labels: None,
    };
    assert_eq!(
        nothing(everywhere, hour),
        "No PipelineRuns in any namespace in the last 1h. Use a longer --since; 0 shows all that is left."
    );
    assert_eq!(
        nothing(CI, TimeRange::All),
        "No PipelineRuns in namespace ci. Use -A for all namespaces."
    );
    let one = Selection {
        run: Some("build"),
        ..CI
    };
    assert_eq!(
        nothing(one, hour),
        "PipelineRun build was not there in the last 1h. Use a longer --since; 0 shows all that is left."
    );
}

#[test]
fn how_far_back_is_an_hour_or_the_time_of_the_run() {
    assert_eq!(reach(&args("")), TimeRange::Last(Duration::from_hours(1)));
    assert_eq!(reach(&args("--run build")), TimeRange::Whole);
    assert_eq!(
        reach(&args("--run build --since 2h")),
        TimeRange::Last(Duration::from_hours(2))
    );
    assert_eq!(reach(&args("--since 0")), TimeRange::All);
}
