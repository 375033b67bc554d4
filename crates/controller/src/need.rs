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
use placement::image_pull::Images;
use placement::plan::Observation;
use placement::requests::Operation;
use placement::resources::Resources;
use placement::run::Run;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use tekton::tasks::{Body, Pipeline, PipelineTask, RunRequests, Task, tasks};
use tracing::debug;

/// The most Task objects that are read for one run.
const MOST_TASKS: usize = 20;
/// The most pods of a run whose usage is recorded: the time of the comparison is quadratic.
const MOST_PODS: usize = 200;

/// What the definitions of a run's tasks say, as far as they can be read. Tasks that opted out are left out: other nodes run them.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    /// For each resource, the largest request of a task.
    pub(crate) need: ExpectedRequests,
    /// The images of the tasks.
    pub(crate) images: Images,
}

impl Cluster {
    /// The node, the requests and the times of each task pod. After an error, or with very many pods, the run gets no record, which is
    /// not worth a delay.
    pub(crate) async fn stints(&self, observed: &Observation) -> Vec<PodUsage> {
        let and_one = |mut stints: Vec<PodUsage>, pod: &PodView| {
            if stints.len() <= MOST_PODS {
                stints.extend(stint(pod, observed.now));
            }
            stints
        };
        let stints = self.fold_task_pods(Operation::RecordUse, &observed.run, Vec::new(), and_one);
        let stints = stints.await.unwrap_or_else(|refused| {
            debug!(error = %refused.fault, "the requests of the tasks cannot be read, and are not recorded");
            Vec::new()
        });
        if stints.len() > MOST_PODS {
            Vec::new()
        } else {
            stints
        }
    }

    /// What the definitions of the run's tasks say, with at most this many images. After an error nothing is known.
    pub(crate) async fn definitions(&self, run: &Run, most: usize) -> Definitions {
        self.read_definitions(run, most).await.unwrap_or_else(|refused| {
            debug!(error = %refused.fault, "the definitions of the tasks cannot be read");
            Definitions::default()
        })
    }

    /// Each Task object is dropped after it was read, because its author chooses its size.
    async fn read_definitions(&self, run: &Run, most: usize) -> Result<Definitions, StepError> {
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
        let tasks: Vec<_> = tasks(&pipeline)
            .filter(|task| !task.is_opted_out(&spec))
            .collect();
        let embedded = tasks.iter().filter_map(|task| match task.body {
            Body::Embedded(body) => Some(task.asks(body, &spec)),
            Body::Named(_) | Body::Elsewhere => None,
        });
        let mut largest = embedded.fold(Resources::default(), Resources::or_more);
        let mut images = BTreeMap::new();
        for name in named_tasks(&tasks).into_iter().take(MOST_TASKS) {
            if let Some(found) = self.definition::<Task>(namespace, name).await? {
                let alike = tasks.iter().filter(|task| task.body == Body::Named(name));
                let sizes = alike.map(|task| task.asks(&found.spec, &spec));
                largest = sizes.fold(largest, Resources::or_more);
                images.insert(name, Images::new(tekton::tasks::images(&found.spec), most));
            }
        }
        Ok(Definitions {
            images: all_images(&tasks, &images, most),
            need: expected(largest),
        })
    }

    async fn definition<K>(&self, namespace: &str, name: &str) -> Result<Option<K>, StepError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    {
        with_timeout(Operation::Need, self.api::<K>(namespace).get_opt(name)).await
    }
}

fn expected(largest: Resources) -> ExpectedRequests {
    let source = if largest == Resources::default() {
        Source::Nothing
    } else {
        Source::Definitions
    };
    ExpectedRequests {
        requests: largest,
        source,
    }
}

/// The images of all tasks, in the order of the tasks. `named` has the images of the Task objects.
fn all_images(tasks: &[PipelineTask<'_>], named: &BTreeMap<&str, Images>, most: usize) -> Images {
    let of_task = |task: &PipelineTask<'_>| match task.body {
        Body::Embedded(spec) => Images::new(tekton::tasks::images(spec), most),
        Body::Named(name) => named.get(name).cloned().unwrap_or_default(),
        Body::Elsewhere => Images::default(),
    };
    let all: Vec<_> = tasks.iter().map(of_task).collect();
    Images::new(all.iter().flat_map(Images::iter), most)
}

/// `None` for a pod that never had a node, and for a pod that the kubelet rejected: no container of the pod ran.
pub(crate) fn stint(pod: &PodView, now: Timestamp) -> Option<PodUsage> {
    let from = pod.bound_since()?;
    let to = match ended(pod) {
        None if pod.has_ended() && pod.ends().next().is_none() => return None,
        end => end.unwrap_or(now),
    };
    Some(PodUsage {
        node: pod.node()?.to_owned(),
        from,
        to: to.max(from),
        requests: pod.asks(),
    })
}

/// When the last container ended, if all containers have ended.
fn ended(pod: &PodView) -> Option<Timestamp> {
    pod.ends().collect::<Option<Vec<_>>>()?.into_iter().max()
}

/// The names of the Task objects that these tasks of a Pipeline refer to.
fn named_tasks<'a>(tasks: &[PipelineTask<'a>]) -> BTreeSet<&'a str> {
    let names = tasks.iter().filter_map(|task| match task.body {
        Body::Named(name) => Some(name),
        Body::Embedded(_) | Body::Elsewhere => None,
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Server, at, cluster, run};
    use placement::keys;
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn steps(cpu: &str) -> Value {
        json!({"steps": [{"computeResources": {"requests": {"cpu": cpu}}}]})
    }

    #[tokio::test]
    async fn a_run_needs_the_requests_of_its_largest_task_in_its_pipeline_or_in_a_task_object() {
        let cases = [("3", "1", "cpu=3"), ("1", "2", "cpu=2")];
        for (named, embedded, asks) in cases {
            let mut server = Server::start();
            let labels = json!({keys::OPT_IN: "false"});
            let opted_out = json!({"pipelineTaskName": "elsewhere", "metadata": {"labels": labels}});
            let found = json!({"metadata": {"name": "build", "uid": "u1"}, "spec": {"pipelineRef": {"name": "all"}, "taskRunSpecs": [opted_out]}});
            server.answer(200, json!({"metadata": {}, "items": [found]}));
            let tasks = json!([
                {"name": "a", "taskRef": {"name": "compile"}},
                {"name": "b", "taskSpec": steps(embedded)},
                {"name": "elsewhere", "taskSpec": steps("64")},
            ]);
            server.answer(
                200,
                json!({"metadata": {"name": "all"}, "spec": {"tasks": tasks}}),
            );
            server.answer(
                200,
                json!({"metadata": {"name": "compile"}, "spec": steps(named)}),
            );
            let cluster = cluster(&server);
            let need = cluster.definitions(&run(), 8).await.need;
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

    #[tokio::test]
    async fn the_images_of_all_tasks_are_known_in_the_order_of_the_tasks() {
        let steps = |images: &[&str]| {
            let steps = images.iter().map(|image| json!({"image": image}));
            json!({"steps": steps.collect::<Vec<_>>()})
        };
        let tasks = json!([
            {"name": "a", "taskRef": {"name": "zip"}},
            {"name": "b", "taskRef": {"resolver": "git"}},
            {"name": "c", "taskSpec": steps(&["golang", "$(params.image)"])},
            {"name": "d", "taskRef": {"name": "absent"}},
        ]);
        let finally = json!([{"name": "e", "taskSpec": steps(&["notify"])}]);
        let spec = json!({"pipelineSpec": {"tasks": tasks, "finally": finally}});
        let mut server = Server::start();
        let found = json!({"metadata": {"name": "build", "uid": "u1"}, "spec": spec});
        server.answer(200, json!({"metadata": {}, "items": [found]}));
        server.answer(
            404,
            json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"}),
        );
        server.answer(
            200,
            json!({"metadata": {"name": "zip"}, "spec": steps(&["zip", "golang"])}),
        );
        let cluster = cluster(&server);
        let images = cluster.definitions(&run(), 8).await.images;
        assert_eq!(images.iter().collect::<Vec<_>>(), ["zip", "golang", "notify"]);
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

    #[test]
    fn a_pod_that_the_kubelet_rejected_does_not_count() {
        let rejected = json!({"phase": "Failed", "reason": "OutOfcpu", "startTime": at(5).to_string()});
        assert_eq!(stint(&pod(&rejected), at(60)), None);
    }

    #[tokio::test]
    async fn a_run_with_very_many_pods_gets_no_record() {
        let observed = Observation::new(run(), Arc::default(), at(60));
        for (pods, recorded) in [(MOST_PODS, MOST_PODS), (MOST_PODS + 1, 0)] {
            let mut server = Server::start();
            let pod = json!({
                "metadata": {"name": "p"}, "spec": {"nodeName": "n1", "containers": []},
                "status": {"conditions": bound(), "containerStatuses": []},
            });
            server.answer(200, json!({"metadata": {}, "items": vec![pod; pods]}));
            assert_eq!(cluster(&server).stints(&observed).await.len(), recorded);
        }
    }
}
