//! What the controller asks of the API server, where its caches are not enough: they may be behind, and they keep little.

use crate::act::{Door, within};
use crate::claims;
use crate::count::{Count, TaskPod};
use crate::members;
use crate::refusal::{Refused, Step};
use crate::watched::WatchedNode;
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim};
use kube::api::{Api, ListMeta, ListParams, ObjectMeta};
use placement::autoscaler;
use placement::keys;
use placement::names::RunKey;
use placement::node::{self, NodeState};
use placement::run::Run;
use std::collections::BTreeMap;
use tekton::{PipelineRun, metadata};
use tracing::debug;

/// Pods counted at a time; a pod of Tekton is large, and a run may have hundreds.
const PODS_A_PAGE: u32 = 100;
/// Runs a page, of which only the metadata comes.
const RUNS_A_PAGE: u32 = 500;

impl Door {
    /// Counts the run's tasks, and looks at its node: what decides over letting go must not be stale.
    pub(crate) async fn count(&self, run: &Run, node: Option<&str>) -> Result<Count, Refused> {
        let pods: Api<TaskPod> = self.api(&run.key.namespace);
        let mut page = ListParams::default()
            .labels(&members::tasks_of(&run.key))
            .limit(PODS_A_PAGE);
        let mut count = Count {
            node: self.state_of(run, node).await?,
            ..Count::default()
        };
        loop {
            let listed = within(Step::Count, pods.list(&page)).await?;
            count = listed.items.iter().fold(count, |count, pod| count.and(pod, node));
            match after(&page, listed.metadata) {
                Some(next) => page = next,
                None => return Ok(count),
            }
        }
    }

    async fn state_of(&self, run: &Run, node: Option<&str>) -> Result<NodeState, Refused> {
        let Some(name) = node else {
            return Ok(NodeState::Unknown);
        };
        let nodes: Api<WatchedNode> = Api::all(self.client.clone());
        let found = within(Step::Count, nodes.get_opt(name)).await?;
        let facts = found.as_ref().and_then(WatchedNode::facts);
        Ok(node::state(facts.as_ref(), &run.template.tolerations))
    }

    /// The very run that is meant, as it is now; `None` if it is gone.
    pub(crate) async fn find(&self, key: &RunKey) -> Result<Option<Run>, Refused> {
        let runs: Api<PipelineRun> = self.api(&key.namespace);
        let found = within(Step::Lookup, runs.get_opt(&key.name)).await?;
        Ok(found
            .and_then(|view| view.run())
            .filter(|run| run.key.uid == key.uid))
    }

    /// The runs that bear our hold or our group, and not the label by which runs are watched.
    pub(crate) async fn robbed(&self) -> Result<Vec<RunKey>, Refused> {
        let runs: Api<PipelineRun> = Api::all(self.client.clone());
        let mut page = ListParams::default()
            .labels(&members::unlabelled_runs())
            .limit(RUNS_A_PAGE);
        let mut robbed = Vec::new();
        loop {
            let listed = within(Step::Lookup, runs.list_metadata(&page)).await?;
            let here = listed.items.iter().filter(|run| is_ours(&run.metadata));
            robbed.extend(here.filter_map(|run| metadata::key(&run.metadata)));
            match after(&page, listed.metadata) {
                Some(next) => page = next,
                None => return Ok(robbed),
            }
        }
    }

    /// Which of the run's claims a placeholder can mount.
    pub(crate) async fn mountable(&self, run: &Run) -> Result<Vec<String>, Refused> {
        let api: Api<PersistentVolumeClaim> = self.api(&run.key.namespace);
        let mut kept = Vec::with_capacity(run.claims.len());
        for name in &run.claims {
            let claim = within(Step::Claims, api.get_opt(name)).await?;
            kept.extend(claim.filter(claims::is_mountable).map(|_| name.clone()));
        }
        Ok(kept)
    }

    /// What the StatefulSet's controller last said of its pod.
    pub(crate) async fn complaint(&self, namespace: &str, set: &str) -> Option<String> {
        let about = format!("involvedObject.uid={set},reason=FailedCreate");
        self.last_words(namespace, &about, |_| true).await
    }

    /// What an autoscaler last said to the placeholder's pod of this UID.
    pub(crate) async fn autoscaler(&self, namespace: &str, pod: &str) -> Option<String> {
        let about = format!("involvedObject.uid={pod}");
        self.last_words(namespace, &about, is_of_autoscaler).await
    }

    /// Only for the user's eyes, so that an error in asking keeps nothing from happening.
    async fn last_words(&self, namespace: &str, about: &str, is_it: fn(&Event) -> bool) -> Option<String> {
        let events: Api<Event> = self.api(namespace);
        match within(Step::Lookup, events.list(&ListParams::default().fields(about))).await {
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

/// The next page, if this was not the last; an empty token means that it was.
fn after(page: &ListParams, listed: ListMeta) -> Option<ListParams> {
    let token = listed.continue_.filter(|token| !token.is_empty())?;
    Some(page.clone().continue_token(&token))
}

fn is_ours(run: &ObjectMeta) -> bool {
    let has = |map: &Option<BTreeMap<_, _>>, key| map.as_ref().is_some_and(|map| map.contains_key(key));
    has(&run.annotations, keys::HOLD) || has(&run.labels, keys::GROUP)
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
