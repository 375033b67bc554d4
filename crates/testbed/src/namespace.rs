//! Ends pod-affinity's processes when their namespace is deleted.
//!
//! In a cluster the kubelet stops the containers when the pods are deleted with their namespace. In the testbed the processes have
//! no pods, so the testbed stops them. The watch has its own thread, so that a testbed can outlive the test that created it.

use crate::error::{Error, Result};
use crate::part::{Part, Parts};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::watch_object;
use kube::{Client, Config};
use rustix::process::Signal;
use std::pin::pin;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// The `terminationGracePeriodSeconds` of pod-affinity's pods.
const GRACE: Duration = Duration::from_secs(30);
/// Interval of checks whether the processes have ended.
const PAUSE: Duration = Duration::from_millis(50);

/// The progress of a namespace's deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deletion {
    NotAsked,
    /// Roles, ServiceAccounts and pods still exist, but may be deleted at any time.
    Begun,
    /// The namespace controller has deleted the content, pods included.
    Emptied,
}

impl Deletion {
    fn from_namespace(namespace: Option<&Namespace>) -> Self {
        let Some(namespace) = namespace else {
            return Self::Emptied;
        };
        if namespace.metadata.deletion_timestamp.is_none() {
            return Self::NotAsked;
        }
        // The namespace controller writes these conditions after its first pass over the content.
        let status = namespace.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_ref());
        if conditions.is_some_and(|conditions| !conditions.is_empty()) {
            Self::Emptied
        } else {
            Self::Begun
        }
    }
}

/// A watch that ends processes with their namespace. Dropping the value stops the watch.
#[derive(Debug)]
pub(crate) struct Watch {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts a watch of an existing namespace.
    pub(crate) fn start(config: Config, name: &'static str, processes: ProductProcesses) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(Error::io("starting a runtime to watch namespace", name))?;
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || follow(&runtime, config, name, &processes, stopped));
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic has already ended the thread.
            let _ = thread.join();
        }
    }
}

fn follow(
    runtime: &Runtime,
    config: Config,
    name: &str,
    processes: &ProductProcesses,
    stopped: oneshot::Receiver<()>,
) {
    runtime.block_on(async {
        tokio::select! {
            _ = stopped => {}
            () = end_with(config, name, processes) => {}
        }
    });
}

async fn end_with(config: Config, name: &str, processes: &ProductProcesses) {
    let Ok(client) = Client::try_from(config) else {
        return;
    };
    let seen = watch_object::<Namespace>(Api::all(client), name).default_backoff();
    let mut seen = pin!(seen);
    while let Some(seen) = seen.next().await {
        // Some tests stop the API server. The watch continues when the API server is back.
        let Ok(namespace) = seen else { continue };
        match Deletion::from_namespace(namespace.as_ref()) {
            Deletion::NotAsked => {}
            Deletion::Begun => processes.expect_end(),
            Deletion::Emptied => return processes.end(),
        }
    }
}

/// The processes that end with the namespace.
#[derive(Clone, Debug)]
pub(crate) struct ProductProcesses {
    pub(crate) parts: Arc<Parts>,
    pub(crate) which: Vec<Part>,
}

impl ProductProcesses {
    /// Accepts that a process ends by itself, because its permissions may be deleted first.
    fn expect_end(&self) {
        for part in &self.which {
            self.parts.expect_end(*part);
        }
    }

    /// Ends the processes like the kubelet: SIGTERM first, then SIGKILL after the grace period.
    pub(crate) fn end(&self) {
        self.end_within(GRACE);
    }

    fn end_within(&self, grace: Duration) {
        self.expect_end();
        self.signal(Signal::TERM);
        let deadline = Instant::now() + grace;
        while self.which.iter().any(|part| self.parts.still_runs(*part)) {
            if Instant::now() >= deadline {
                self.signal(Signal::KILL);
            }
            thread::sleep(PAUSE);
        }
    }

    fn signal(&self, signal: Signal) {
        for part in &self.which {
            // Sending fails if the process does not run, and then no signal is needed.
            let _ = self.parts.signal(*part, signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Guard;
    use crate::options::Cores;
    use crate::part::Launch;
    use serde_json::{Value, json};

    fn deletion(metadata: &Value, status: &Value) -> Deletion {
        let namespace = json!({"metadata": metadata, "status": status});
        Deletion::from_namespace(Some(&serde_json::from_value(namespace).unwrap()))
    }

    #[test]
    fn processes_end_when_the_content_of_their_namespace_is_deleted() {
        let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        let condition =
            json!({"type": "NamespaceContentRemaining", "status": "True", "lastTransitionTime": null});
        let (waiting, worked_on) = (json!({}), json!({"conditions": [condition]}));
        assert_eq!(deletion(&json!({}), &waiting), Deletion::NotAsked);
        assert_eq!(deletion(&deleted, &waiting), Deletion::Begun);
        assert_eq!(deletion(&deleted, &worked_on), Deletion::Emptied);
        assert_eq!(Deletion::from_namespace(None), Deletion::Emptied);
    }

    #[test]
    fn a_process_that_does_not_end_when_asked_is_killed_after_its_grace_period() {
        let folder = tempfile::tempdir().unwrap();
        let guard = Guard::start(folder.path(), true).unwrap();
        let parts = Parts::new(guard.group(), folder.path().join("logs"), Cores::All).unwrap();
        let (obedient, stopped) = (Part::Webhook(0), Part::Webhook(1));
        for part in [obedient, stopped] {
            parts.start(part, Launch::new("sleep").arg("600")).unwrap();
        }
        parts.signal(stopped, Signal::STOP).unwrap();
        let processes = ProductProcesses {
            parts: Arc::new(parts),
            which: vec![obedient, stopped],
        };
        processes.end_within(Duration::from_millis(200));
        assert_eq!(processes.parts.pid(obedient), None);
        assert_eq!(processes.parts.pid(stopped), None);
        processes.parts.check().unwrap();
    }
}
