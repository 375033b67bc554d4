//! Creates PipelineRuns for tests and reads their state, pods and nodes.

use crate::apply;
use crate::error::{Error, Result};
use crate::stages::{DURATION, OUTCOME};
use crate::testbed::{READY, Testbed};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// Opt-in label of pod-affinity.
pub const OPT_IN: &str = "tekton.dev/custom-pod-affinity";
/// Tekton's label with the name of a pod's run.
pub const RUN_LABEL: &str = "tekton.dev/pipelineRun";

/// A builder of PipelineRuns. On fake nodes, tasks run for the time in the run's annotation.
#[derive(Clone, Debug)]
pub struct RunSpec {
    /// The manifest.
    pub manifest: Value,
}

impl RunSpec {
    /// A run without tasks.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            manifest: json!({
                "apiVersion": "tekton.dev/v1",
                "kind": "PipelineRun",
                "metadata": {"namespace": namespace, "name": name, "labels": {}, "annotations": {}},
                "spec": {"pipelineSpec": {"tasks": []}},
            }),
        }
    }

    /// A run of a Pipeline in its namespace.
    pub fn of_pipeline(namespace: &str, name: &str, pipeline: &str) -> Self {
        let mut run = Self::new(namespace, name);
        run.manifest["spec"] = json!({"pipelineRef": {"name": pipeline}});
        run
    }

    /// A run with four tasks: one task, then two in parallel, then one.
    pub fn diamond(namespace: &str, name: &str) -> Self {
        Self::new(namespace, name)
            .task("fetch", &[])
            .task("build", &["fetch"])
            .task("lint", &["fetch"])
            .task("publish", &["build", "lint"])
    }

    /// Adds a task that runs after the tasks in `after`.
    #[must_use]
    pub fn task(self, name: &str, after: &[&str]) -> Self {
        let mut task = task(name, &json!({}));
        task["runAfter"] = json!(after);
        self.push("/spec/pipelineSpec/tasks", task)
    }

    /// Adds a task whose step has resource requests.
    #[must_use]
    pub fn sized_task(self, name: &str, after: &[&str], requests: &Value) -> Self {
        let mut task = task(name, requests);
        task["runAfter"] = json!(after);
        self.push("/spec/pipelineSpec/tasks", task)
    }

    /// Adds a `finally` task.
    #[must_use]
    pub fn finally(mut self, name: &str) -> Self {
        if self.manifest.pointer("/spec/pipelineSpec/finally").is_none() {
            self.manifest["spec"]["pipelineSpec"]["finally"] = json!([]);
        }
        self.push("/spec/pipelineSpec/finally", task(name, &json!({})))
    }

    fn push(mut self, list: &str, item: Value) -> Self {
        if let Some(list) = self.manifest.pointer_mut(list).and_then(Value::as_array_mut) {
            list.push(item);
        }
        self
    }

    /// Adds the opt-in label.
    #[must_use]
    pub fn opted_in(self, value: &str) -> Self {
        self.label(OPT_IN, value)
    }

    /// Adds a label.
    #[must_use]
    pub fn label(self, key: &str, value: &str) -> Self {
        self.metadata("labels", key, value)
    }

    /// Adds an annotation.
    #[must_use]
    pub fn annotation(self, key: &str, value: &str) -> Self {
        self.metadata("annotations", key, value)
    }

    fn metadata(mut self, map: &str, key: &str, value: &str) -> Self {
        self.manifest["metadata"][map][key] = json!(value);
        self
    }

    /// Sets how long the pods run, such as `3s`.
    #[must_use]
    pub fn lasting(self, duration: &str) -> Self {
        self.annotation(DURATION, duration)
    }

    /// Sets the result of the pods: `succeed`, `fail`, `fail-once` or `hang`.
    #[must_use]
    pub fn ending(self, outcome: &str) -> Self {
        self.annotation(OUTCOME, outcome)
    }

    /// Sets a field of the spec.
    #[must_use]
    pub fn spec(mut self, key: &str, value: Value) -> Self {
        self.manifest["spec"][key] = value;
        self
    }

    /// Sets a field of the last task.
    #[must_use]
    pub fn task_field(mut self, key: &str, value: Value) -> Self {
        let tasks = self
            .manifest
            .pointer_mut("/spec/pipelineSpec/tasks")
            .and_then(Value::as_array_mut);
        if let Some(last) = tasks.and_then(|tasks| tasks.last_mut()) {
            last[key] = value;
        }
        self
    }

    /// Namespace of the run.
    pub fn namespace(&self) -> &str {
        self.manifest["metadata"]["namespace"]
            .as_str()
            .unwrap_or_default()
    }

    /// Name of the run.
    pub fn name(&self) -> &str {
        self.manifest["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// Creates the run as the client's user.
    pub async fn create(&self, client: &Client) -> Result<DynamicObject, kube::Error> {
        let object = serde_json::from_value(self.manifest.clone()).map_err(kube::Error::SerdeError)?;
        runs(client, self.namespace())
            .create(&PostParams::default(), &object)
            .await
    }
}

fn task(name: &str, requests: &Value) -> Value {
    json!({
        "name": name,
        "taskSpec": {"steps": [{
            "name": "step",
            "image": "testbed.invalid/step",
            "script": "true",
            "computeResources": {"requests": requests},
        }]},
    })
}

/// The PipelineRuns of a namespace, untyped.
pub fn runs(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &resource())
}

/// The TaskRuns of a namespace, untyped.
pub fn task_runs(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("tekton.dev", "v1", "TaskRun");
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind))
}

/// The API resource of PipelineRuns.
pub fn resource() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("tekton.dev", "v1", "PipelineRun"))
}

/// The state of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// `spec.status` holds the run.
    Pending,
    /// The run is neither held nor done.
    Running,
    /// The run succeeded.
    Succeeded,
    /// The run ended without success; contains the reason of the condition.
    Failed(String),
}

impl State {
    /// Whether the state is final.
    pub fn is_over(&self) -> bool {
        match self {
            Self::Pending | Self::Running => false,
            Self::Succeeded | Self::Failed(_) => true,
        }
    }
}

/// Reads the state of a run.
pub fn state(run: &DynamicObject) -> State {
    let conditions = run.data.pointer("/status/conditions").and_then(Value::as_array);
    let condition = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "Succeeded");
    match condition.and_then(|condition| condition["status"].as_str()) {
        Some("True") => State::Succeeded,
        Some("False") => State::Failed(
            condition
                .and_then(|found| found["reason"].as_str())
                .unwrap_or_default()
                .into(),
        ),
        _ if run.data.pointer("/spec/status") == Some(&json!("PipelineRunPending")) => State::Pending,
        _ => State::Running,
    }
}

/// Label selector for the pods of a run's tasks. With `=` and a name appended, it selects the pods of one task.
pub fn task_pods(run: &str) -> String {
    format!("{RUN_LABEL}={run},tekton.dev/pipelineTask")
}

/// The pods of a run's tasks, without the placeholder.
pub async fn pods(client: &Client, namespace: &str, run: &str) -> Result<Vec<Pod>> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let listed = api.list(&ListParams::default().labels(&task_pods(run))).await;
    Ok(listed
        .map_err(Error::api(format!("listing the pods of {namespace}/{run}")))?
        .items)
}

/// The node of a bound pod.
pub fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// The nodes of these pods.
pub fn nodes(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter().filter_map(node).map(String::from).collect()
}

impl Testbed {
    /// Creates a namespace and waits until pods can be created there.
    pub async fn namespace(&self, name: &str) -> Result<String> {
        let client = self.client().await?;
        apply::apply(
            &client,
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        )
        .await?;
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> = Api::namespaced(client, name);
        self.until(
            format!("the default ServiceAccount of {name}"),
            READY,
            async || accounts.get("default").await.map_err(|error| error.to_string()),
        )
        .await?;
        Ok(name.to_owned())
    }

    /// Deletes a namespace without waiting for its end.
    pub async fn remove_namespace(&self, name: &str) -> Result<()> {
        let api: Api<Namespace> = Api::all(self.client().await?);
        api.delete(name, &kube::api::DeleteParams::default())
            .await
            .map(drop)
            .map_err(Error::api(format!("deleting namespace {name}")))
    }

    /// Waits until `wanted` accepts the run, and returns the run.
    pub async fn until_run(
        &self,
        spec: &RunSpec,
        what: &str,
        deadline: Duration,
        wanted: impl Fn(&DynamicObject) -> bool,
    ) -> Result<DynamicObject> {
        let api = runs(&self.client().await?, spec.namespace());
        let (namespace, name) = (spec.namespace(), spec.name());
        self.until(format!("run {namespace}/{name} {what}"), deadline, async || {
            let run = api.get(name).await.map_err(|error| error.to_string())?;
            match state(&run) {
                _ if wanted(&run) => Ok(run),
                State::Failed(_) => Err(describe(&run) + &self.failures(spec).await?),
                State::Pending | State::Running | State::Succeeded => Err(describe(&run)),
            }
        })
        .await
    }

    /// The messages of a run's failed tasks.
    async fn failures(&self, spec: &RunSpec) -> Result<String, String> {
        let client = self.client().await.map_err(|error| error.to_string())?;
        let api = task_runs(&client, spec.namespace());
        let of_run = ListParams::default().labels(&format!("{RUN_LABEL}={}", spec.name()));
        let tasks = api.list(&of_run).await.map_err(|error| error.to_string())?;
        let failed = tasks
            .iter()
            .filter(|task| matches!(state(task), State::Failed(_)));
        Ok(failed
            .map(|task| format!("; task {}: {}", task.name_any(), describe(task)))
            .collect())
    }

    /// Waits until a run has succeeded.
    pub async fn until_succeeded(&self, spec: &RunSpec, deadline: Duration) -> Result<DynamicObject> {
        self.until_run(spec, "to succeed", deadline, |run| state(run) == State::Succeeded)
            .await
    }
}

/// A description of a run in an unexpected state.
fn describe(run: &DynamicObject) -> String {
    let status = run.data.get("status").and_then(Value::as_object).map(|status| {
        let wanted = |key: &&String| ["conditions", "childReferences"].contains(&key.as_str());
        status
            .iter()
            .filter(|(key, _)| wanted(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect::<Map<_, _>>()
    });
    format!(
        "{:?}, labels {:?}, status {}",
        state(run),
        run.labels(),
        json!(status)
    )
}
