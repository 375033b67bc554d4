//! Runs whose tasks require different kinds of nodes, and tasks that wait beside a task that runs.

use crate::support::SOON;
use crate::support::controller::until_reconciled;
use crate::support::events::until_event;
use crate::support::objects::node_of;
use crate::support::placeholders::{bound_placeholder, placeholder_name, sets};
use crate::support::runs::{bound_task, create, let_task_end, until_unschedulable};
use crate::support::testbeds::fresh;
use jiff::{SignedDuration, Timestamp};
use placement::config::Config;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testbed::runs::{RunSpec, task_runs};
use testbed::{Nodes, Testbed};

/// Tasks that alternate between two kinds of nodes.
const TASKS: usize = 8;
/// The most time that a move may add: usually two seconds. Less than `move-after`, which the run must not wait for.
const MOVE: Duration = Duration::from_secs(6);
/// Tekton repeats the first update of a TaskRun's status after a conflict, and then writes a later `startTime`.
const START_TIME_CHANGE: SignedDuration = SignedDuration::from_secs(2);

/// Sequential tasks of one second. The first requires a node of kind `amd`, the second a node of kind `arm`, and so on.
fn alternating(name: &str) -> RunSpec {
    let task = |number: usize| format!("t{number}");
    let run = (0..TASKS).fold(RunSpec::new("default", name), |run, number| {
        let before: Vec<_> = number.checked_sub(1).map(task).into_iter().collect();
        let before: Vec<_> = before.iter().map(String::as_str).collect();
        run.task(&task(number), &before)
    });
    let spec = |number: usize| {
        let kind = ["amd", "arm"][number % 2];
        json!({"pipelineTaskName": task(number), "podTemplate": {"nodeSelector": {"kind": kind}}})
    };
    let specs: Vec<Value> = (0..TASKS).map(spec).collect();
    run.lasting("1s").spec("taskRunSpecs", json!(specs))
}

async fn duration(bed: &Testbed, run: &RunSpec) -> Duration {
    let since = Instant::now();
    create(bed, run).await;
    bed.until_succeeded(run, Duration::from_mins(3)).await.unwrap();
    since.elapsed()
}

#[e2e_test]
async fn a_run_whose_tasks_alternate_between_two_kinds_of_nodes_moves_with_each_task() {
    let bed = &*fresh(0).await;
    for kind in ["amd", "arm"] {
        bed.add_nodes(&Nodes::new(kind, 1).label("kind", kind))
            .await
            .unwrap();
    }
    let unlabelled = duration(bed, &alternating("unlabelled")).await;
    let labelled = duration(bed, &alternating("labelled").opted_in("true")).await;
    println!("{TASKS} tasks without the label: {unlabelled:?}, with the label: {labelled:?}");
    let moves = u32::try_from(TASKS).unwrap();
    assert!(
        labelled < unlabelled + MOVE * moves,
        "{labelled:?}, and without the label {unlabelled:?}"
    );
}

#[e2e_test]
async fn the_placeholder_protects_the_node_of_a_task_while_another_task_of_the_run_waits() {
    let bed = &*fresh(0).await;
    let add = async |name, cpu| {
        let nodes = Nodes::new(name, 1).size(cpu, "32Gi");
        bed.add_nodes(&nodes).await.unwrap();
    };
    add("small", "2").await;
    let run = RunSpec::new("default", "run")
        .sized_task("first", &[], &json!({"cpu": "1"}))
        .sized_task("fits", &["first"], &json!({"cpu": "4"}))
        .sized_task("never-fits", &["first"], &json!({"cpu": "900"}))
        .ending("hang")
        .opted_in("true");
    let held = create(bed, &run).await;
    bound_task(bed, &run, "first").await;
    add("large", "8").await;
    let_task_end(bed, &run, "first").await;
    assert_eq!(node_of(&bound_task(bed, &run, "fits").await), "large-0");
    assert_eq!(node_of(&bound_placeholder(bed, &held).await), "large-0");
    until_unschedulable(bed, &run, "never-fits", Config::MOVE_AFTER).await;
    until_reconciled(bed, &run).await;
    assert_eq!(node_of(&bound_placeholder(bed, &held).await), "large-0");
    // No task lives any more: the task that waits may be the first on any node.
    let_task_end(bed, &run, "fits").await;
    until_event(bed, &run, "NoNodeFits").await;
    let client = bed.client().await.unwrap();
    let set = sets(&client, "default")
        .get(placeholder_name(&held).as_str())
        .await
        .unwrap();
    assert_eq!(set.spec.unwrap().replicas, Some(0));
}

/// When the timeout of this TaskRun ends, and the reason of its condition.
async fn deadline_and_reason(bed: &Testbed, name: &str, timeout: SignedDuration) -> (Timestamp, String) {
    let task_runs = task_runs(&bed.client().await.unwrap(), "default");
    bed.until(format!("TaskRun {name} to have a startTime"), SOON, async || {
        let read = task_runs.get(name).await.map_err(|error| error.to_string())?;
        let status = &read.data["status"];
        let start = status["startTime"].as_str().ok_or_else(|| status.to_string())?;
        let start: Timestamp = start.parse().map_err(|_| start.to_owned())?;
        let reason = status["conditions"][0]["reason"].as_str().unwrap_or_default();
        Ok::<_, String>((start + timeout, reason.to_owned()))
    })
    .await
    .unwrap()
}

#[e2e_test]
async fn the_event_about_a_task_that_waits_has_the_time_left_of_its_timeout() {
    let bed = &*fresh(0).await;
    bed.configure(&[("move-after", Some("1s"))]).await.unwrap();
    let nodes = Nodes::new("node", 2).size("4", "16Gi");
    bed.add_nodes(&nodes).await.unwrap();
    let run = RunSpec::new("default", "run")
        .sized_task("long", &[], &json!({"cpu": "3"}))
        .task("before", &[])
        .sized_task("waits", &["before"], &json!({"cpu": "3"}))
        .task_field("timeout", json!("20s"))
        .ending("hang")
        .opted_in("true");
    create(bed, &run).await;
    bound_task(bed, &run, "long").await;
    let_task_end(bed, &run, "before").await;
    let note = until_event(bed, &run, "WaitingForRoom").await;
    let timeout = SignedDuration::from_secs(20);
    let (deadline, _) = deadline_and_reason(bed, "run-waits", timeout).await;
    assert!(note.contains("TaskRun run-waits"), "{note}");
    let (_, until) = note.split_once("left, until ").expect(&note);
    let until: Timestamp = until.trim_end_matches('.').parse().expect(&note);
    assert!(
        deadline.duration_since(until).abs() <= START_TIME_CHANGE,
        "{note}, but the timeout ends at {deadline}"
    );
    bed.until(
        "the timeout of the task that waits",
        SOON,
        async || match deadline_and_reason(bed, "run-waits", timeout).await.1 {
            reason if reason == "TaskRunTimeout" => Ok(()),
            other => Err(other),
        },
    )
    .await
    .unwrap();
}
