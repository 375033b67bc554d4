//! Markers for tests that assert an absence: a later change that the controller visibly answers, instead of a wait.

use super::SOON;
use kube::ResourceExt;
use kube::api::{DynamicObject, Patch, PatchParams};
use placement::keys;
use serde_json::json;
use testbed::Testbed;
use testbed::runs::{self, RunSpec};

/// Waits until the controller has handled all earlier changes of an enrolled run, and returns the run. For a run that another
/// controller or its user holds, and for a run that runs.
///
/// A marker run would not prove this: the controller reconciles several runs at the same time. The marker is on the run itself:
/// its group label is removed, and the controller adds the label again. Reconciliations of one run follow one another, so the
/// earlier ones have ended then, with all their requests. The second marker lets the controller decide once more about the run
/// as the test left it.
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
