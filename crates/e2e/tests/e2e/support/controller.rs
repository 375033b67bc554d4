//! Waits for the controller: until a replica leads, has read a changed configuration, or has handled all changes of a run.

use super::SOON;
use super::pool::PooledTestbed;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use placement::keys;
use runtime::install;
use serde_json::json;
use testbed::product::{Installed, NAMESPACE};
use testbed::runs::{self, RunSpec};
use testbed::{Testbed, probe};

/// Changes the configuration, and waits until it is active in both controllers. Runs that are created later use the new
/// configuration, because the controllers watch the ConfigMap and the runs separately.
pub(crate) async fn configure(bed: &PooledTestbed, data: &[(&str, Option<&str>)]) {
    bed.configure(data).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(bed.client().await.unwrap(), NAMESPACE);
    let version = maps
        .get(install::CONFIG_MAP)
        .await
        .unwrap()
        .metadata
        .resource_version;
    let active = format!("pod_affinity_configuration_generation {}", version.unwrap());
    bed.until("the configuration to be active", SOON, async || {
        for admin in &bed.installed().controller_admin {
            let metrics = probe::get(*admin, "/metrics").await?;
            if !metrics.lines().any(|line| line == active) {
                return Err(format!("not {active} at {admin}"));
            }
        }
        Ok(())
    })
    .await
    .unwrap();
}

/// Waits for a label that Tekton adds to a new run. Tekton writes all labels and annotations that it read before, so a change
/// meanwhile would be lost.
pub(crate) async fn until_tekton_labelled(bed: &Testbed, run: &RunSpec) {
    let is_labelled = |run: &DynamicObject| run.labels().contains_key("tekton.dev/pipeline");
    bed.until_run(run, "to have Tekton's label", SOON, is_labelled)
        .await
        .unwrap();
}

/// Whether this replica of the controller leads.
pub(crate) async fn leads(installed: &Installed, replica: u8) -> bool {
    let admin = installed.controller_admin[usize::from(replica)];
    let metrics = probe::get(admin, "/metrics").await.unwrap_or_default();
    metrics.lines().any(|line| line == "pod_affinity_leading 1")
}

/// The number of the replica that leads.
pub(crate) async fn leader(installed: &Installed) -> Option<u8> {
    for replica in 0..2 {
        if leads(installed, replica).await {
            return Some(replica);
        }
    }
    None
}

/// Waits until a replica of the controller leads, and returns its number.
pub(crate) async fn until_a_replica_leads(bed: &Testbed, installed: &Installed) -> u8 {
    let leads = async || leader(installed).await.ok_or("none");
    bed.until("a controller to lead", SOON, leads).await.unwrap()
}

/// Waits until the controller has handled all earlier changes of an enrolled run, and returns the run. The run may be held
/// by another controller or its user, or it may be running.
///
/// A second run as marker would prove nothing: the controller reconciles several runs at the same time. The marker is on the
/// run itself: the test removes its group label, and the controller adds the label again. Reconciliations of one run follow
/// one another, so all earlier reconciliations and their requests have ended then. The second marker lets the controller
/// reconcile the run once more in the state in which the test left the run.
pub(crate) async fn until_reconciled(bed: &Testbed, run: &RunSpec) -> DynamicObject {
    until_enrolled_again(bed, run).await;
    until_enrolled_again(bed, run).await
}

async fn until_enrolled_again(bed: &Testbed, run: &RunSpec) -> DynamicObject {
    let api = runs::runs(&bed.client().await.unwrap(), run.namespace());
    let removed = Patch::Merge(json!({"metadata": {"labels": {keys::GROUP: null}}}));
    let removed = api.patch(run.name(), &PatchParams::default(), &removed).await;
    assert!(!has_group(&removed.unwrap()), "the marker is not set");
    bed.until_run(run, "to be enrolled again", SOON, has_group)
        .await
        .unwrap()
}

pub(crate) fn has_group(run: &DynamicObject) -> bool {
    run.labels().contains_key(keys::GROUP)
}
