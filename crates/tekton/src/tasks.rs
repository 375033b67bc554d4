//! The resource requests and the images in the definitions of a Pipeline's tasks, and read-only views of Pipelines, Tasks and TaskRuns.
//! Pure.
//!
//! Tekton creates a pod for each task, with a container for each step and sidecar. An amount that depends on a parameter counts as
//! zero, and so does a task that a resolver would have to fetch. A list with more than a hundred entries counts as empty.

use crate::metadata;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use placement::bounded::Fields;
use placement::resources::Resources;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;

/// A read-only view of a Pipeline.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pipeline {
    #[serde(deserialize_with = "metadata::read")]
    metadata: ObjectMeta,
    /// The tasks.
    #[serde(deserialize_with = "pipeline_spec")]
    pub spec: Value,
}

/// A read-only view of a Task.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Task {
    #[serde(deserialize_with = "metadata::read")]
    metadata: ObjectMeta,
    /// The resource requests and the images.
    #[serde(deserialize_with = "task_spec")]
    pub spec: Value,
}

/// A read-only view of a PipelineRun, with the requests of its tasks.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RunRequests {
    #[serde(deserialize_with = "metadata::read")]
    metadata: ObjectMeta,
    /// The Pipeline, and the resource requests that override the requests of the Tasks.
    #[serde(deserialize_with = "run_spec")]
    pub spec: Value,
}

/// A read-only view of a TaskRun.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct TaskRun {
    /// The object metadata.
    #[serde(deserialize_with = "metadata::read")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "task_run_spec")]
    spec: Value,
    #[serde(deserialize_with = "task_run_status")]
    status: Value,
}

impl TaskRun {
    /// The message of the condition that has this reason, if a condition has it.
    pub fn message_with_reason(&self, reason: &str) -> Option<&str> {
        let mut conditions = items(&self.status["conditions"]);
        let condition = conditions.find(|condition| condition["reason"] == reason)?;
        Some(condition["message"].as_str().unwrap_or_default())
    }

    /// When the timeout ends, if there is a timeout. Tekton counts from its first reconciliation of the TaskRun, and not from the
    /// binding of the pod. Tekton stores this time after it has created the pod; until then, the creation of the TaskRun counts.
    pub fn deadline(&self) -> Option<Timestamp> {
        let started = || self.status["startTime"].as_str()?.parse().ok();
        let created = || self.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let start: Timestamp = started().or_else(created)?;
        let timeout: SignedDuration = self.spec["timeout"].as_str()?.parse().ok()?;
        start.checked_add(timeout).ok().filter(|_| timeout.is_positive())
    }
}

crate::read_only!(TaskRun, "taskruns");
crate::read_only!(Pipeline, "pipelines");
crate::read_only!(Task, "tasks");
crate::read_only!(RunRequests, "pipelineruns");

static RUN: Fields = Fields::Object(&[
    ("pipelineRef", Fields::Object(&[("name", Fields::Scalar)])),
    ("pipelineSpec", PIPELINE),
    (
        "taskRunSpecs",
        Fields::List(&Fields::Object(&[
            ("pipelineTaskName", Fields::Scalar),
            ("computeResources", RESOURCES),
            ("stepSpecs", STEPS),
        ])),
    ),
]);

const PIPELINE: Fields = Fields::Object(&[("tasks", TASKS), ("finally", TASKS)]);

const TASKS: Fields = Fields::List(&Fields::Object(&[
    ("name", Fields::Scalar),
    ("taskSpec", TASK),
    (
        "taskRef",
        Fields::Object(&[
            ("name", Fields::Scalar),
            ("kind", Fields::Scalar),
            ("apiVersion", Fields::Scalar),
        ]),
    ),
]));

const TASK: Fields = Fields::Object(&[
    ("steps", STEPS),
    ("sidecars", STEPS),
    (
        "stepTemplate",
        Fields::Object(&[("image", Fields::Scalar), ("computeResources", RESOURCES)]),
    ),
]);

const STEPS: Fields = Fields::List(&Fields::Object(&[
    ("name", Fields::Scalar),
    ("image", Fields::Scalar),
    ("computeResources", RESOURCES),
]));

const RESOURCES: Fields = Fields::Object(&[("limits", Fields::Any), ("requests", Fields::Any)]);

fn pipeline_spec<'de, D: Deserializer<'de>>(from: D) -> Result<Value, D::Error> {
    static FIELDS: Fields = PIPELINE;
    Ok(FIELDS.decode(from)?.value)
}

fn task_spec<'de, D: Deserializer<'de>>(from: D) -> Result<Value, D::Error> {
    static FIELDS: Fields = TASK;
    Ok(FIELDS.decode(from)?.value)
}

fn task_run_spec<'de, D: Deserializer<'de>>(from: D) -> Result<Value, D::Error> {
    static FIELDS: Fields = Fields::Object(&[("timeout", Fields::Scalar)]);
    Ok(FIELDS.decode(from)?.value)
}

fn task_run_status<'de, D: Deserializer<'de>>(from: D) -> Result<Value, D::Error> {
    static FIELDS: Fields = Fields::Object(&[
        ("startTime", Fields::Scalar),
        (
            "conditions",
            Fields::List(&Fields::Object(&[
                ("reason", Fields::Scalar),
                ("message", Fields::Scalar),
            ])),
        ),
    ]);
    Ok(FIELDS.decode(from)?.value)
}

fn run_spec<'de, D: Deserializer<'de>>(from: D) -> Result<Value, D::Error> {
    Ok(RUN.decode(from)?.value)
}

/// A task of a Pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineTask<'a> {
    name: &'a str,
    /// The spec of the task, or where to find the spec.
    pub body: Body<'a>,
}

/// Where the spec of a task is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Body<'a> {
    /// The spec is embedded in the Pipeline.
    Embedded(&'a Value),
    /// The spec is in the Task object of this name.
    Named(&'a str),
    /// The spec cannot be read.
    Elsewhere,
}

/// The `tasks` and the `finally` tasks in the spec of a Pipeline.
pub fn tasks(pipeline: &Value) -> impl Iterator<Item = PipelineTask<'_>> {
    let lists = [&pipeline["tasks"], &pipeline["finally"]];
    lists.into_iter().flat_map(items).map(|task| PipelineTask {
        name: task["name"].as_str().unwrap_or_default(),
        body: Body::new(task),
    })
}

impl<'a> Body<'a> {
    fn new(task: &'a Value) -> Self {
        let (spec, named) = (&task["taskSpec"], &task["taskRef"]);
        let is_task = matches!(named["kind"].as_str(), None | Some("" | "Task"));
        match named["name"].as_str() {
            _ if spec["steps"].is_array() => Self::Embedded(spec),
            Some(name) if is_task && named["apiVersion"].as_str().is_none_or(is_tekton) => Self::Named(name),
            Some(_) | None => Self::Elsewhere,
        }
    }
}

fn is_tekton(api_version: &str) -> bool {
    api_version.is_empty() || api_version.starts_with("tekton.dev/")
}

/// The images of the steps and sidecars in the spec of a task. A step without an image has the image of the step template.
pub fn images(task: &Value) -> impl Iterator<Item = &str> {
    let template = task["stepTemplate"]["image"].as_str();
    let steps = items(&task["steps"]).filter_map(move |step| step["image"].as_str().or(template));
    steps.chain(items(&task["sidecars"]).filter_map(|sidecar| sidecar["image"].as_str()))
}

impl PipelineTask<'_> {
    /// The requests of the task's pod, from the spec of the task and from the overrides in the spec of the run.
    pub fn asks(&self, task: &Value, run: &Value) -> Resources {
        let mut specs = items(&run["taskRunSpecs"]);
        let of_run = specs.find(|it| it["pipelineTaskName"] == self.name);
        let of_run = of_run.unwrap_or(&Value::Null);
        let sidecars = items(&task["sidecars"]).map(|it| requests(&it["computeResources"], &Value::Null));
        let steps = match &of_run["computeResources"] {
            Value::Object(_) => requests(&of_run["computeResources"], &Value::Null),
            _ => steps(task, of_run),
        };
        sidecars.fold(steps, |sum, sidecar| sum.and(&sidecar))
    }
}

fn steps(task: &Value, of_run: &Value) -> Resources {
    let template = &task["stepTemplate"]["computeResources"];
    let one = |step: &Value| {
        let mut changed = items(&of_run["stepSpecs"]);
        let changed = changed.find(|it| !it["name"].is_null() && it["name"] == step["name"]);
        let own = changed.map_or(&step["computeResources"], |it| &it["computeResources"]);
        requests(own, template)
    };
    let steps = items(&task["steps"]).map(one);
    steps.fold(Resources::default(), |sum, step| sum.and(&step))
}

/// A limit without a request counts as a request.
fn requests(own: &Value, template: &Value) -> Resources {
    let mut amounts = BTreeMap::new();
    for from in [
        &template["limits"],
        &own["limits"],
        &template["requests"],
        &own["requests"],
    ] {
        for (name, amount) in from.as_object().into_iter().flatten() {
            let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
            amounts.insert(name.clone(), Quantity(text));
        }
    }
    Resources::from_quantities(&amounts)
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
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
            let read = serde_json::from_value::<TaskRun>(
                json!({"metadata": created, "spec": spec, "status": status}),
            );
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
}
