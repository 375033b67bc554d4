//! The resource requests in the definitions of a Pipeline's tasks. Pure.
//!
//! Tekton creates a pod for each task, with a container for each step and sidecar. An amount that depends on a parameter counts as
//! zero, and so does a task that a resolver would have to fetch.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use placement::resources::Resources;
use serde_json::Value;
use std::collections::BTreeMap;

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
        body: Body::of(task),
    })
}

impl<'a> Body<'a> {
    fn of(task: &'a Value) -> Self {
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
    fn a_task_asks_for_its_steps_and_sidecars_together_with_the_template_for_what_they_leave_open() {
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
    fn what_the_run_says_comes_before_what_the_task_says() {
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
    fn a_parameter_and_whatever_else_cannot_be_read_count_as_nothing() {
        let task =
            json!({"steps": [step("a", &json!({"requests": {"cpu": "$(params.cpu)", "memory": "1Gi"}})), 7]});
        assert_eq!(asks(&task, &json!({"taskRunSpecs": "odd"})), "memory=1Gi");
        assert_eq!(tasks(&json!("odd")).count(), 0);
    }

    #[test]
    fn tasks_are_embedded_or_named_or_elsewhere() {
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
