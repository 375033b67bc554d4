//! The patches of pods and TaskRuns, and the patch that requeues a StatefulSet. Each patch names the state that it
//! relies on.

use super::size::usual;
use super::wake::Wake;
use crate::config::Config;
use crate::keys;
use crate::names::RunKey;
use crate::raw::{add, test};
use crate::run::Run;
use jiff::Timestamp;
use json_patch::Patch;
use serde_json::{Value, json};

/// A strategic merge patch for the subresource `resize` of the pod. It finds the container by its name, because
/// webhooks may have added containers.
pub fn resize(pod: &str, config: &Config) -> Value {
    let container = json!({"name": keys::PLACEHOLDER, "resources": usual(config).resources()});
    json!({"metadata": {"uid": pod}, "spec": {"containers": [container]}})
}

/// A label on a task's pod of this run. The change makes the scheduler retry the pod.
pub fn wake(run: &Run, wake: Wake) -> Patch {
    let label = |key| ["metadata", "labels", key];
    Patch(vec![
        test(&label(keys::GROUP), run.key.uid.as_str()),
        add(&label(keys::WOKEN), wake.to_string()),
    ])
}

/// A label on a TaskRun of this run. The change makes Tekton retry the TaskRun.
pub fn retry(run: &Run, refusal: &str) -> Patch {
    let label = |key| ["metadata", "labels", key];
    Patch(vec![
        test(&label(keys::GROUP), run.key.uid.as_str()),
        add(&label(keys::RETRIED), refusal),
    ])
}

/// Makes the run, instead of the StatefulSet, the owner of the placeholder's pod, and lets autoscalers remove the node.
/// One strategic merge patch merges the owners by UID, so the pod always has an owner and is always garbage-collected.
/// Deleting the StatefulSet with `orphan` left the pod behind if the run was deleted at the same time.
pub fn adopt(run: &RunKey, pod: &str, set: Option<&str>) -> Value {
    let owner = json!({
        "apiVersion": "tekton.dev/v1",
        "kind": "PipelineRun",
        "name": run.name,
        "uid": run.uid,
        // Without a controller owner, `kubectl drain` would refuse to evict the pod.
        "controller": true,
    });
    let mut owners = vec![owner];
    owners.extend(set.map(|uid| json!({"$patch": "delete", "uid": uid})));
    json!({"metadata": {
        "uid": pod,
        "ownerReferences": owners,
        "labels": {keys::KEPT_BY: null},
        "annotations": {keys::SAFE_TO_EVICT: "true", keys::DO_NOT_DISRUPT: null},
    }})
}

/// Changes the StatefulSet so that its controller reconciles it now, instead of at the end of a back-off.
pub fn nudge(set: &str, now: Timestamp) -> Value {
    json!({"metadata": {"uid": set, "annotations": {keys::NUDGED: now.to_string()}}})
}
