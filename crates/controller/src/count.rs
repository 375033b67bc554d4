//! The reads at the API server, for what the caches cannot answer: they may be behind, and they keep little.

use crate::assistants::{ListedPod, ListedSet, listed_pod, listed_set};
use crate::claims::is_mountable;
use crate::members;
use crate::nodes::WatchedNode;
use crate::refusal::Refused;
use crate::tasks::{TaskPod, Tasks};
use crate::write::{Cluster, within};
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim};
use kube::api::{Api, ListMeta, ListParams};
use placement::autoscaler;
use placement::node::{self, NodeState};
use placement::plan::{Assistant, Census, Message, Observation, Question};
use placement::requests::Operation;
use placement::run::Run;
use tracing::debug;

/// Pods counted at a time; a pod of Tekton is large, and a run may have hundreds.
const PODS_A_PAGE: u32 = 100;

impl Cluster {
    /// Adds the answer to an observation.
    pub(crate) async fn count(&self, question: Question, seen: &mut Observation) -> Result<(), Refused> {
        match question {
            Question::Tasks => {
                let tasks = self.tasks(&seen.run, seen.node_name()).await?;
                seen.node = tasks.node;
                seen.census = Some(Census {
                    live: tasks.live,
                    quiet_since: tasks.ended,
                });
            }
            Question::Claims => seen.claims = Some(self.mountable(&seen.run).await?),
            Question::Assistants => seen.assistants = Some(self.assistants(seen).await?),
            Question::Complaint => seen.complaint = Some(self.complaint(seen).await),
            Question::Autoscaler => seen.autoscaler = Some(self.autoscaler(seen).await),
        }
        Ok(())
    }

    /// Counts the run's tasks, after reading its node: what decides over a move must not be stale.
    pub(crate) async fn tasks(&self, run: &Run, node: Option<&str>) -> Result<Tasks, Refused> {
        let pods: Api<TaskPod> = self.api(&run.key.namespace);
        let mut page = ListParams::default()
            .labels(&members::tasks_of(&run.key))
            .limit(PODS_A_PAGE);
        let mut tasks = Tasks {
            node: self.state_of(run, node).await?,
            ..Tasks::default()
        };
        loop {
            let listed = within(Operation::Count, pods.list(&page)).await?;
            tasks = listed.items.iter().fold(tasks, |tasks, pod| tasks.and(pod, node));
            match after(&page, listed.metadata) {
                Some(next) => page = next,
                None => return Ok(tasks),
            }
        }
    }

    async fn state_of(&self, run: &Run, node: Option<&str>) -> Result<NodeState, Refused> {
        let Some(name) = node else {
            return Ok(NodeState::Unknown);
        };
        let nodes: Api<WatchedNode> = Api::all(self.client.clone());
        let found = within(Operation::Count, nodes.get_opt(name)).await?;
        let facts = found.as_ref().and_then(WatchedNode::facts);
        Ok(node::state(facts.as_ref(), &run.template.tolerations))
    }

    /// The run's PVCs that its placeholder can mount.
    async fn mountable(&self, run: &Run) -> Result<Vec<String>, Refused> {
        let api: Api<PersistentVolumeClaim> = self.api(&run.key.namespace);
        let mut claims = Vec::new();
        for name in &run.claims {
            let found = within(Operation::Claims, api.get_opt(name)).await?;
            claims.extend(found.filter(is_mountable).map(|_| name.clone()));
        }
        Ok(claims)
    }

    /// Their pods matter only as long as the placeholder is there to move off with them.
    async fn assistants(&self, seen: &Observation) -> Result<Vec<Assistant>, Refused> {
        let key = &seen.run.key;
        let there = ListParams::default().labels(&members::assistants_of(key));
        let sets = self.api::<ListedSet>(&key.namespace);
        let sets = within(Operation::Assistants, sets.list(&there)).await?.items;
        let mut assistants: Vec<_> = sets.into_iter().filter_map(listed_set).collect();
        if seen.set.as_ref().is_some_and(|set| set.replicas > 0) {
            let pods = self.api::<ListedPod>(&key.namespace);
            let pods = within(Operation::Assistants, pods.list(&there)).await?.items;
            assistants.extend(pods.into_iter().filter_map(listed_pod));
        }
        Ok(assistants)
    }

    /// What the StatefulSet's controller last said about pods that it could not create.
    async fn complaint(&self, seen: &Observation) -> Message {
        let set = seen.set.as_ref().map(|set| set.uid.as_str()).unwrap_or_default();
        let about = format!("involvedObject.uid={set},reason=FailedCreate");
        self.latest(seen, &about, |_| true).await
    }

    /// What an autoscaler last said to the placeholder's pod.
    async fn autoscaler(&self, seen: &Observation) -> Message {
        let pod = seen.pod.as_ref().map(|pod| pod.uid.as_str()).unwrap_or_default();
        self.latest(seen, &format!("involvedObject.uid={pod}"), is_of_autoscaler)
            .await
    }

    /// Only for the user's eyes, so that an error in asking keeps nothing from happening.
    async fn latest(&self, seen: &Observation, about: &str, is_it: fn(&Event) -> bool) -> Message {
        let events: Api<Event> = self.api(&seen.run.key.namespace);
        match within(
            Operation::Lookup,
            events.list(&ListParams::default().fields(about)),
        )
        .await
        {
            Ok(list) => {
                let events = list.items.into_iter().filter(is_it);
                Message(events.max_by_key(last_seen).and_then(|event| event.message))
            }
            Err(error) => {
                debug!(%error, "cannot read the events of a placeholder");
                Message::default()
            }
        }
    }
}

/// The next page, if this was not the last; an empty token means that it was.
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
    autoscaler::answers(reporter.or(source).unwrap_or_default(), reason)
}

fn last_seen(event: &Event) -> Option<jiff::Timestamp> {
    let times = (event.last_timestamp.as_ref(), event.event_time.as_ref());
    times.0.map(|time| time.0).or_else(|| times.1.map(|time| time.0))
}
