//! Reads the quotas of StatefulSets before a placeholder is created, and watches task pods that a `ResourceQuota` rejected.
//!
//! After a quota rejected the pod of a task, Tekton emits an event on the TaskRun, and retries after a minute. The watch selects
//! these events only. An event names the TaskRun and its namespace, but not the run: `read` lists the rejected TaskRuns of a run
//! if the decision needs them.

use crate::api_error::{ErrorCause, StepError};
use crate::index::{Index, Reduced};
use crate::write::{Cluster, with_timeout};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Event, ResourceQuota};
use kube::api::{ListParams, PartialObjectMeta};
use placement::names::RunKey;
use placement::plan::{Observation, Quota};
use placement::requests::Operation;
use placement::run::Run;
use placement::statefulset_quota::{self, OwnedStatefulSet, Places};
use tracing::debug;

/// The last refusal in each namespace, as the resource version of its event.
pub(crate) type QuotaRejections = Index<String, String>;

/// The reason of Tekton's event, and of the TaskRun's condition.
pub(crate) const REASON: &str = "ExceededResourceQuota";

/// Field selector of these events.
pub(crate) fn fields() -> String {
    format!("involvedObject.kind=TaskRun,reason={REASON}")
}

/// Reduces an event.
pub(crate) fn refusal(event: &Event) -> Option<Reduced<String, String>> {
    let version = event.metadata.resource_version.clone();
    Some((event.metadata.namespace.clone()?, version))
}

impl Cluster {
    /// Whether a quota has room for the placeholder's StatefulSet, beside the StatefulSets that Tekton creates for this run and for
    /// other runs.
    pub(crate) async fn quota(&self, observed: &Observation, others: &[Run]) -> Result<Quota, StepError> {
        let namespace = &observed.run.key.namespace;
        if !statefulset_quota::are_counted(&self.quotas(namespace).await?) {
            return Ok(Quota::default());
        }
        let owned = self.api::<StatefulSet>(namespace);
        let owned = with_timeout(Operation::Places, owned.list_metadata(&ListParams::default())).await?;
        let there = owned.items.iter().filter_map(|set| owned_by_run(set, namespace));
        let there: Vec<_> = there.collect();
        // Read after the StatefulSets: a StatefulSet that Tekton creates meanwhile is then counted twice, and not missed.
        let quotas = self.quotas(namespace).await?;
        let places = Places {
            run: &observed.run,
            others,
            there: &there,
            now: observed.now,
            hold_deadline: observed.config.hold_deadline,
        };
        Ok(Quota {
            short_of: statefulset_quota::short_of(&quotas, places.needed()),
            blocker: places.blocker(&quotas, owned.items.len()),
        })
    }

    /// Returns no quotas if an older `ClusterRole` lacks the right to list quotas: runs must not wait for its update.
    async fn quotas(&self, namespace: &str) -> Result<Vec<ResourceQuota>, StepError> {
        let quotas = self.api::<ResourceQuota>(namespace);
        match with_timeout(Operation::Places, quotas.list(&ListParams::default())).await {
            Ok(list) => Ok(list.items),
            Err(refused) if refused.cause() == ErrorCause::Forbidden => {
                debug!(error = %refused.fault, "quotas are unknown");
                Ok(Vec::new())
            }
            Err(refused) => Err(refused),
        }
    }
}

fn owned_by_run(set: &PartialObjectMeta<StatefulSet>, namespace: &str) -> Option<OwnedStatefulSet> {
    let owners = set.metadata.owner_references.iter().flatten();
    let mut runs = owners.filter(|owner| owner.kind == "PipelineRun");
    let (run, name) = (runs.next()?, set.metadata.name.clone()?);
    let key = RunKey {
        namespace: namespace.to_owned(),
        name: run.name.clone(),
        uid: run.uid.clone(),
    };
    Some(OwnedStatefulSet {
        is_placeholder: key.placeholder().as_str() == name,
        run: key.uid,
        name,
        uid: set.metadata.uid.clone()?,
    })
}
