//! The request of each action, computed from what is wanted and what was observed. Each names what it relies on, so a decision
//! from a stale observation changes nothing.

use crate::names::RunKey;
use crate::placeholder::size::is_automatic;
use crate::placeholder::spec;
use crate::placeholder::{patches, stateful_set};
use crate::plan::{Action, Creation, Observation, PodChange, Requeue, Target};
use crate::run::Run;
use crate::strategy::Enrolment;
use json_patch::Patch;
use k8s_openapi::api::apps::v1::StatefulSet;
use serde_json::Value;
use std::borrow::Cow;
use strum::IntoStaticStr;

mod run;

pub use run::{RunState, opt_out, release_by_hand};

/// What is tried at the API server, as metrics and messages name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum Operation {
    /// Wait for the first lists.
    Sync,
    /// Add or take back the labels that make a run a group.
    Enrol,
    /// Write down when the hold began.
    DateHold,
    /// Read the run's PVCs.
    Claims,
    /// Read the run's labels.
    Labels,
    /// Read the quotas of its namespace, and make room in one.
    Places,
    /// Create the placeholder, or have its pod created.
    Placeholder,
    /// Release the run.
    Release,
    /// Write down its node.
    RecordNode,
    /// Read the definitions of its tasks.
    Need,
    /// Write down what its tasks asked for.
    RecordUse,
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
    /// List the TaskRuns that a quota lets have no pod, and have Tekton try again.
    Retry,
    /// List Tekton's assistants, and delete those that a run leaves behind.
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
    /// The StatefulSet of another run's placeholder. That it has changed meanwhile stops nothing.
    OtherSet(String),
    /// The pod of its placeholder.
    Pod,
    /// Another pod: a task's or an assistant's. Likewise.
    OtherPod(String),
    /// A TaskRun of the run. Likewise.
    TaskRun(String),
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

impl Action {
    /// The requests that carry it out; none if everything is as wanted.
    pub fn requests(&self, seen: &Observation, image: &str) -> Vec<Request> {
        match self {
            Self::Run(wanted) => run::request(&seen.run, wanted).into_iter().collect(),
            Self::Create(enrolment, creation) => vec![create(seen, *enrolment, creation, image)],
            Self::Placeholder(wanted) => change_placeholder(seen, wanted).into_iter().collect(),
            Self::Pod(PodChange::Resize(uid)) => {
                let patch = Verb::Resize(patches::resize(uid, &seen.config));
                vec![request(Operation::Shrink, Object::Pod, patch)]
            }
            Self::Pod(PodChange::Adopt(uid)) => vec![adopt(seen, uid)],
            Self::Delete(target) => vec![delete(target)],
            Self::Requeue(objects) => requeue(seen, objects),
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

/// The placeholder mounts some of the run's PVCs, goes where the volumes of the others can be used, and copies the labels that the
/// configuration names.
fn create(seen: &Observation, enrolment: Enrolment, creation: &Creation, image: &str) -> Request {
    let mut run = Run {
        claims: creation.volumes.mountable.clone(),
        reserve: reserve(seen, creation),
        ..seen.run.clone()
    };
    for volume in &creation.volumes.required {
        run.template.restrict_to(volume);
    }
    let set = stateful_set(&run, enrolment, &creation.labels, &seen.config, image);
    request(Operation::Placeholder, Object::Set, Verb::Apply(Box::new(set)))
}

/// The reserve that the run states, or what the run is expected to need.
fn reserve(seen: &Observation, creation: &Creation) -> Option<String> {
    let need = creation.need.as_ref();
    let need = need.filter(|_| is_automatic(&seen.run, &seen.config));
    need.map(|need| need.reserve(&seen.config.auto_reserve_maximum))
        .or_else(|| seen.run.reserve.clone())
}

fn change_placeholder(seen: &Observation, wanted: &spec::Spec) -> Option<Request> {
    let set = seen.set.as_ref()?;
    let patch = spec::patch(&set.uid, &set.spec, wanted);
    let operation = if wanted.within_limits && !set.spec.within_limits {
        Operation::Placeholder
    } else {
        Operation::Change
    };
    (!patch.is_empty()).then(|| request(operation, Object::Set, Verb::Json(patch)))
}

fn adopt(seen: &Observation, pod: &str) -> Request {
    let set = seen.set.as_ref().map(|set| set.uid.as_str());
    let patch = patches::adopt(&seen.run.key, pod, set);
    request(Operation::CleanUp, Object::Pod, Verb::Strategic(patch))
}

/// Assistants without a grace period: they have nothing to finish, and on a node that does not answer nothing would end them.
fn delete(target: &Target) -> Request {
    let (operation, object, uid) = match target {
        Target::Placeholder(uid) => (Operation::CleanUp, Object::Set, uid),
        Target::Pod(uid) => (Operation::CleanUp, Object::Pod, uid),
        Target::OtherPlaceholder { name, uid } => (Operation::Places, Object::OtherSet(name.clone()), uid),
        Target::Assistant { name, uid } => (Operation::Assistants, Object::OtherPod(name.clone()), uid),
    };
    let at_once = matches!(target, Target::Assistant { .. });
    let uid = uid.clone();
    request(operation, object, Verb::Delete { uid, at_once })
}

fn requeue(seen: &Observation, objects: &Requeue) -> Vec<Request> {
    match objects {
        Requeue::Placeholder => requeue_placeholder(seen).into_iter().collect(),
        Requeue::Pods { names, wake } => {
            let verb = Verb::Json(patches::wake(&seen.run, *wake));
            let wake = |name: &String| request(Operation::Wake, Object::OtherPod(name.clone()), verb.clone());
            names.iter().map(wake).collect()
        }
        Requeue::TaskRuns { names, refusal } => {
            let verb = Verb::Json(patches::retry(&seen.run, refusal));
            let retry =
                |name: &String| request(Operation::Retry, Object::TaskRun(name.clone()), verb.clone());
            names.iter().map(retry).collect()
        }
    }
}

fn requeue_placeholder(seen: &Observation) -> Option<Request> {
    let patch = patches::nudge(&seen.set.as_ref()?.uid, seen.now);
    Some(request(Operation::Placeholder, Object::Set, Verb::Merge(patch)))
}

impl Object {
    /// Its name.
    pub fn name<'a>(&'a self, run: &'a RunKey) -> Cow<'a, str> {
        match self {
            Self::Run => run.name.as_str().into(),
            Self::Set => run.placeholder().as_str().to_owned().into(),
            Self::Pod => run.placeholder().pod().into(),
            Self::OtherSet(name) | Self::OtherPod(name) | Self::TaskRun(name) => name.as_str().into(),
        }
    }

    /// Whether a write of it that is overtaken means that what was decided does not hold any more.
    pub fn is_own(&self) -> bool {
        match self {
            Self::Run | Self::Set | Self::Pod => true,
            Self::OtherSet(_) | Self::OtherPod(_) | Self::TaskRun(_) => false,
        }
    }
}
