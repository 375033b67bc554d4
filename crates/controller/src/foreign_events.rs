//! The watches of events that other programs emit: about a placeholder without a pod, about an unschedulable placeholder, and about
//! a task's pod that a quota rejected.
//!
//! All runs share these watches, because a list of events for each waiting run would make the API server read all events of the
//! namespace each time. The API server deletes an event after an hour.

use crate::index::{Index, Reduced};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use kube::runtime::watcher::Config as Watch;
use placement::messages;
use placement::names::PlaceholderName;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The reason of Tekton's event about a task's pod that a quota rejected, and of the TaskRun's condition.
pub(crate) const OVER_QUOTA: &str = "ExceededResourceQuota";
/// The most bytes of a message that are kept. The longest message of the scheduler and of a quota is shorter.
const LONGEST: usize = 1024;
/// More than the 36 characters of a UID. Events may have any text there, up to megabytes.
const LONGEST_UID: usize = 64;

/// Events by namespace, name of the object, and name of the event.
pub(crate) type Events = Index<EventKey, ObservedEvent>;
pub(crate) type EventKey = (String, String, String);

/// An event about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObservedEvent {
    uid: String,
    last_seen: Timestamp,
    version: String,
    message: String,
}

/// An event, with the fields that decisions read.
#[derive(kube::Resource, Clone, Debug, Default, Deserialize)]
#[resource(inherit = Event)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct EventView {
    #[serde(deserialize_with = "tekton::metadata::read")]
    metadata: ObjectMeta,
    involved_object: Involved,
    reason: Option<String>,
    message: Option<String>,
    source: Source,
    reporting_component: Option<String>,
    last_timestamp: Option<Time>,
    event_time: Option<MicroTime>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Involved {
    name: Option<String>,
    uid: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Source {
    component: Option<String>,
}

/// A watch of events. An API server sends no bookmarks to such a watch, and the client ends connections that fall silent, so the watch
/// ends before.
fn events(fields: &str) -> Watch {
    Watch::default().fields(fields).timeout(60)
}

/// The StatefulSet controller could not create a pod.
pub(crate) fn failed_creates() -> Watch {
    events("involvedObject.kind=StatefulSet,reason=FailedCreate")
}

/// Events about pods, without those of each pod's start. Autoscalers differ in their reasons.
pub(crate) fn autoscalers() -> Watch {
    events("involvedObject.kind=Pod,source!=kubelet,source!=default-scheduler")
}

/// Tekton could not create the pod of a task.
pub(crate) fn rejected_tasks() -> Watch {
    events(&format!("involvedObject.kind=TaskRun,reason={OVER_QUOTA}"))
}

/// Reduces an event about a placeholder's StatefulSet.
pub(crate) fn of_statefulset(event: &EventView) -> Option<Reduced<EventKey, ObservedEvent>> {
    event
        .reduced(LONGEST)
        .filter(|((_, name, _), _)| PlaceholderName::is_placeholder(name))
}

/// Reduces an autoscaler's event about a placeholder's pod.
pub(crate) fn of_autoscaler(event: &EventView) -> Option<Reduced<EventKey, ObservedEvent>> {
    let reporter = event.reporting_component.as_deref().filter(|it| !it.is_empty());
    let reporter = reporter.or(event.source.component.as_deref()).unwrap_or_default();
    let reason = event.reason.as_deref().unwrap_or_default();
    let is_answer = messages::is_of_autoscaler(reporter, reason);
    let about_placeholder = event
        .reduced(LONGEST)
        .filter(|((_, name, _), _)| PlaceholderName::is_placeholder(name.trim_end_matches("-0")));
    about_placeholder.map(|(key, answer)| (key, answer.filter(|_| is_answer)))
}

/// Reduces an event about a TaskRun. The TaskRun has the message as well.
pub(crate) fn of_task_run(event: &EventView) -> Option<Reduced<EventKey, ObservedEvent>> {
    event.reduced(0)
}

/// The message of the latest event about the object.
pub(crate) fn latest(events: &Events, namespace: &str, name: &str, uid: &str) -> Option<String> {
    let from = (namespace.to_owned(), name.to_owned(), String::new());
    let events = events.read();
    let about = events.range(from..).take_while(|((in_namespace, about, _), _)| {
        (in_namespace.as_str(), about.as_str()) == (namespace, name)
    });
    let latest = about.map(|(_, event)| event).filter(|event| event.uid == uid);
    latest
        .max_by_key(|event| event.last_seen)
        .map(|event| event.message.clone())
}

/// Whether an event of the namespace has such a message.
pub(crate) fn any(events: &Events, namespace: &str, is_such: impl Fn(&str) -> bool) -> bool {
    in_namespace(&events.read(), namespace).any(|(_, event)| is_such(&event.message))
}

fn in_namespace<'a>(
    events: &'a BTreeMap<EventKey, ObservedEvent>,
    namespace: &'a str,
) -> impl Iterator<Item = (&'a EventKey, &'a ObservedEvent)> {
    let from = (namespace.to_owned(), String::new(), String::new());
    events
        .range(from..)
        .take_while(move |((here, ..), _)| here == namespace)
}

/// The version of the latest event about a task that can be a task of the run.
pub(crate) fn latest_of_tasks(events: &Events, namespace: &str, run: &str) -> Option<String> {
    let events = events.read();
    let of_run = in_namespace(&events, namespace).filter(|((_, task, _), _)| can_be_task_of(task, run));
    let latest = of_run.max_by_key(|(_, event)| (event.last_seen, event.version.len(), &event.version));
    latest.map(|(_, event)| event.version.clone())
}

/// Tekton names a TaskRun after its run. A name that would have more than 63 characters contains a digest instead.
pub(crate) fn can_be_task_of(task: &str, run: &str) -> bool {
    const DIGEST_FROM: usize = 60;
    task.starts_with(run) || task.len() >= DIGEST_FROM
}

impl EventView {
    /// Keeps at most this many bytes of the message. Kubernetes' clients name an event after its object and the time. A user can
    /// change the object of an event but not the name, so only events with such a name are kept: others could stay in the cache under
    /// each of their objects.
    fn reduced(&self, most: usize) -> Option<Reduced<EventKey, ObservedEvent>> {
        let metadata = &self.metadata;
        let name = metadata.name.as_deref()?;
        let (object, _) = name.rsplit_once('.')?;
        let key = (metadata.namespace.clone()?, object.to_owned(), name.to_owned());
        let uid = self.involved_object.uid.as_deref().unwrap_or_default();
        let is_about = self.involved_object.name.as_deref() == Some(object) && uid.len() <= LONGEST_UID;
        let message = self.message.as_deref().unwrap_or_default();
        let event = is_about.then(|| ObservedEvent {
            uid: uid.to_owned(),
            last_seen: self.last_seen(),
            version: metadata.resource_version.clone().unwrap_or_default(),
            message: message[..message.floor_char_boundary(most)].to_owned(),
        });
        Some((key, event))
    }

    fn last_seen(&self) -> Timestamp {
        let times = (self.last_timestamp.as_ref(), self.event_time.as_ref());
        let time = times.0.map(|time| time.0).or_else(|| times.1.map(|time| time.0));
        time.unwrap_or(Timestamp::UNIX_EPOCH)
    }
}

#[cfg(test)]
mod tests;
