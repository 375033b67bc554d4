//! Runs with the shape of OpenShift Pipelines' scenario `math`: four tasks at once, each with two parameters and a result.

use serde_json::{Value, json};
use testbed::kwok::{MESSAGE, result};
use testbed::runs::RunSpec;

pub(crate) const TASKS: [&str; 4] = ["sum", "diff", "mul", "div"];
/// The result of each task.
pub(crate) const VALUE: &str = "3";
const PIPELINE: &str = "math";

/// The Tasks and the Pipeline.
pub(crate) fn definitions(namespace: &str) -> Vec<Value> {
    let object = |kind: &str, name: &str, spec: Value| {
        json!({
            "apiVersion": "tekton.dev/v1", "kind": kind, "metadata": {"namespace": namespace, "name": name}, "spec": spec,
        })
    };
    let parameters = json!([{"name": "a", "default": "1"}, {"name": "b", "default": "1"}]);
    let tasks = TASKS.map(|name| {
        let mut task = object(
            "Task",
            name,
            json!({
                "params": parameters,
                "results": [{"name": name}],
                "steps": [{
                    "name": name, "image": "testbed.invalid/step", "script": format!("echo $(params.a) $(params.b) >$(results.{name}.path)"),
                }],
            }),
        );
        // Tekton copies the annotations of a Task to its TaskRuns and pods.
        task["metadata"]["annotations"] = json!({MESSAGE: result(name, VALUE)});
        task
    });
    let passed = json!([{"name": "a", "value": "$(params.a)"}, {"name": "b", "value": "$(params.b)"}]);
    let uses = TASKS.map(|name| json!({"name": name, "taskRef": {"name": name}, "params": passed}));
    let pipeline = object("Pipeline", PIPELINE, json!({"params": parameters, "tasks": uses}));
    tasks.into_iter().chain([pipeline]).collect()
}

/// A run of the Pipeline.
pub(crate) fn run(namespace: &str, name: &str) -> RunSpec {
    let parameters = json!([{"name": "a", "value": "1"}, {"name": "b", "value": "2"}]);
    RunSpec::of_pipeline(namespace, name, PIPELINE).spec("params", parameters)
}
