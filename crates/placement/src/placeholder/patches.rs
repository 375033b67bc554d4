//! The patches of pods and TaskRuns, and the patch that requeues a StatefulSet. Each names what it relies on.

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

/// For the pod's subresource `resize`, as a strategic merge patch, which finds the container by name: others may
/// have added containers of their own.
pub fn resize(pod: &str, config: &Config) -> Value {
    let container = json!({"name": keys::PLACEHOLDER, "resources": usual(config).resources()});
    json!({"metadata": {"uid": pod}, "spec": {"containers": [container]}})
}

/// For a task's pod of this run: a label that makes the scheduler look at it again.
pub fn wake(run: &Run, wake: Wake) -> Patch {
    let label = |key| ["metadata", "labels", key];
    Patch(vec![
        test(&label(keys::GROUP), run.key.uid.as_str()),
        add(&label(keys::WOKEN), wake.to_string()),
    ])
}

/// For a TaskRun of this run: a label that makes Tekton look at it again.
pub fn retry(run: &Run, refusal: &str) -> Patch {
    let label = |key| ["metadata", "labels", key];
    Patch(vec![
        test(&label(keys::GROUP), run.key.uid.as_str()),
        add(&label(keys::RETRIED), refusal),
    ])
}

/// Makes the run the owner of its placeholder's pod in the StatefulSet's stead, and lets autoscalers have the node. One
/// strategic merge patch, which merges owners by UID: at no moment is the pod without an owner, nor is it ever left
/// behind, as it was when the set was deleted with its dependants orphaned while the run was deleted too.
pub fn adopt(run: &RunKey, pod: &str, set: Option<&str>) -> Value {
    let owner = json!({
        "apiVersion": "tekton.dev/v1",
        "kind": "PipelineRun",
        "name": run.name,
        "uid": run.uid,
        // Or `kubectl drain` would take the pod for one that nothing makes anew, and refuse to evict it.
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

/// Changes the StatefulSet so that its controller looks at it now, instead of when its own backoff ends.
pub fn nudge(set: &str, now: Timestamp) -> Value {
    json!({"metadata": {"uid": set, "annotations": {keys::NUDGED: now.to_string()}}})
}
