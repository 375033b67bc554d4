//! The requests by which a write is carried out: finished, and each naming what it relies on, so that a stale
//! decision changes nothing.

use crate::keys;
use crate::limits::Bounds;
use crate::names::RunKey;
use crate::need;
use crate::placeholder::size::is_automatic;
use crate::placeholder::wake::Wake;
use crate::placeholder::{patches as placeholder, stateful_set};
use crate::plan::{Claims, Observation, Placeholder, Write};
use crate::raw::test;
use crate::run::{Run, SpecStatus};
use crate::strategy::Enrolment;
use json_patch::{Patch, PatchOperation};
use k8s_openapi::api::apps::v1::StatefulSet;
use serde_json::Value;
use std::borrow::Cow;
use strum::IntoStaticStr;

mod run;

pub use run::{opt_out, release_by_hand};

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

impl Write {
    /// What carries it out, in order.
    pub fn requests(&self, seen: &Observation, image: &str) -> Vec<Request> {
        let run = &seen.run;
        match self {
            Self::Enrol(enrolment) => vec![enrol(seen, *enrolment)],
            Self::DateHold => vec![patch_run(Operation::DateHold, run::date_hold(run, seen.now))],
            Self::Withdraw => vec![patch_run(Operation::Enrol, run::withdraw(run))],
            Self::CreatePlaceholder(enrolment) => vec![create(seen, *enrolment, image)],
            Self::Nudge => nudge(seen).into_iter().collect(),
            Self::AskWithinLimits { set, bounds } => vec![ask_within_limits(seen, set, bounds)],
            Self::Release { enrolment, node, .. } => {
                let patch = run::release(run, *enrolment, node.as_deref());
                vec![patch_run(Operation::Release, patch)]
            }
            Self::RecordNode { node } => vec![record_node(run, node)],
            Self::MoveOff { set, pod, .. } => vec![move_off(seen, set, pod.as_deref())],
            Self::MakeRoom { set } => vec![make_room(seen, set)],
            Self::FreePlace { name, uid } => vec![free_place(name, uid)],
            Self::RetryTasks { tasks } => retry_tasks(seen, tasks).collect(),
            Self::WakeTasks { pods, wake } => dismissals(seen).chain(wake_tasks(run, pods, *wake)).collect(),
            Self::Follow { set } => dismissals(seen).chain([change(scale(seen, set, 1))]).collect(),
            Self::Shrink { set, pod } => shrink(seen, set, pod),
            Self::RecreateSmall { set, pod, node } => {
                let template = small(seen, set, node.as_deref());
                vec![change(template), delete(Object::Pod, pod)]
            }
            Self::Unpin { set } => vec![change(placeholder::pin(set, run, None))],
            Self::GiveUpReserve { set, pod, .. } => {
                let template = placeholder::recreate(set, run, None, &seen.config);
                vec![change(template), delete(Object::Pod, pod)]
            }
            Self::StartOver { set, .. } => vec![delete(Object::Set, set)],
            Self::LeavePod { set } => [delete(Object::Set, set)]
                .into_iter()
                .chain(record_use(seen))
                .collect(),
            Self::DeletePlaceholder { set, pod } => {
                let set = set.iter().map(|set| delete(Object::Set, set));
                set.chain(pod.iter().map(|pod| delete(Object::Pod, pod)))
                    .chain(record_use(seen))
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

fn free_place(name: &str, uid: &str) -> Request {
    let (object, uid) = (Object::OtherSet(name.to_owned()), uid.to_owned());
    request(Operation::Places, object, Verb::Delete { uid, at_once: false })
}

/// A run that is Pending must still be.
fn enrol(seen: &Observation, enrolment: Enrolment) -> Request {
    let is_pending = seen.run.status == SpecStatus::Pending;
    let guard = is_pending.then(|| test(&["spec", "status"], keys::PENDING));
    patch_run(Operation::Enrol, run::enrol(&seen.run, enrolment, guard))
}

/// With those of the run's PVCs that it may mount, where the others can be used, and with those of the run's labels that the
/// configuration asks for.
fn create(seen: &Observation, enrolment: Enrolment, image: &str) -> Request {
    let Claims { mountable, required } = seen.claims.clone().unwrap_or_default();
    let mut run = Run {
        claims: mountable,
        reserve: reserve(seen),
        ..seen.run.clone()
    };
    for volume in &required {
        run.template.restrict_to(volume);
    }
    let copied = seen.copied_labels.clone().unwrap_or_default();
    let set = stateful_set(&run, enrolment, &copied, &seen.config, image);
    request(Operation::Placeholder, Object::Set, Verb::Apply(Box::new(set)))
}

/// As the run says it, or what it is expected to need.
fn reserve(seen: &Observation) -> Option<String> {
    let need = seen.need.as_ref();
    let need = need.filter(|_| is_automatic(&seen.run, &seen.config));
    need.map(|need| need.reserve(&seen.config.auto_reserve_maximum))
        .or_else(|| seen.run.reserve.clone())
}

fn nudge(seen: &Observation) -> Option<Request> {
    let patch = placeholder::nudge(&seen.set.as_ref()?.uid, seen.now);
    Some(request(Operation::Placeholder, Object::Set, Verb::Merge(patch)))
}

/// A size that a `LimitRange` let in is small already.
fn small(seen: &Observation, set: &str, node: Option<&str>) -> Patch {
    let is = |it: fn(&Placeholder) -> bool| seen.set.as_ref().is_some_and(it);
    let mut template = if is(|set| set.within_limits) {
        placeholder::pin(set, &seen.run, node)
    } else {
        placeholder::recreate(set, &seen.run, node, &seen.config)
    };
    template
        .0
        .extend(is(Placeholder::outlives_its_run).then(placeholder::without_claims));
    template.0.extend(node.and_then(|_| tolerating_the_same(seen)));
    template
}

fn ask_within_limits(seen: &Observation, set: &str, bounds: &Bounds) -> Request {
    let patch = placeholder::within_limits(set, bounds, &seen.config);
    request(Operation::Placeholder, Object::Set, Verb::Json(patch))
}

fn record_node(run: &Run, node: &str) -> Request {
    let patch = run::record_node(run, node);
    request(Operation::RecordNode, Object::Run, Verb::Merge(patch))
}

/// Last, so that nothing of the run's end hangs on it.
fn record_use(seen: &Observation) -> Option<Request> {
    let stints = seen.stints.as_deref().filter(|stints| !stints.is_empty())?;
    let patch = run::record_use(&seen.run, &need::written(&need::peak(stints)));
    Some(request(Operation::RecordUse, Object::Run, Verb::Merge(patch)))
}

fn wake_tasks(run: &Run, pods: &[String], wake: Wake) -> impl Iterator<Item = Request> {
    let verb = Verb::Json(placeholder::wake(run, wake));
    let wake = move |pod: &String| request(Operation::Wake, Object::OtherPod(pod.clone()), verb.clone());
    pods.iter().map(wake)
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

/// A placeholder that finds no node left the one that the run names. It is to follow the pod that waits.
fn move_off(seen: &Observation, set: &str, pod: Option<&str>) -> Request {
    let mut patch = scale(seen, set, 0);
    let node = seen.node_name().or(seen.run.node.as_deref());
    patch.0.extend(node.map(placeholder::left));
    let leads = seen.waiting.iter().find(|it| Some(it.name.as_str()) == pod);
    patch
        .0
        .extend(leads.map(|it| placeholder::tolerating(&seen.run, &it.tolerations)));
    change(patch)
}

fn tolerating_the_same(seen: &Observation) -> Option<PatchOperation> {
    let pod = seen.pod.as_ref()?;
    Some(placeholder::tolerating(&seen.run, &pod.tolerations))
}

/// It gives up no node: what is there of the run stays.
fn make_room(seen: &Observation, set: &str) -> Request {
    let mut patch = scale(seen, set, 0);
    patch.0.push(placeholder::left(""));
    change(patch)
}

fn retry_tasks(seen: &Observation, tasks: &[String]) -> impl Iterator<Item = Request> {
    let refusal = seen.refusal.as_deref().unwrap_or_default();
    let verb = Verb::Json(placeholder::retry(&seen.run, refusal));
    let retry = move |task: &String| request(Operation::Retry, Object::TaskRun(task.clone()), verb.clone());
    tasks.iter().map(retry)
}

fn scale(seen: &Observation, set: &str, to: i32) -> Patch {
    let from = seen.set.as_ref().map_or(1 - to, |set| set.replicas);
    placeholder::scale(set, from, to)
}

/// Their StatefulSets make them anew, and where the run has no node they have none. At once: they have nothing to finish,
/// and on a node that is silent nothing would end them.
fn dismissals(seen: &Observation) -> impl Iterator<Item = Request> {
    let left = seen.set.as_ref().and_then(|set| set.left.as_ref());
    let assistants = seen.assistants.iter().flatten();
    let behind =
        assistants.filter(move |assistant| assistant.node.is_some() && assistant.node.as_ref() == left);
    behind.map(|assistant| {
        let (name, uid) = (assistant.name.clone(), assistant.uid.clone());
        let verb = Verb::Delete { uid, at_once: true };
        request(Operation::Assistants, Object::OtherPod(name), verb)
    })
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
