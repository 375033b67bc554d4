//! Reads the groups of inputs from the API server: the caches may be stale, and they keep only a part of each object.

use crate::api_error::{Cause, Refused};
use crate::claims::{Part, part};
use crate::members;
use crate::nodes::WatchedNode;
use crate::pod_view::PodView;
use crate::quota_events::REASON;
use crate::stints::stint;
use crate::tasks::Tasks;
use crate::write::{Cluster, within};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim, ResourceQuota};
use kube::Resource;
use kube::api::{Api, DynamicObject, ListMeta, ListParams, PartialObjectMeta};
use placement::keys;
use placement::messages;
use placement::names::RunKey;
use placement::need::Stint;
use placement::node;
use placement::plan::{AssistantPod, Observation, PlaceholderPod, Quota, VolumeConstraints};
use placement::requests::Operation;
use placement::run::Run;
use placement::sets::{self, Owned, Places};
use placement::volume::{Named, is_only_on, required};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use tekton::PipelineRun;
use tracing::debug;

/// Pods per page of a list: Tekton's pods are large, and a run may have hundreds.
const PODS_A_PAGE: u32 = 100;

impl Cluster {
    /// Reads the placeholder's node, then counts the run's tasks. A decision about a move must not use stale data.
    pub(crate) async fn tasks(
        &self,
        run: &Run,
        placeholder: Option<&PlaceholderPod>,
    ) -> Result<Tasks, Refused> {
        let node = placeholder.and_then(|pod| pod.node.as_deref());
        let tasks = self.before_a_count(placeholder).await?;
        let and_one = |tasks: Tasks, pod: &PodView| tasks.and(pod, node);
        self.over_tasks(Operation::Count, run, tasks, and_one).await
    }

    /// Folds over the pods of the run's tasks, page by page.
    async fn over_tasks<T>(
        &self,
        operation: Operation,
        run: &Run,
        mut whole: T,
        and_one: impl Fn(T, &PodView) -> T,
    ) -> Result<T, Refused> {
        let pods = self.api::<PodView>(&run.key.namespace);
        let mut page = ListParams::default()
            .labels(&members::tasks_of(&run.key))
            .limit(PODS_A_PAGE);
        loop {
            let listed = within(operation, pods.list(&page)).await?;
            whole = listed.items.iter().fold(whole, &and_one);
            match after(&page, listed.metadata) {
                Some(next) => page = next,
                None => return Ok(whole),
            }
        }
    }

    /// The node, the requests and the times of each task pod. After an error the run gets no record, which is not worth a delay.
    pub(crate) async fn stints(&self, seen: &Observation) -> Vec<Stint> {
        let and_one = |mut stints: Vec<Stint>, pod: &PodView| {
            stints.extend(stint(pod, seen.now));
            stints
        };
        let stints = self.over_tasks(Operation::RecordUse, &seen.run, Vec::new(), and_one);
        stints.await.unwrap_or_else(|refused| {
            debug!(error = %refused.fault, "what the tasks asked for is not written down");
            Vec::new()
        })
    }

    /// The first PVC of the run whose volume can be used on this node only.
    pub(crate) async fn tied(&self, run: &Run, tasks: &Tasks, node: &str) -> Result<Option<String>, Refused> {
        let claims: Api<PersistentVolumeClaim> = self.api(&run.key.namespace);
        let here = Named {
            name: node,
            hostname: tasks.hostname.as_deref().unwrap_or(node),
        };
        let known: BTreeSet<_> = tasks.claims.iter().chain(&run.claims).collect();
        for name in known {
            let claim = within(Operation::Count, claims.get_opt(name)).await?;
            let volume = self.volume(Operation::Count, claim.as_ref()).await?;
            if volume.is_some_and(|volume| is_only_on(&volume, here)) {
                return Ok(Some(name.clone()));
            }
        }
        Ok(None)
    }

    /// The `PersistentVolume` that the PVC is bound to.
    async fn volume(
        &self,
        operation: Operation,
        claim: Option<&PersistentVolumeClaim>,
    ) -> Result<Option<PersistentVolume>, Refused> {
        let Some(name) = claim.and_then(|claim| claim.spec.as_ref()?.volume_name.as_deref()) else {
            return Ok(None);
        };
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        within(operation, volumes.get_opt(name)).await
    }

    /// The start of a count: the state of the placeholder's node, and no tasks.
    async fn before_a_count(&self, placeholder: Option<&PlaceholderPod>) -> Result<Tasks, Refused> {
        let Some((pod, name)) = placeholder.and_then(|pod| Some((pod, pod.node.as_deref()?))) else {
            return Ok(Tasks::default());
        };
        let nodes: Api<WatchedNode> = Api::all(self.client.clone());
        let found = within(Operation::Count, nodes.get_opt(name)).await?;
        let facts = found.as_ref().and_then(WatchedNode::facts);
        Ok(Tasks {
            node: node::state(facts.as_ref(), &pod.tolerations),
            hostname: found.as_ref().and_then(WatchedNode::hostname),
            ..Tasks::default()
        })
    }

    /// The TaskRuns of the run's group whose pod was rejected by a ResourceQuota, as their condition reports.
    pub(crate) async fn rejected_tasks(&self, run: &Run) -> Result<Vec<String>, Refused> {
        let members = ListParams::default().labels(&format!("{}={}", keys::GROUP, run.key.uid));
        let tasks = self.task_runs(&run.key.namespace);
        let listed = within(Operation::Retry, tasks.list(&members)).await?.items;
        let is_refused = |task: &DynamicObject| {
            let conditions = task.data.pointer("/status/conditions").and_then(Value::as_array);
            conditions
                .into_iter()
                .flatten()
                .any(|condition| condition["reason"] == REASON)
        };
        let refused = listed.into_iter().filter(is_refused);
        Ok(refused.filter_map(|task| task.metadata.name).collect())
    }

    /// The current run with all its labels, which the cache does not keep; `None` if the run was deleted. Lists the runs, because
    /// the controller has the right to list for its watch, but needs no right to get.
    async fn read(&self, operation: Operation, run: &Run) -> Result<Option<PipelineRun>, Refused> {
        named(operation, &self.api(&run.key.namespace), run).await
    }

    /// The run's labels whose keys are in `placeholder-copied-labels`.
    pub(crate) async fn copied_labels(
        &self,
        seen: &Observation,
    ) -> Result<BTreeMap<String, String>, Refused> {
        let run = self.read(Operation::Labels, &seen.run).await?;
        let mut labels = run.and_then(|run| run.metadata.labels).unwrap_or_default();
        labels.retain(|key, _| seen.config.placeholder_copied_labels.contains(key));
        Ok(labels)
    }

    /// The run's PVCs that the placeholder can mount, and the node selectors of the volumes that only a task may mount.
    pub(crate) async fn volumes(&self, run: &Run) -> Result<VolumeConstraints, Refused> {
        let api: Api<PersistentVolumeClaim> = self.api(&run.key.namespace);
        let mut volumes = VolumeConstraints::default();
        for name in &run.claims {
            let found = within(Operation::Claims, api.get_opt(name)).await?;
            match found.as_ref().map(part) {
                Some(Part::Mounted) => volumes.mountable.push(name.clone()),
                Some(Part::OfOnePod) => {
                    let volume = self.volume(Operation::Claims, found.as_ref()).await?;
                    volumes
                        .required
                        .extend(volume.as_ref().and_then(required).cloned());
                }
                Some(Part::None) | None => {}
            }
        }
        Ok(volumes)
    }

    /// Whether a quota has room for the placeholder's StatefulSet, beside the StatefulSets that Tekton creates for this run and for
    /// other runs.
    pub(crate) async fn quota(&self, seen: &Observation, others: &[Run]) -> Result<Quota, Refused> {
        let namespace = &seen.run.key.namespace;
        if !sets::are_counted(&self.quotas(namespace).await?) {
            return Ok(Quota::default());
        }
        let owned = self.api::<StatefulSet>(namespace);
        let owned = within(Operation::Places, owned.list_metadata(&ListParams::default())).await?;
        let there = owned.items.iter().filter_map(|set| owned_by_run(set, namespace));
        let there: Vec<_> = there.collect();
        // Read after the StatefulSets: a StatefulSet that Tekton creates meanwhile is then counted twice, and not missed.
        let quotas = self.quotas(namespace).await?;
        let places = Places {
            run: &seen.run,
            others,
            there: &there,
            now: seen.now,
            hold_deadline: seen.config.hold_deadline,
        };
        Ok(Quota {
            short_of: sets::short_of(&quotas, places.needed()),
            in_the_way: places.in_the_way(&quotas, owned.items.len()),
        })
    }

    /// Returns no quotas if an older `ClusterRole` lacks the right to list quotas: runs must not wait for its update.
    async fn quotas(&self, namespace: &str) -> Result<Vec<ResourceQuota>, Refused> {
        let quotas = self.api::<ResourceQuota>(namespace);
        match within(Operation::Places, quotas.list(&ListParams::default())).await {
            Ok(list) => Ok(list.items),
            Err(refused) if refused.cause() == Cause::Forbidden => {
                debug!(error = %refused.fault, "quotas are not known");
                Ok(Vec::new())
            }
            Err(refused) => Err(refused),
        }
    }

    /// The run's affinity assistants. Sends no request if the run never gave up a node: no assistant is on an old node then.
    pub(crate) async fn assistants(&self, seen: &Observation) -> Result<Vec<AssistantPod>, Refused> {
        if seen.set.as_ref().is_none_or(|set| set.spec.left_node().is_none()) {
            return Ok(Vec::new());
        }
        let key = &seen.run.key;
        let own = ListParams::default().labels(&members::assistants_of(key));
        let pods = self.api::<PodView>(&key.namespace);
        let pods = within(Operation::Assistants, pods.list(&own)).await?.items;
        Ok(pods.iter().filter_map(assistant).collect())
    }

    /// The message of the latest `FailedCreate` event on the placeholder's StatefulSet.
    pub(crate) async fn failed_create(&self, seen: &Observation) -> Option<String> {
        let set = seen.set.as_ref().map(|set| set.uid.as_str()).unwrap_or_default();
        let about = format!("involvedObject.uid={set},reason=FailedCreate");
        self.latest(seen, &about, |_| true).await
    }

    /// The message of an autoscaler's latest event on the placeholder's pod.
    pub(crate) async fn autoscaler(&self, seen: &Observation) -> Option<String> {
        let pod = seen.pod.as_ref().map(|pod| pod.uid.as_str()).unwrap_or_default();
        self.latest(seen, &format!("involvedObject.uid={pod}"), is_of_autoscaler)
            .await
    }

    /// The message of the latest event. An error is logged and counts as no event, so that the error stops no step.
    async fn latest(&self, seen: &Observation, about: &str, is_it: fn(&Event) -> bool) -> Option<String> {
        let events: Api<Event> = self.api(&seen.run.key.namespace);
        match within(
            Operation::Lookup,
            events.list(&ListParams::default().fields(about)),
        )
        .await
        {
            Ok(list) => {
                let events = list.items.into_iter().filter(is_it);
                events.max_by_key(last_seen).and_then(|event| event.message)
            }
            Err(error) => {
                debug!(%error, "cannot read the events of a placeholder");
                None
            }
        }
    }
}

/// Lists the run by name, in any view. A run with the same name and another UID is a different run.
pub(crate) async fn named<K>(operation: Operation, runs: &Api<K>, run: &Run) -> Result<Option<K>, Refused>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let named = ListParams::default().fields(&format!("metadata.name={}", run.key.name));
    let found = within(operation, runs.list(&named)).await?.items;
    let is_it = |it: &K| it.meta().uid.as_deref() == Some(&run.key.uid);
    Ok(found.into_iter().find(is_it))
}

fn owned_by_run(set: &PartialObjectMeta<StatefulSet>, namespace: &str) -> Option<Owned> {
    let owners = set.metadata.owner_references.iter().flatten();
    let mut runs = owners.filter(|owner| owner.kind == "PipelineRun");
    let (run, name) = (runs.next()?, set.metadata.name.clone()?);
    let key = RunKey {
        namespace: namespace.to_owned(),
        name: run.name.clone(),
        uid: run.uid.clone(),
    };
    Some(Owned {
        is_placeholder: key.placeholder().as_str() == name,
        run: key.uid,
        name,
        uid: set.metadata.uid.clone()?,
    })
}

/// While an assistant is on the old node, the scheduler places the tasks on that node: see `placement::inject`.
fn assistant(pod: &PodView) -> Option<AssistantPod> {
    Some(AssistantPod {
        name: pod.metadata.name.clone()?,
        uid: pod.metadata.uid.clone()?,
        node: pod.node().map(str::to_owned),
    })
}

/// The parameters of the next page, if there is one. An empty continue token marks the last page.
fn after(page: &ListParams, listed: ListMeta) -> Option<ListParams> {
    let token = listed.continue_.filter(|token| !token.is_empty())?;
    Some(page.clone().continue_token(&token))
}

fn is_of_autoscaler(event: &Event) -> bool {
    let source = event
        .source
        .as_ref()
        .and_then(|source| source.component.as_deref());
    let reporter = event.reporting_component.as_deref().filter(|it| !it.is_empty());
    let reason = event.reason.as_deref().unwrap_or_default();
    messages::is_of_autoscaler(reporter.or(source).unwrap_or_default(), reason)
}

fn last_seen(event: &Event) -> Option<jiff::Timestamp> {
    let times = (event.last_timestamp.as_ref(), event.event_time.as_ref());
    times.0.map(|time| time.0).or_else(|| times.1.map(|time| time.0))
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
