//! Reads the definitions of a run's tasks, before the placeholder is created, and the usage of a run's pods, after the run has
//! succeeded. The usage is recorded for the next runs of the same Pipeline.
//!
//! The definitions name the images that the node of the run pulls ahead. Without a record of an earlier run, they are also the source
//! of an automatic reserve. An error or a missing right counts as no definitions and no usage, because neither is worth a delay.

use crate::api_error::StepError;
use crate::pods::PodView;
use crate::read::named;
use crate::write::{Cluster, with_timeout};
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use placement::automatic_reserve::{ExpectedRequests, PodUsage, Source};
use placement::plan::Observation;
use placement::requests::Operation;
use placement::resources::Resources;
use placement::run::Run;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use tekton::tasks::{Body, Definitions, Pipeline, RunRequests, Task, tasks};
use tracing::debug;

/// The most Task objects that are read for one run.
const MOST_TASKS: usize = 20;

impl Cluster {
    /// The node, the requests and the times of each task pod. After an error the run gets no record, which is not worth a delay.
    pub(crate) async fn stints(&self, observed: &Observation) -> Vec<PodUsage> {
        let and_one = |mut stints: Vec<PodUsage>, pod: &PodView| {
            stints.extend(stint(pod, observed.now));
            stints
        };
        let stints = self.fold_task_pods(Operation::RecordUse, &observed.run, Vec::new(), and_one);
        stints.await.unwrap_or_else(|refused| {
            debug!(error = %refused.fault, "what the tasks asked for is not written down");
            Vec::new()
        })
    }

    /// The definitions of the run's tasks. After an error nothing counts as known.
    pub(crate) async fn definitions(&self, run: &Run) -> Definitions {
        self.read_definitions(run).await.unwrap_or_else(|refused| {
            debug!(error = %refused.fault, "the definitions of the tasks cannot be read");
            Definitions::default()
        })
    }

    async fn read_definitions(&self, run: &Run) -> Result<Definitions, StepError> {
        let namespace = &run.key.namespace;
        let found: Option<RunRequests> = named(Operation::Need, &self.api(namespace), run).await?;
        let mut spec = found.map(|found| found.spec).unwrap_or_default();
        let pipeline = match spec["pipelineRef"]["name"].as_str() {
            Some(name) => self
                .definition::<Pipeline>(namespace, name)
                .await?
                .map(|it| it.spec),
            None => Some(spec["pipelineSpec"].take()),
        };
        let pipeline = pipeline.unwrap_or_default();
        let mut tasks = BTreeMap::new();
        for name in named_tasks(&pipeline).into_iter().take(MOST_TASKS) {
            if let Some(found) = self.definition::<Task>(namespace, name).await? {
                tasks.insert(name.to_owned(), found.spec);
            }
        }
        Ok(Definitions {
            run: spec,
            pipeline,
            tasks,
        })
    }

    async fn definition<K>(&self, namespace: &str, name: &str) -> Result<Option<K>, StepError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    {
        with_timeout(Operation::Need, self.api::<K>(namespace).get_opt(name)).await
    }
}

/// What the run is expected to request by the definitions of its tasks.
pub(crate) fn expected(definitions: &Definitions) -> ExpectedRequests {
    let requests = definitions.largest();
    let source = if requests == Resources::default() {
        Source::Nothing
    } else {
        Source::Definitions
    };
    ExpectedRequests { requests, source }
}

/// `None` for a pod that never had a node.
pub(crate) fn stint(pod: &PodView, now: Timestamp) -> Option<PodUsage> {
    let from = pod.bound_since()?;
    Some(PodUsage {
        node: pod.node()?.to_owned(),
        from,
        to: ended(pod).unwrap_or(now).max(from),
        requests: pod.asks(),
    })
}

/// When the last container ended, if all containers have ended.
fn ended(pod: &PodView) -> Option<Timestamp> {
    pod.ends().collect::<Option<Vec<_>>>()?.into_iter().max()
}

/// The names of the Task objects that the tasks of a Pipeline refer to.
fn named_tasks(pipeline: &Value) -> BTreeSet<&str> {
    let names = tasks(pipeline).filter_map(|task| match task.body {
        Body::Named(name) => Some(name),
        Body::Embedded(_) | Body::Elsewhere => None,
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Server, at, run};
    use serde_json::json;

    fn steps(cpu: &str) -> Value {
        json!({"steps": [{"computeResources": {"requests": {"cpu": cpu}}}]})
    }

    #[tokio::test]
    async fn a_run_needs_the_requests_of_its_largest_task_in_its_pipeline_or_in_a_task_object() {
        let cases = [("3", "1", "cpu=3"), ("1", "2", "cpu=2")];
        for (named, embedded, asks) in cases {
            let mut server = Server::start();
            let found =
                json!({"metadata": {"name": "build", "uid": "u1"}, "spec": {"pipelineRef": {"name": "all"}}});
            server.answer(200, json!({"metadata": {}, "items": [found]}));
            let tasks = json!([
                {"name": "a", "taskRef": {"name": "compile"}},
                {"name": "b", "taskSpec": steps(embedded)},
            ]);
            server.answer(
                200,
                json!({"metadata": {"name": "all"}, "spec": {"tasks": tasks}}),
            );
            server.answer(
                200,
                json!({"metadata": {"name": "compile"}, "spec": steps(named)}),
            );
            let cluster = Cluster::new(server.client(), "image".into(), "tekton-pod-affinity".into());
            let need = expected(&cluster.definitions(&run()).await);
            assert_eq!(
                (need.requests.to_string().as_str(), need.source),
                (asks, Source::Definitions)
            );
            let calls = server.calls();
            assert!(
                calls[1].line.ends_with("/namespaces/ns/pipelines/all"),
                "{calls:?}"
            );
            assert!(
                calls[2].line.ends_with("/namespaces/ns/tasks/compile"),
                "{calls:?}"
            );
        }
    }

    fn pod(status: &Value) -> PodView {
        let spec = json!({"nodeName": "n1", "containers": [{"name": "step", "resources": {"requests": {"cpu": "2"}}}]});
        serde_json::from_value(json!({"metadata": {}, "spec": spec, "status": status})).unwrap()
    }

    fn bound() -> Value {
        json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": at(5).to_string()}])
    }

    #[test]
    fn a_pod_counts_from_its_node_to_the_end_of_its_last_container() {
        let ended = |second: i64| json!({"state": {"terminated": {"finishedAt": at(second).to_string(), "exitCode": 0}}});
        let containers = json!([ended(9), ended(7)]);
        let stint = stint(
            &pod(&json!({"conditions": bound(), "containerStatuses": containers})),
            at(60),
        )
        .unwrap();
        assert_eq!((stint.node.as_str(), stint.from, stint.to), ("n1", at(5), at(9)));
        assert_eq!(stint.requests.to_string(), "cpu=2");
    }

    #[test]
    fn a_pod_that_has_not_ended_counts_until_now_and_one_without_a_node_not_at_all() {
        let containers = json!([{"state": {"running": {}}}]);
        let running = stint(
            &pod(&json!({"conditions": bound(), "containerStatuses": containers})),
            at(60),
        );
        assert_eq!(running.unwrap().to, at(60));
        assert_eq!(stint(&pod(&json!({})), at(60)), None);
    }
}
