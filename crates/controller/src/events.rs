//! Sends notes as events.k8s.io/v1 Events on the PipelineRun. A task of its own sends them, so that no run waits for its events.
//!
//! kube's `Recorder` is not used. It merges the notes of one reason under the text of the first note, but users need every text.
//! It also keeps every event in memory for minutes, for every run. Here, the name of an event contains a hash of the run's UID,
//! the reason and the text, so that a repeated note, also from the next leader, only increases the count of the existing event.

use crate::metrics::{EventEnd, Metrics};
use crate::write::Cluster;
use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use placement::keys;
use placement::names::{RunKey, digest};
use placement::notes::{Manner, Note};
use placement::text::shortened;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tracing::debug;

/// The length of the queue: a few events for each of a thousand runs that are created at once. A full queue drops events.
const QUEUE_LENGTH: usize = 4096;
/// Events that are sent at the same time: enough to keep up, and few enough not to delay releases at the API server.
const CONCURRENCY: usize = 4;
/// The longest note that the API server accepts.
const MAX_NOTE_LENGTH: usize = 1024;
const TIMEOUT: Duration = Duration::from_secs(10);

/// A note in the queue, with its run and its time.
#[derive(Clone, Debug)]
pub(crate) struct QueuedNote {
    pub(crate) key: RunKey,
    pub(crate) note: Note,
    /// The TaskRun whose timeout continues while its pod waits.
    pub(crate) task_run: Option<String>,
    /// How often the note was reported, including this time.
    pub(crate) count: i32,
    pub(crate) at: Timestamp,
}

/// The sender of the queue, which never waits.
#[derive(Clone)]
pub(crate) struct EventQueue {
    queue: mpsc::Sender<QueuedNote>,
    metrics: Metrics,
}

/// The receiver of the queue, which sends the notes to the API server.
pub(crate) struct EventWriter {
    queue: mpsc::Receiver<QueuedNote>,
    cluster: Arc<Cluster>,
    instance: String,
    metrics: Metrics,
}

/// The sender and the receiver of a new queue.
pub(crate) fn event_queue(
    cluster: Arc<Cluster>,
    instance: String,
    metrics: Metrics,
) -> (EventQueue, EventWriter) {
    let (sender, queue) = mpsc::channel(QUEUE_LENGTH);
    let event_queue = EventQueue {
        queue: sender,
        metrics: metrics.clone(),
    };
    (
        event_queue,
        EventWriter {
            queue,
            cluster,
            instance,
            metrics,
        },
    )
}

impl EventQueue {
    /// Queues a note, or drops the note if the queue is full.
    pub(crate) fn put(&self, note: QueuedNote) {
        if self.queue.try_send(note).is_err() {
            self.metrics.event(EventEnd::Dropped);
        }
    }
}

impl EventWriter {
    /// Sends notes until all senders are dropped and the queue is empty.
    pub(crate) async fn run(mut self) {
        let (cluster, instance, metrics) = (self.cluster, self.instance, self.metrics);
        let notes = stream::poll_fn(|context| self.queue.poll_recv(context));
        let send = |note: QueuedNote| deliver(&cluster, &instance, &metrics, note);
        notes.for_each_concurrent(CONCURRENCY, send).await;
    }
}

#[cfg(test)]
impl EventWriter {
    /// The reasons of the queued notes, in order.
    pub(crate) fn reasons(&mut self) -> Vec<&'static str> {
        self.waiting().map(|note| note.reason.into()).collect()
    }

    /// The texts of the queued notes, in order.
    pub(crate) fn notes(&mut self) -> Vec<String> {
        self.waiting().map(|note| note.text).collect()
    }

    /// The reasons of the queued notes, with the TaskRuns whose pods wait.
    pub(crate) fn task_runs(&mut self) -> Vec<(&'static str, Option<String>)> {
        let queued = self.queued();
        queued.map(|it| (it.note.reason.into(), it.task_run)).collect()
    }

    fn waiting(&mut self) -> impl Iterator<Item = Note> {
        self.queued().map(|note| note.note)
    }

    fn queued(&mut self) -> impl Iterator<Item = QueuedNote> {
        std::iter::from_fn(|| self.queue.try_recv().ok())
    }
}

async fn deliver(cluster: &Cluster, instance: &str, metrics: &Metrics, note: QueuedNote) {
    let event = event(instance, &note, &time_left(cluster, &note).await);
    let sending = cluster.publish(&note.key.namespace, &event, note.count);
    let sent = tokio::time::timeout(TIMEOUT, sending).await;
    metrics.event(if matches!(sent, Ok(Ok(()))) {
        EventEnd::Sent
    } else {
        EventEnd::Failed
    });
    if let Ok(Err(error)) = sent {
        let reason: &str = note.note.reason.into();
        debug!(run = %note.key, reason, %error, "an event was not taken");
    }
}

/// The time that is left of the TaskRun's timeout, as a sentence. Empty if the TaskRun has no timeout or cannot be read. An event that
/// is repeated keeps its first text.
async fn time_left(cluster: &Cluster, note: &QueuedNote) -> String {
    let Some(name) = note.task_run.as_deref().filter(|_| note.count == 1) else {
        return String::new();
    };
    let read = tokio::time::timeout(TIMEOUT, cluster.task_run(&note.key.namespace, name)).await;
    let deadline = read.ok().and_then(Result::ok).flatten();
    let deadline = deadline.and_then(|task_run| task_run.deadline());
    deadline.map_or_else(String::new, |deadline| {
        placement::notes::time_left(name, deadline, note.at)
    })
}

fn event(instance: &str, note: &QueuedNote, time_left: &str) -> Event {
    let reason = note.note.reason;
    let Manner { kind, action, .. } = reason.manner();
    let text = shortened(&note.note.text, MAX_NOTE_LENGTH.saturating_sub(time_left.len()));
    Event {
        metadata: ObjectMeta {
            name: Some(name(note)),
            namespace: Some(note.key.namespace.clone()),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(note.at)),
        reporting_controller: Some(format!("{}controller", keys::OWN_PREFIX)),
        reporting_instance: Some(instance.to_owned()),
        action: Some(action.to_owned()),
        reason: Some(reason.to_string()),
        note: Some(format!("{text}{time_left}")),
        regarding: Some(reference(&note.key)),
        type_: Some(kind.to_owned()),
        ..Event::default()
    }
}

fn reference(key: &RunKey) -> ObjectReference {
    ObjectReference {
        api_version: Some("tekton.dev/v1".to_owned()),
        kind: Some("PipelineRun".to_owned()),
        namespace: Some(key.namespace.clone()),
        name: Some(key.name.clone()),
        uid: Some(key.uid.clone()),
        ..ObjectReference::default()
    }
}

/// The name does not depend on the time left, so that a repeated note is the same event.
fn name(note: &QueuedNote) -> String {
    let (key, note) = (&note.key, &note.note);
    let texts = [key.uid.as_str(), note.reason.into(), note.text.as_str()];
    format!("{}.{}", key.name, digest(&texts, 8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Server, at, cluster, exposition, run};
    use placement::notes::Reason;
    use prometheus_client::registry::Registry;
    use serde_json::json;

    fn note(text: &str, count: i32) -> QueuedNote {
        let note = Note {
            reason: Reason::WaitingForNode,
            text: text.to_owned(),
        };
        QueuedNote {
            key: run().key,
            note,
            task_run: None,
            count,
            at: at(0),
        }
    }

    async fn event_writer(server: &mut Server, notes: Vec<QueuedNote>) {
        let (event_queue, event_writer) = event_queue(
            cluster(server),
            "pod-1".to_owned(),
            Metrics::register(&mut Registry::default()),
        );
        for note in notes {
            event_queue.put(note);
        }
        drop(event_queue);
        event_writer.run().await;
    }

    #[tokio::test]
    async fn a_report_becomes_an_event_on_the_run() {
        let mut server = Server::start();
        server.answer(201, json!({"metadata": {}}));
        event_writer(&mut server, vec![note("0/3 nodes", 1)]).await;
        let call = server.calls().remove(0);
        assert_eq!(call.line, "POST /apis/events.k8s.io/v1/namespaces/ns/events?");
        let run = json!({
            "apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "namespace": "ns", "name": "build", "uid": "u1",
        });
        assert_eq!(call.body["regarding"], run);
        assert_eq!(call.body["reason"], "WaitingForNode");
        assert_eq!(call.body["note"], "0/3 nodes");
        assert_eq!(call.body["type"], "Normal");
    }

    #[tokio::test]
    async fn the_count_of_an_existing_event_grows() {
        let mut server = Server::start();
        server.refuse(409, "AlreadyExists", "events \"x\" already exists");
        server.answer(200, json!({"metadata": {}}));
        event_writer(&mut server, vec![note("0/3 nodes", 3)]).await;
        let call = server.calls().remove(1);
        assert!(
            call.line
                .starts_with("PATCH /apis/events.k8s.io/v1/namespaces/ns/events/build."),
            "{}",
            call.line
        );
        assert_eq!(call.body["series"]["count"], 3);
    }

    #[tokio::test]
    async fn the_event_about_a_waiting_pod_has_the_time_left_of_its_taskrun() {
        let waits = |count| QueuedNote {
            task_run: Some("build-test".to_owned()),
            ..note(&"x".repeat(2000), count)
        };
        let mut server = Server::start();
        let task_run = json!({
            "metadata": {"name": "build-test"}, "spec": {"timeout": "1m30s"}, "status": {"startTime": at(0).to_string()},
        });
        server.answer(200, json!({"metadata": {}, "items": [task_run]}));
        (0..2).for_each(|_| server.answer(201, json!({"metadata": {}})));
        event_writer(&mut server, vec![waits(1)]).await;
        event_writer(&mut server, vec![waits(2)]).await;
        let calls = server.calls();
        let lines: Vec<_> = calls.iter().map(|call| call.line.as_str()).collect();
        let post = "POST /apis/events.k8s.io/v1/namespaces/ns/events?";
        let list = "GET /apis/tekton.dev/v1/namespaces/ns/taskruns?&fieldSelector=metadata.name%3Dbuild-test&limit=1";
        assert_eq!(
            lines,
            [list, post, post],
            "read once, and not for a repeated note"
        );
        let note = calls[1].body["note"].as_str().unwrap();
        assert!(
            note.len() <= MAX_NOTE_LENGTH && note.contains("TaskRun build-test continues: 1m 30s left"),
            "{note}"
        );
        assert_eq!(
            calls[1].body["metadata"]["name"],
            calls[2].body["metadata"]["name"]
        );
    }

    #[tokio::test]
    async fn the_event_about_a_waiting_pod_does_not_need_the_taskrun() {
        let mut server = Server::start();
        server.refuse(403, "Forbidden", "no");
        server.answer(201, json!({"metadata": {}}));
        let waits = QueuedNote {
            task_run: Some("build-test".to_owned()),
            ..note("waits", 1)
        };
        event_writer(&mut server, vec![waits]).await;
        assert_eq!(server.calls()[1].body["note"], "waits");
    }

    #[test]
    fn different_words_are_different_events_and_the_same_words_are_one() {
        assert_eq!(name(&note("a", 1)), name(&note("a", 2)));
        assert_ne!(name(&note("a", 1)), name(&note("b", 1)));
    }

    #[test]
    fn a_note_is_not_longer_than_the_api_server_accepts() {
        let note = event("pod-1", &note(&"ä".repeat(2000), 1), "").note.unwrap();
        assert!(
            note.len() <= MAX_NOTE_LENGTH && note.ends_with('…'),
            "{}",
            note.len()
        );
    }

    #[test]
    fn a_full_queue_drops_and_never_waits() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let (queue, _unread) = mpsc::channel(1);
        let event_queue = EventQueue { queue, metrics };
        (0..3).for_each(|_| event_queue.put(note("x", 1)));
        let text = exposition(&registry);
        assert!(text.contains("events_total{outcome=\"dropped\"} 2"), "{text}");
    }
}
