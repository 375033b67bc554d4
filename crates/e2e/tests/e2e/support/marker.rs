//! Markers for tests that assert an absence: a later change that the controller visibly handles, instead of a sleep.

use super::SOON;
use kube::ResourceExt;
use kube::api::{DynamicObject, Patch, PatchParams};
use placement::keys;
use serde_json::json;
use testbed::Testbed;
use testbed::runs::{self, RunSpec};

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
