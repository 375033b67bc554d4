//! Reads what a quota means to a run: room for its placeholder's StatefulSet, and TaskRuns whose pods a quota rejected.

use crate::doctor::read::tekton_namespace;
use crate::facts::Facts;
use crate::requests::{RequestResult, Server};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, ResourceQuota};
use kube::ResourceExt;
use kube::api::ListParams;
use placement::coschedule::{Coschedule, FEATURE_FLAGS};
use placement::keys;
use placement::placeholder::spec::Spec;
use placement::quota_room::RejectedTask;
use placement::run::Run;
use placement::statefulset_quota::{self, OwnedStatefulSet, Places, Quota};
use tekton::tasks::TaskRun;

/// The reason of Tekton's event about a rejected pod, and of the TaskRun's condition.
pub(super) const REASON: &str = "ExceededResourceQuota";

/// Whether a quota of the namespace has room for the placeholder's StatefulSet, as the controller counts.
pub(super) async fn quota(server: &Server, facts: &Facts) -> RequestResult<Quota> {
    let run = &facts.view.run;
    let namespace = run.key.namespace.as_str();
    let quotas = server
        .within::<ResourceQuota>(namespace)
        .list(ListParams::default())
        .await?;
    if !statefulset_quota::are_counted(&quotas) {
        return Ok(Quota::default());
    }
    let is_other = |other: &Run| other.has_part_in_quotas() && other.key.uid != run.key.uid;
    let others = server
        .within::<tekton::PipelineRun>(namespace)
        .collect(ListParams::default(), |other| other.run().filter(is_other))
        .await?;
    let coschedule = coschedule(server).await;
    let has_assistants = |run: &Run| run.assistants(coschedule) > 0;
    if !has_assistants(run) && !others.iter().any(has_assistants) {
        return Ok(Quota::default());
    }
    let sets = server
        .within::<StatefulSet>(namespace)
        .list(ListParams::default())
        .await?;
    let there: Vec<_> = sets
        .iter()
        .filter_map(|set| OwnedStatefulSet::from_metadata(&set.metadata))
        .collect();
    let places = Places {
        run,
        keeps_placeholder: facts.observation().keeps_placeholder(),
        others: &others,
        there: &there,
        now: facts.now,
        hold_deadline: facts.config().hold_deadline,
        coschedule,
    };
    Ok(places.quota(&quotas, sets.len()))
}

/// Tekton's flag. Without the right to read the flag, Tekton's default.
async fn coschedule(server: &Server) -> Coschedule {
    let namespace = tekton_namespace(server).await;
    let flags = server.within::<ConfigMap>(&namespace).get(FEATURE_FLAGS).await;
    let flags = flags.ok().flatten().and_then(|map| map.data);
    Coschedule::from_flags(&flags.unwrap_or_default())
}

/// The TaskRuns of the run's group whose pods were rejected by a quota.
pub(super) async fn rejected_tasks(server: &Server, facts: &Facts) -> RequestResult<Vec<RejectedTask>> {
    let key = &facts.view.run.key;
    let group = ListParams::default().labels(&format!("{}={}", keys::GROUP, key.uid));
    let tasks = server.within::<TaskRun>(&key.namespace).list(group).await?;
    let placeholder = facts.placeholder().set.and_then(|set| set.spec.as_ref());
    let placeholder = placeholder.map(Spec::from_statefulset).unwrap_or_default();
    let rejected = tasks.iter().filter_map(rejected_task);
    Ok(rejected.filter(|task| task.fits_without(&placeholder)).collect())
}

fn rejected_task(task: &TaskRun) -> Option<RejectedTask> {
    Some(RejectedTask {
        name: task.name_any(),
        message: task.message_with_reason(REASON)?.to_owned(),
    })
}
