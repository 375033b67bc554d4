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
use placement::keys;
use placement::opt_in::DECLINED;
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
            (
                "metadata",
                Fields::Object(&[("labels", Fields::Object(&[(keys::OPT_IN, Fields::Scalar)]))]),
            ),
            ("computeResources", RESOURCES),
            ("stepSpecs", STEPS),
            ("sidecarSpecs", STEPS),
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
        let of_run = self.of_run(run);
        let sidecars = all_requests(&task["sidecars"], &of_run["sidecarSpecs"], &Value::Null);
        let steps = match &of_run["computeResources"] {
            whole @ Value::Object(_) => requests([whole]),
            _ => all_requests(&task["steps"], &of_run["stepSpecs"], &task["stepTemplate"]),
        };
        steps.and(&sidecars)
    }

    /// Whether the run gives the task the opt-in label with the value `false`.
    pub fn is_opted_out(&self, run: &Value) -> bool {
        self.of_run(run)["metadata"]["labels"][keys::OPT_IN] == DECLINED
    }

    /// The entry of the task in the spec of the run.
    fn of_run<'a>(&self, run: &'a Value) -> &'a Value {
        let mut specs = items(&run["taskRunSpecs"]);
        let of_run = specs.find(|it| it["pipelineTaskName"] == self.name);
        of_run.unwrap_or(&Value::Null)
    }
}

/// The sum of the requests of all containers. Overrides name a container, and are merged with its resources as the template is.
fn all_requests(containers: &Value, overrides: &Value, template: &Value) -> Resources {
    let of_one = |container: &Value| {
        let mut changed = items(overrides);
        let changed = changed.find(|it| !it["name"].is_null() && it["name"] == container["name"]);
        let changed = changed.unwrap_or(&Value::Null);
        requests([template, container, changed].map(|it| &it["computeResources"]))
    };
    let requests = items(containers).map(of_one);
    requests.fold(Resources::default(), |sum, one| sum.and(&one))
}

/// Later resources override earlier resources. A limit without a request counts as a request.
fn requests<const N: usize>(resources: [&Value; N]) -> Resources {
    let of_kind = |kind: &'static str| resources.iter().map(move |it| &it[kind]);
    let mut amounts = BTreeMap::new();
    for from in of_kind("limits").chain(of_kind("requests")) {
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
mod tests;
