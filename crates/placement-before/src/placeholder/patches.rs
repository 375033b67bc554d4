//! The bodies of the writes that move a placeholder or change its size. Each names what it relies on, so that a stale
//! decision changes nothing.

use super::affinity;
use super::size::{Size, usual};
use super::wake::Wake;
use crate::config::Config;
use crate::keys;
use crate::limits::Bounds;
use crate::names::RunKey;
use crate::raw::{add, replace, test};
use crate::run::Run;
use jiff::Timestamp;
use json_patch::{Patch, PatchOperation};
use k8s_openapi::api::core::v1::{
    NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Toleration,
};
use serde::Serialize;
use serde_json::{Value, json};

const TEMPLATE: [&str; 2] = ["spec", "template"];
const CONTAINER: [&str; 5] = ["spec", "template", "spec", "containers", "0"];

/// For the StatefulSet: from as many pods as were seen to as many as are wanted.
pub fn scale(set: &str, from: i32, to: i32) -> Patch {
    Patch(vec![
        is(set),
        test(&["spec", "replicas"], from),
        replace(&["spec", "replicas"], to),
    ])
}

/// Among the changes of the StatefulSet: the node that the run gives up; none, if it only makes room.
pub fn left(node: &str) -> PatchOperation {
    let at = [TEMPLATE.as_slice(), &["metadata", "annotations", keys::LEFT]].concat();
    add(&at, node)
}

/// For the StatefulSet: pods to come have the usual size.
pub fn shrink(set: &str, config: &Config) -> Patch {
    let [name, resources] = usual_size(config);
    Patch(vec![is(set), name, resources])
}

/// For the pod's subresource `resize`, as a strategic merge patch, which finds the container by name: others may
/// have added containers of their own.
pub fn resize(pod: &str, config: &Config) -> Value {
    let container = json!({"name": keys::PLACEHOLDER, "resources": written(&usual(config).resources())});
    json!({"metadata": {"uid": pod}, "spec": {"containers": [container]}})
}

/// For the StatefulSet: pods to come ask for what a `LimitRange` lets in.
pub fn within_limits(set: &str, bounds: &Bounds, config: &Config) -> Patch {
    let allowed = bounds.nearest(usual(config).requests());
    let amounts: std::collections::BTreeMap<_, _> = allowed
        .iter()
        .map(|(name, amount)| (name.to_owned(), amount.to_string()))
        .collect();
    let at = |member| [CONTAINER.as_slice(), &[member]].concat();
    let name = test(&at("name"), keys::PLACEHOLDER);
    let resources = replace(&at("resources"), json!({"requests": amounts, "limits": amounts}));
    let mark = [
        TEMPLATE.as_slice(),
        &["metadata", "annotations", keys::WITHIN_LIMITS],
    ]
    .concat();
    Patch(vec![is(set), name, resources, add(&mark, "true")])
}

/// For the StatefulSet: pods to come have the usual size and go to this node, or to any node again.
pub fn recreate(set: &str, run: &Run, node: Option<&str>, config: &Config) -> Patch {
    let [name, resources] = usual_size(config);
    let [affinity, mark] = pinned(run, node);
    Patch(vec![is(set), name, resources, affinity, mark])
}

/// Among the changes of the StatefulSet: pods to come tolerate what the run demands and what this pod does. Admission gives pods
/// tolerations for what they ask for, such as a GPU, and a placeholder that asks for less would not be let onto the same node.
pub fn tolerating(run: &Run, pod: &[Toleration]) -> PatchOperation {
    let mut tolerations = run.template.tolerations.clone();
    tolerations.extend(
        pod.iter()
            .filter(|it| !run.template.tolerations.contains(it))
            .cloned(),
    );
    add(
        &["spec", "template", "spec", "tolerations"],
        written(&tolerations),
    )
}

/// Among the changes of the StatefulSet: pods to come keep no PVC from others.
pub fn without_claims() -> PatchOperation {
    add(&["spec", "template", "spec", "volumes"], json!([]))
}

/// For the StatefulSet: pods to come go to this node, or to any node again.
pub fn pin(set: &str, run: &Run, node: Option<&str>) -> Patch {
    let [affinity, mark] = pinned(run, node);
    Patch(vec![is(set), affinity, mark])
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

fn is(uid: &str) -> PatchOperation {
    test(&["metadata", "uid"], uid)
}

fn usual_size(config: &Config) -> [PatchOperation; 2] {
    of_size(&usual(config))
}

fn of_size(size: &Size) -> [PatchOperation; 2] {
    let at = |member| [CONTAINER.as_slice(), &[member]].concat();
    [
        test(&at("name"), keys::PLACEHOLDER),
        replace(&at("resources"), written(&size.resources())),
    ]
}

/// The operations add, also where something is there: `add` replaces it, and `remove` would fail where nothing is.
fn pinned(run: &Run, node: Option<&str>) -> [PatchOperation; 2] {
    let at = |path: &[&'static str]| [TEMPLATE.as_slice(), path].concat();
    let affinity = node_affinity(run, node);
    [
        add(&at(&["spec", "affinity", "nodeAffinity"]), written(&affinity)),
        add(
            &at(&["metadata", "annotations", keys::PINNED]),
            node.unwrap_or_default(),
        ),
    ]
}

/// What the run itself demands stays. Its terms are alternatives, so that each of them gets the node.
fn node_affinity(run: &Run, node: Option<&str>) -> NodeAffinity {
    let mut affinity = affinity::of_nodes(&run.template).unwrap_or_default();
    if let Some(node) = node {
        let required = affinity
            .required_during_scheduling_ignored_during_execution
            .get_or_insert_with(any_node);
        for term in &mut required.node_selector_terms {
            term.match_fields.get_or_insert_default().push(named(node));
        }
    }
    affinity
}

fn any_node() -> NodeSelector {
    NodeSelector {
        node_selector_terms: vec![NodeSelectorTerm::default()],
    }
}

/// By name and not by hostname label: the two may differ.
fn named(node: &str) -> NodeSelectorRequirement {
    NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    }
}

/// Kubernetes' own types always serialise.
fn written(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}
