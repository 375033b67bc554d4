//! The requests by which a write is carried out: finished, and each naming what it relies on, so that a stale
//! decision changes nothing.

use crate::names::RunKey;
use crate::placeholder::wake::Wake;
use crate::placeholder::{patches as placeholder, stateful_set};
use crate::plan::{Assistant, Enrolment, Observation, Write};
use crate::run::Run;
use json_patch::Patch;
use k8s_openapi::api::apps::v1::StatefulSet;
use serde_json::Value;
use std::borrow::Cow;
use strum::IntoStaticStr;

mod run;

/// What is tried at the API server, as metrics and messages name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum Operation {
    /// Wait for the first lists.
    Sync,
    /// Add or take back the labels that make a run a group.
    Enrol,
    /// Read the run's PVCs.
    Claims,
    /// Create the placeholder, or have its pod created.
    Placeholder,
    /// Release the run.
    Release,
    /// Write down its node.
    RecordNode,
    /// Remove what we made.
    CleanUp,
    /// Read events.
    Lookup,
    /// Count the run's tasks.
    Count,
    /// Move the placeholder.
    Change,
    /// Make the placeholder's pod small.
    Shrink,
    /// Wake tasks that wait.
    Wake,
    /// List, scale and delete Tekton's assistants.
    Assistants,
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// What it is for.
    pub operation: Operation,
    /// What it changes.
    pub object: Object,
    /// How.
    pub verb: Verb,
}

/// An object in the run's namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// The run itself.
    Run,
    /// The StatefulSet of its placeholder.
    Set,
    /// The pod of its placeholder.
    Pod,
    /// Another StatefulSet: an assistant's. That it has changed meanwhile stops nothing.
    OtherSet(String),
    /// Another pod: a task's or an assistant's. Likewise.
    OtherPod(String),
}

/// What is done to an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Verb {
    /// Server-side apply.
    Apply(Box<StatefulSet>),
    /// A JSON patch, guarded by its tests.
    Json(Patch),
    /// A merge patch, guarded by the UID in it.
    Merge(Value),
    /// A strategic merge patch, likewise.
    Strategic(Value),
    /// A strategic merge patch of the subresource `resize`, likewise.
    Resize(Value),
    /// Delete the object of this UID.
    Delete {
        /// Its UID.
        uid: String,
        /// Without a grace period.
        at_once: bool,
    },
}

impl Write {
    /// What carries it out, in order.
    pub fn requests(&self, seen: &Observation, image: &str) -> Vec<Request> {
        let run = &seen.run;
        match self {
            Self::Enrol(enrolment) => vec![patch_run(Operation::Enrol, run::enrol(run, *enrolment))],
            Self::Withdraw => vec![patch_run(Operation::Enrol, run::withdraw(run))],
            Self::CreatePlaceholder(enrolment) => vec![create(seen, *enrolment, image)],
            Self::Nudge => nudge(seen).into_iter().collect(),
            Self::Release { enrolment, node, .. } => {
                let patch = run::release(run, *enrolment, node.as_deref());
                vec![patch_run(Operation::Release, patch)]
            }
            Self::RecordNode { node } => vec![record_node(run, node)],
            Self::MoveOff { set, .. } => scale(seen, set, 0),
            Self::WakeTasks { pods, wake } => wake_tasks(run, pods, *wake),
            Self::Follow { set } => scale(seen, set, 1),
            Self::Shrink { set, pod } => shrink(seen, set, pod),
            Self::RecreateSmall { set, pod, node } => {
                let template = placeholder::recreate(set, run, node.as_deref(), &seen.config);
                vec![change(template), delete(Object::Pod, pod)]
            }
            Self::Unpin { set } => vec![change(placeholder::unpin(set, run))],
            Self::StartOver { set, .. } | Self::LeavePod { set } => vec![delete(Object::Set, set)],
            Self::DeletePlaceholder { set, pod } => {
                let set = set.iter().map(|set| delete(Object::Set, set));
                set.chain(pod.iter().map(|pod| delete(Object::Pod, pod)))
                    .collect()
            }
            Self::AdoptPod { pod } => vec![adopt(seen, pod)],
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

fn patch_run(operation: Operation, patch: Patch) -> Request {
    request(operation, Object::Run, Verb::Json(patch))
}

fn change(patch: Patch) -> Request {
    request(Operation::Change, Object::Set, Verb::Json(patch))
}

fn delete(object: Object, uid: &str) -> Request {
    let uid = uid.to_owned();
    request(Operation::CleanUp, object, Verb::Delete { uid, at_once: false })
}

/// With those of the run's PVCs that it may mount.
fn create(seen: &Observation, enrolment: Enrolment, image: &str) -> Request {
    let run = Run {
        claims: seen.claims.clone().unwrap_or_default(),
        ..seen.run.clone()
    };
    let set = stateful_set(&run, enrolment, &seen.config, image);
    request(Operation::Placeholder, Object::Set, Verb::Apply(Box::new(set)))
}

fn nudge(seen: &Observation) -> Option<Request> {
    let patch = placeholder::nudge(&seen.set.as_ref()?.uid, seen.now);
    Some(request(Operation::Placeholder, Object::Set, Verb::Merge(patch)))
}

fn record_node(run: &Run, node: &str) -> Request {
    let patch = run::record_node(run, node);
    request(Operation::RecordNode, Object::Run, Verb::Merge(patch))
}

fn wake_tasks(run: &Run, pods: &[String], wake: Wake) -> Vec<Request> {
    let verb = Verb::Json(placeholder::wake(run, wake));
    let wake = |pod: &String| request(Operation::Wake, Object::OtherPod(pod.clone()), verb.clone());
    pods.iter().map(wake).collect()
}

/// The template first: a pod that is lost in between is made small, and would otherwise be big for ever.
fn shrink(seen: &Observation, set: &str, pod: &str) -> Vec<Request> {
    let resize = Verb::Resize(placeholder::resize(pod, &seen.config));
    vec![
        change(placeholder::shrink(set, &seen.config)),
        request(Operation::Shrink, Object::Pod, resize),
    ]
}

fn adopt(seen: &Observation, pod: &str) -> Request {
    let set = seen.set.as_ref().map(|set| set.uid.as_str());
    let patch = placeholder::adopt(&seen.run.key, pod, set);
    request(Operation::CleanUp, Object::Pod, Verb::Strategic(patch))
}

/// Tekton's assistants first, each of those that are not there yet; and their pods at once: they have nothing to
/// finish, and on a node that is silent nothing would end them.
fn scale(seen: &Observation, set: &str, to: i32) -> Vec<Request> {
    let from = seen.set.as_ref().map_or(1 - to, |set| set.replicas);
    let assistants = seen.assistants.iter().flatten();
    let assistants = assistants.filter_map(|assistant| scale_assistant(assistant, to));
    let own = change(placeholder::scale(set, from, to));
    assistants.chain([own]).collect()
}

fn scale_assistant(assistant: &Assistant, to: i32) -> Option<Request> {
    let (object, verb) = match assistant {
        Assistant::Set { name, uid, replicas } if *replicas == 1 - to => (
            Object::OtherSet(name.clone()),
            Verb::Json(placeholder::scale(uid, 1 - to, to)),
        ),
        Assistant::Pod { name, uid } if to == 0 => (
            Object::OtherPod(name.clone()),
            Verb::Delete {
                uid: uid.clone(),
                at_once: true,
            },
        ),
        Assistant::Set { .. } | Assistant::Pod { .. } => return None,
    };
    Some(request(Operation::Assistants, object, verb))
}

impl Object {
    /// Its name.
    pub fn name<'a>(&'a self, run: &'a RunKey) -> Cow<'a, str> {
        match self {
            Self::Run => run.name.as_str().into(),
            Self::Set => run.placeholder().as_str().to_owned().into(),
            Self::Pod => run.placeholder().pod().into(),
            Self::OtherSet(name) | Self::OtherPod(name) => name.as_str().into(),
        }
    }

    /// Whether a write of it that is overtaken means that what was decided does not hold any more.
    pub fn is_own(&self) -> bool {
        match self {
            Self::Run | Self::Set | Self::Pod => true,
            Self::OtherSet(_) | Self::OtherPod(_) => false,
        }
    }
}
