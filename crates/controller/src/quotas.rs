//! Quotas: the watch of all quotas, and the count of StatefulSets before a placeholder is created.
//!
//! The watch triggers the runs that wait for room. The decision to create a placeholder reads the quotas and counts at the API server,
//! because the watch may be late, or start again: Tekton fails a run whose StatefulSet a quota rejects.

use crate::api_error::{ErrorCause, StepError};
use crate::index::{Index, Reduced};
use crate::lists;
use crate::placeholders::ObjectKey;
use crate::write::{Cluster, with_timeout};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ResourceQuota, ResourceQuotaSpec, ResourceQuotaStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ListParams, PartialObjectMeta};
use placement::cross_namespace_quota::{TermsRejected, counts_terms};
use placement::plan::Observation;
use placement::quota_room::{counts_placeholders, has_room};
use placement::requests::Operation;
use placement::run::Run;
use placement::statefulset_quota::{self, OwnedStatefulSet, Places, Quota};
use serde::Deserialize;
use tracing::debug;

/// The quotas of all namespaces, by namespace and name.
pub(crate) type Quotas = Index<ObjectKey, QuotaState>;

/// What a change of a quota can mean for runs that wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QuotaState {
    /// How many of the StatefulSets that the quota allows exist, if the quota counts StatefulSets.
    statefulsets: Option<String>,
    /// No resource of the quota is used up.
    has_room: bool,
    /// The scopes of the quota include placeholders.
    counts_placeholders: bool,
    /// The quota counts pods with affinity terms across namespaces.
    counts_terms: bool,
}

/// A quota, with the fields that decisions read.
#[derive(kube::Resource, Clone, Debug, Default, Deserialize)]
#[resource(inherit = ResourceQuota)]
#[serde(default)]
pub(crate) struct WatchedQuota {
    #[serde(deserialize_with = "tekton::metadata::read")]
    metadata: ObjectMeta,
    spec: Option<ResourceQuotaSpec>,
    status: Option<ResourceQuotaStatus>,
}

/// Reduces a quota.
pub(crate) fn quota(quota: &WatchedQuota) -> Option<Reduced<ObjectKey, QuotaState>> {
    let key = (quota.metadata.namespace.clone()?, quota.metadata.name.clone()?);
    let quota = ResourceQuota {
        spec: quota.spec.clone(),
        status: quota.status.clone(),
        ..ResourceQuota::default()
    };
    let state = QuotaState {
        statefulsets: statefulset_quota::count(&quota),
        counts_placeholders: quota.spec.as_ref().is_none_or(counts_placeholders),
        has_room: has_room(&quota),
        counts_terms: counts_terms(&quota),
    };
    Some((key, Some(state)))
}

/// Whether a quota of the namespace counts StatefulSets. Unknown until the first list, which an older `ClusterRole` does not allow.
pub(crate) fn may_count_statefulsets(quotas: &Quotas, namespace: &str) -> bool {
    let counts = |quota: &QuotaState| quota.statefulsets.is_some();
    !quotas.is_filled_now() || named(quotas, namespace, counts).is_some()
}

/// Why the API server rejects pods of the namespace that have affinity terms across namespaces, if it does. `was_rejected`: a pod was
/// rejected, because the namespace had no quota that counts such pods.
pub(crate) fn terms_rejected(
    quotas: &Quotas,
    namespace: &str,
    was_rejected: impl FnOnce() -> bool,
) -> Option<TermsRejected> {
    let full = named(quotas, namespace, |quota| quota.counts_terms && !quota.has_room);
    let has_quota = || named(quotas, namespace, |quota| quota.counts_terms).is_some();
    match full {
        Some(quota) => Some(TermsRejected::BecauseOf(quota)),
        None => (was_rejected() && !has_quota()).then_some(TermsRejected::WithoutQuota),
    }
}

/// The name of the first such quota of the namespace.
fn named(quotas: &Quotas, namespace: &str, is_such: impl Fn(&QuotaState) -> bool) -> Option<String> {
    let from = (namespace.to_owned(), String::new());
    let known = quotas.read();
    let mut here = known
        .range(from..)
        .take_while(|((found, _), _)| found == namespace);
    let ((_, name), _) = here.find(|(_, quota)| is_such(quota))?;
    Some(name.clone())
}

/// Whether a quota counts placeholders. A quota that the cache lacks is taken to count them.
pub(crate) fn counts_placeholder(quotas: &Quotas, namespace: &str, quota: String) -> bool {
    let key = (namespace.to_owned(), quota);
    let known = quotas.read();
    known.get(&key).is_none_or(|quota| quota.counts_placeholders)
}

impl Cluster {
    /// Whether a quota of the namespace counts StatefulSets.
    pub(crate) async fn counts_statefulsets(&self, namespace: &str) -> Result<bool, StepError> {
        Ok(statefulset_quota::are_counted(&self.quotas(namespace).await?))
    }

    /// Whether a quota has room for the placeholder's StatefulSet, beside the StatefulSets that Tekton creates for this run and for
    /// other runs.
    pub(crate) async fn quota(
        &self,
        observed: &Observation,
        others: &[Run],
        now: Timestamp,
    ) -> Result<Quota, StepError> {
        let namespace = &observed.run.key.namespace;
        if !self.counts_statefulsets(namespace).await? {
            return Ok(Quota::default());
        }
        let (listed, there) = self.statefulsets(namespace).await?;
        // Read after the StatefulSets: a StatefulSet that Tekton creates meanwhile is then counted twice, and not missed.
        let quotas = self.quotas(namespace).await?;
        let places = Places {
            run: &observed.run,
            keeps_placeholder: observed.keeps_placeholder(),
            others,
            there: &there,
            now,
            hold_deadline: observed.config.hold_deadline,
            coschedule: observed.cluster.coschedule,
        };
        Ok(places.quota(&quotas, listed))
    }

    /// The number of StatefulSets in the namespace, and the StatefulSets of runs.
    async fn statefulsets(&self, namespace: &str) -> Result<(usize, Vec<OwnedStatefulSet>), StepError> {
        let statefulsets = self.api::<StatefulSet>(namespace);
        let and_one = |(listed, mut there): (usize, Vec<_>), set: PartialObjectMeta<StatefulSet>| {
            there.extend(OwnedStatefulSet::from_metadata(&set.metadata));
            (listed + 1, there)
        };
        lists::fold_metadata(Operation::Places, &statefulsets, (0, Vec::new()), and_one).await
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Caches;
    use serde_json::json;

    #[test]
    fn a_quota_matters_to_runs_that_wait_when_it_becomes_full_and_when_it_has_room_again() {
        let mut caches = Caches::ready();
        let hard = json!({"pods": "2"});
        let mut changes = |used: &str| caches.add_quota(&hard, &json!({"pods": used}));
        assert_eq!(["1", "0", "2", "1"].map(&mut changes), [true, false, true, true]);
    }

    #[test]
    fn the_number_of_other_objects_and_storage_do_not_hide_room_for_pods() {
        let mut caches = Caches::ready();
        let full = json!({
            "pods": "2", "services.loadbalancers": "0", "persistentvolumeclaims": "1", "requests.storage": "1Gi",
            "count/secrets": "1", "fast.storageclass.storage.k8s.io/requests.storage": "1Gi",
        });
        let mut changes = |used: &str| {
            let mut usage = full.clone();
            usage["pods"] = json!(used);
            caches.add_quota(&full, &usage)
        };
        assert_eq!(["1", "2", "1"].map(&mut changes), [true, true, true]);
        let gpus = |used: &str| json!({"requests.nvidia.com/gpu": used});
        let mut changes = |used: &str| caches.add_quota(&gpus("2"), &gpus(used));
        assert_eq!(["2", "1"].map(&mut changes), [true, true]);
    }

    #[test]
    fn a_quota_of_pods_with_a_deadline_does_not_count_placeholders_and_an_unknown_quota_does() {
        let mut caches = Caches::ready();
        caches.add_scoped_quota("builds", "Terminating", "0");
        let counts = |quota: &str| counts_placeholder(&caches.stores.quotas, "ns", quota.to_owned());
        assert!(!counts("builds"));
        assert!(counts("unknown"));
    }
}
