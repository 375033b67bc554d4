//! The requests of each action, computed from the wanted and the observed state. Each request names the state that it
//! relies on, so a decision from a stale observation changes nothing.

use crate::config::Config;
use crate::kept_node::NewKeptNode;
use crate::keys;
use crate::names::RunKey;
use crate::placeholder::size::{is_automatic, usual};
use crate::placeholder::{self, spec, stateful_set};
use crate::plan::{Action, Creation, New, Observation, PodChange, Requeue, Target};
use crate::raw::{add, test};
use crate::run::Run;
use crate::strategy::Enrolment;
use jiff::Timestamp;
use json_patch::Patch;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use std::borrow::Cow;
use strum::IntoStaticStr;

mod run_state;

pub use run_state::{RunState, opt_out, release_by_hand};

/// The purpose of a request, as metrics and messages name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum Operation {
    /// Read the caches' first lists.
    Sync,
    /// Add or remove the labels that make a run a group.
    Enrol,
    /// Write on the run when its hold began.
    DateHold,
    /// Read the run's PVCs.
    Claims,
    /// Read the run's labels.
    Labels,
    /// Read the quotas of the run's namespace, or delete another run's placeholder to make room in a quota.
    Places,
    /// Create the placeholder, or requeue its StatefulSet until its pod is created.
    Placeholder,
    /// Release the run.
    Release,
    /// Write on the run which node it has.
    RecordNode,
    /// Read the definitions of the run's tasks.
    Need,
    /// Write on the run what its tasks requested.
    RecordUse,
    /// Delete the placeholder, or make the run the owner of its pod.
    CleanUp,
    /// Count the run's task pods.
    Count,
    /// Change the placeholder's StatefulSet.
    Change,
    /// Resize the placeholder's pod to the usual size.
    Shrink,
    /// Requeue waiting task pods at the scheduler.
    Wake,
    /// List the TaskRuns whose pods a ResourceQuota rejected, and requeue them at Tekton.
    Retry,
    /// Create the pod that keeps a node after a run, delete it, or record on the run until when it keeps the node.
    KeepNode,
    /// List Tekton's affinity assistants, and delete those on a node that the run gave up.
    Assistants,
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The purpose.
    pub operation: Operation,
    /// The object that is changed.
    pub object: Object,
    /// The change.
    pub verb: Verb,
}

/// An object in the run's namespace, except for `KeptNode`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// The run itself.
    Run,
    /// The StatefulSet of its placeholder.
    StatefulSet,
    /// The StatefulSet of another run's placeholder. If it has changed meanwhile, the other requests are sent
    /// nevertheless.
    OtherStatefulSet(String),
    /// The pod of its placeholder.
    Pod,
    /// A task's pod or an affinity assistant, which may change meanwhile, as `OtherStatefulSet` may.
    OtherPod(String),
    /// A TaskRun of the run, which may change meanwhile, as `OtherStatefulSet` may.
    TaskRun(String),
    /// A pod of the installation's namespace that keeps a node. A new pod gets its name from the request.
    KeptNode(String),
}

/// The change of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Verb {
    /// Server-side apply.
    Apply(Box<StatefulSet>),
    /// Create the pod with the first of these names that is free.
    Create {
        /// The pod, without a name.
        pod: Box<Pod>,
        /// The names.
        names: Vec<String>,
    },
    /// A JSON patch. Its `test` operations guard the write.
    Json(Patch),
    /// A merge patch. The UID in the patch guards the write.
    Merge(Value),
    /// A strategic merge patch. The UID in the patch guards the write.
    Strategic(Value),
    /// A strategic merge patch of the subresource `resize`. The UID in the patch guards the write.
    Resize(Value),
    /// Delete the object of this UID.
    Delete {
        /// UID of the object.
        uid: String,
        /// Without a grace period.
        at_once: bool,
    },
}

impl Action {
    /// The requests that carry the action out; none if the observed state is the wanted state.
    pub fn requests(&self, observed: &Observation, image: &str) -> Vec<Request> {
        match self {
            Self::Run(wanted) => run_state::request(&observed.run, wanted).into_iter().collect(),
            Self::Create(New::Placeholder(enrolment, creation)) => {
                vec![create(observed, *enrolment, creation, image)]
            }
            Self::Create(New::KeptNode(node)) => vec![keep_node(&observed.run, node, image)],
            Self::Placeholder(wanted) => change_placeholder(observed, wanted).into_iter().collect(),
            Self::Pod(PodChange::Resize(uid)) => {
                let patch = Verb::Resize(resize_patch(uid, &observed.config));
                vec![request(Operation::Shrink, Object::Pod, patch)]
            }
            Self::Pod(PodChange::Adopt(uid)) => vec![adopt(observed, uid)],
            Self::Delete(target) => vec![delete(target)],
            Self::Requeue(objects) => requeue(observed, objects),
        }
    }
}

fn request(operation: Operation, object: Object, verb: Verb) -> Request {
    Request {
        operation,
        object,
        verb,
    }
}

/// The placeholder mounts some of the run's PVCs, is restricted to nodes that can use the volumes of the others, prefers warm nodes, makes
/// its node pull images, and copies the labels that the configuration names.
fn create(observed: &Observation, enrolment: Enrolment, creation: &Creation, image: &str) -> Request {
    let mut run = Run {
        claims: creation.volumes.mountable.clone(),
        reserve: reserve(observed, creation),
        ..observed.run.clone()
    };
    if let Some(nodes) = &creation.volumes.required {
        run.template.require(nodes.clone());
    }
    if let Some(nodes) = &creation.warm_nodes {
        nodes.prefer_in(&mut run.template);
    }
    let (labels, images) = (&creation.labels, &creation.images);
    let mut placeholder = stateful_set(&run, enrolment, labels, images, &observed.config, image);
    if let Some(nodes) = &creation.warm_nodes {
        let annotations = placeholder.metadata.annotations.get_or_insert_default();
        annotations.insert(keys::WARM_NODES.to_owned(), nodes.to_string());
    }
    request(
        Operation::Placeholder,
        Object::StatefulSet,
        Verb::Apply(Box::new(placeholder)),
    )
}

fn keep_node(run: &Run, node: &NewKeptNode, image: &str) -> Request {
    let verb = Verb::Create {
        pod: Box::new(node.pod(run, image)),
        names: node.names.clone(),
    };
    request(Operation::KeepNode, Object::KeptNode(node.node.clone()), verb)
}

/// Records on the run until when its node is kept. The request fails unless the run has this UID and this resource version.
pub fn record_kept_until(run: &RunKey, version: Option<&str>, until: Timestamp) -> Request {
    let annotations = json!({keys::KEPT_UNTIL: until.to_string()});
    let metadata = json!({"uid": run.uid, "resourceVersion": version, "annotations": annotations});
    let patch = Verb::Merge(json!({"metadata": metadata}));
    request(Operation::KeepNode, Object::Run, patch)
}

/// The reserve that the run states, or what the run is expected to need.
fn reserve(observed: &Observation, creation: &Creation) -> Option<String> {
    let need = creation.need.as_ref();
    let need = need.filter(|_| is_automatic(&observed.run, &observed.config));
    need.map(|need| need.reserve(&observed.config.auto_reserve_maximum))
        .or_else(|| observed.run.reserve.clone())
}

fn change_placeholder(observed: &Observation, wanted: &spec::Spec) -> Option<Request> {
    let placeholder = observed.statefulset.as_ref()?;
    let patch = spec::patch(&placeholder.uid, &placeholder.spec, wanted);
    let operation = if wanted.within_limits && wanted.size != placeholder.spec.size {
        Operation::Placeholder
    } else {
        Operation::Change
    };
    (!patch.is_empty()).then(|| request(operation, Object::StatefulSet, Verb::Json(patch)))
}

fn adopt(observed: &Observation, pod: &str) -> Request {
    let placeholder = observed
        .statefulset
        .as_ref()
        .map(|placeholder| placeholder.uid.as_str());
    let patch = adoption_patch(&observed.run.key, pod, placeholder);
    request(Operation::CleanUp, Object::Pod, Verb::Strategic(patch))
}

/// Assistants are deleted without a grace period: they have no work to finish, and on a node that is unreachable no
/// kubelet would end them.
fn delete(target: &Target) -> Request {
    let (operation, object, uid) = match target {
        Target::Placeholder(uid) => (Operation::CleanUp, Object::StatefulSet, uid),
        Target::Pod(uid) => (Operation::CleanUp, Object::Pod, uid),
        Target::OtherPlaceholder { name, uid } => {
            (Operation::Places, Object::OtherStatefulSet(name.clone()), uid)
        }
        Target::Assistant { name, uid } => (Operation::Assistants, Object::OtherPod(name.clone()), uid),
    };
    let at_once = matches!(target, Target::Assistant { .. });
    let uid = uid.clone();
    request(operation, object, Verb::Delete { uid, at_once })
}

fn requeue(observed: &Observation, objects: &Requeue) -> Vec<Request> {
    match objects {
        Requeue::Placeholder => requeue_placeholder(observed).into_iter().collect(),
        Requeue::Pods { names, mark } => {
            let verb = Verb::Json(requeue_patch(&observed.run, keys::WOKEN, &mark.to_string()));
            let wake = |name: &String| request(Operation::Wake, Object::OtherPod(name.clone()), verb.clone());
            names.iter().map(wake).collect()
        }
        Requeue::TaskRuns { names, rejection } => {
            let verb = Verb::Json(requeue_patch(&observed.run, keys::RETRIED, rejection));
            let retry =
                |name: &String| request(Operation::Retry, Object::TaskRun(name.clone()), verb.clone());
            names.iter().map(retry).collect()
        }
    }
}

fn requeue_placeholder(observed: &Observation) -> Option<Request> {
    let patch = statefulset_requeue_patch(&observed.statefulset.as_ref()?.uid, observed.now);
    Some(request(
        Operation::Placeholder,
        Object::StatefulSet,
        Verb::Merge(patch),
    ))
}

/// A strategic merge patch for the subresource `resize` of the pod. It finds the container by its name, because
/// webhooks may have added containers.
pub(crate) fn resize_patch(pod: &str, config: &Config) -> Value {
    let container = json!({"name": keys::PLACEHOLDER, "resources": usual(config).resources()});
    json!({"metadata": {"uid": pod}, "spec": {"containers": [container]}})
}

/// A label on a pod or TaskRun of this run. The change makes the scheduler retry the pod, or Tekton the TaskRun.
fn requeue_patch(run: &Run, label: &str, value: &str) -> Patch {
    let path = |key| ["metadata", "labels", key];
    Patch(vec![
        test(&path(keys::GROUP), run.key.uid.as_str()),
        add(&path(label), value),
    ])
}

/// Makes the run, instead of the StatefulSet, the owner of the placeholder's pod, and lets autoscalers remove the node.
/// One strategic merge patch merges the owners by UID, so the pod always has an owner and is always garbage-collected.
/// Deleting the StatefulSet with `orphan` left the pod behind if the run was deleted at the same time. Without a controller
/// owner, `kubectl drain` would refuse to evict the pod.
pub(crate) fn adoption_patch(run: &RunKey, pod: &str, statefulset: Option<&str>) -> Value {
    let mut owners = vec![json!(placeholder::owner(run))];
    owners.extend(statefulset.map(|uid| json!({"$patch": "delete", "uid": uid})));
    json!({"metadata": {
        "uid": pod,
        "ownerReferences": owners,
        "labels": {keys::KEPT_BY: null},
        "annotations": {keys::SAFE_TO_EVICT: "true", keys::DO_NOT_DISRUPT: null},
    }})
}

/// Changes the StatefulSet so that its controller reconciles it now, instead of at the end of a back-off.
pub(crate) fn statefulset_requeue_patch(uid: &str, now: Timestamp) -> Value {
    json!({"metadata": {"uid": uid, "annotations": {keys::NUDGED: now.to_string()}}})
}

impl Object {
    /// The name of the object.
    pub fn name<'a>(&'a self, run: &'a RunKey) -> Cow<'a, str> {
        match self {
            Self::Run => run.name.as_str().into(),
            Self::StatefulSet => run.placeholder().as_str().to_owned().into(),
            Self::Pod => run.placeholder().pod().into(),
            Self::OtherStatefulSet(name)
            | Self::OtherPod(name)
            | Self::TaskRun(name)
            | Self::KeptNode(name) => name.as_str().into(),
        }
    }

    /// Whether a conflict on the object invalidates the whole decision.
    pub fn is_own(&self) -> bool {
        match self {
            Self::Run | Self::StatefulSet | Self::Pod => true,
            Self::OtherStatefulSet(_) | Self::OtherPod(_) | Self::TaskRun(_) | Self::KeptNode(_) => false,
        }
    }
}
