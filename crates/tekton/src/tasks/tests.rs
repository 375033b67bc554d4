//! Requests, images and deadlines of tasks.

use super::*;
use serde_json::json;

fn asks(task: &Value, run: &Value) -> String {
    let only = PipelineTask {
        name: "build",
        body: Body::Elsewhere,
    };
    only.asks(task, run).to_string()
}

fn step(name: &str, resources: &Value) -> Value {
    json!({"name": name, "computeResources": resources})
}

#[test]
fn a_task_requests_the_sum_of_its_steps_and_sidecars_with_defaults_from_the_template() {
    let task = json!({
        "stepTemplate": {"computeResources": {"requests": {"cpu": "500m", "memory": "1Gi"}}},
        "steps": [
            step("a", &json!({"requests": {"cpu": "2"}})),
            step("b", &json!({"limits": {"nvidia.com/gpu": 1}})),
            {"name": "c"},
        ],
        "sidecars": [step("db", &json!({"requests": {"memory": "1Gi"}}))],
    });
    assert_eq!(asks(&task, &Value::Null), "cpu=3, memory=4Gi, nvidia.com/gpu=1");
}

#[test]
fn requests_in_the_run_override_requests_in_the_task() {
    let task = json!({"steps": [step("a", &json!({"requests": {"cpu": "2"}})), {"name": "b"}]});
    let of_run = |spec: Value| {
        let mut spec = spec;
        spec["pipelineTaskName"] = json!("build");
        json!({"taskRunSpecs": [{"pipelineTaskName": "test", "computeResources": {"requests": {"cpu": "9"}}}, spec]})
    };
    let whole = json!({"computeResources": {"requests": {"cpu": "5"}}});
    assert_eq!(asks(&task, &of_run(whole)), "cpu=5");
    let step_of_run = json!({"stepSpecs": [step("b", &json!({"requests": {"cpu": "1"}}))]});
    assert_eq!(asks(&task, &of_run(step_of_run)), "cpu=3");
    let both = json!({"requests": {"cpu": "2", "memory": "8Gi"}});
    let task = json!({"steps": [step("a", &both)], "sidecars": [step("db", &both)]});
    let less = |name: &str| json!([step(name, &json!({"requests": {"cpu": "1"}}))]);
    let of_each = json!({"stepSpecs": less("a"), "sidecarSpecs": less("db")});
    assert_eq!(asks(&task, &of_run(of_each)), "cpu=2, memory=16Gi");
}

#[test]
fn a_task_is_opted_out_by_its_label_in_the_run() {
    let spec = json!({"pipelineSpec": {"tasks": [{"name": "build"}, {"name": "deploy"}]}, "taskRunSpecs": [
        {"pipelineTaskName": "build", "metadata": {"labels": {keys::OPT_IN: "false"}}},
        {"pipelineTaskName": "deploy", "metadata": {"labels": {keys::OPT_IN: "true"}}},
    ]});
    let read: RunRequests = serde_json::from_value(json!({"spec": spec})).unwrap();
    let out: Vec<_> = tasks(&read.spec["pipelineSpec"])
        .map(|task| task.is_opted_out(&read.spec))
        .collect();
    assert_eq!(out, [true, false]);
}

#[test]
fn the_images_of_a_task_are_those_of_its_steps_and_sidecars_with_a_default_from_the_template() {
    let image = |image: &str| json!({"image": image});
    let spec = json!({
        "stepTemplate": image("base"),
        "steps": [image("golang"), {"name": "without"}, 7],
        "sidecars": [image("db"), {"name": "without"}],
    });
    let read: Task = serde_json::from_value(json!({"spec": spec})).unwrap();
    let known: Vec<_> = images(&read.spec).collect();
    assert_eq!(known, ["golang", "base", "base", "db"]);
    assert_eq!(
        images(&json!({"steps": [{"ref": {"name": "action"}}]})).count(),
        0
    );
}

#[test]
fn the_timeout_of_a_taskrun_ends_after_its_start() {
    let deadline = |spec: Value, status: Value| {
        let created = json!({"creationTimestamp": "2026-01-01T07:59:58Z"});
        let read =
            serde_json::from_value::<TaskRun>(json!({"metadata": created, "spec": spec, "status": status}));
        read.unwrap().deadline().map(|at| at.to_string())
    };
    let started = || json!({"startTime": "2026-01-01T08:00:00Z"});
    let at = |text: &str| Some(text.to_owned());
    assert_eq!(
        deadline(json!({"timeout": "1h0m30s"}), started()),
        at("2026-01-01T09:00:30Z")
    );
    assert_eq!(deadline(json!({"timeout": "0s"}), started()), None, "no timeout");
    assert_eq!(deadline(json!({}), started()), None);
    assert_eq!(
        deadline(json!({"timeout": "1h"}), json!({})),
        at("2026-01-01T08:59:58Z"),
        "the start is not stored yet"
    );
    assert_eq!(
        deadline(json!({"timeout": ["1h"]}), json!("odd")),
        None,
        "malformed"
    );
    assert_eq!(deadline(json!({"timeout": "9999999999999s"}), started()), None);
}

#[test]
fn parameters_and_malformed_amounts_count_as_zero() {
    let task =
        json!({"steps": [step("a", &json!({"requests": {"cpu": "$(params.cpu)", "memory": "1Gi"}})), 7]});
    assert_eq!(asks(&task, &json!({"taskRunSpecs": "odd"})), "memory=1Gi");
    assert_eq!(tasks(&json!("odd")).count(), 0);
}

#[test]
fn the_definition_of_a_task_is_embedded_named_or_elsewhere() {
    let spec = json!({"steps": []});
    let pipeline = json!({
        "tasks": [
            {"name": "a", "taskSpec": spec},
            {"name": "b", "taskRef": {"name": "t"}},
            {"name": "c", "taskRef": {"name": "t", "kind": "Custom", "apiVersion": "example.com/v1"}},
            {"name": "d", "taskRef": {"resolver": "git"}},
        ],
        "finally": [{"name": "e", "taskRef": {"name": "t", "kind": "Task"}}],
    });
    let bodies: Vec<_> = tasks(&pipeline).map(|task| task.body).collect();
    let named = Body::Named("t");
    assert_eq!(
        bodies,
        [
            Body::Embedded(&spec),
            named,
            Body::Elsewhere,
            Body::Elsewhere,
            named
        ]
    );
}
