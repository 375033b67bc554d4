//! Watches all along that no two isolated runs are on one node at the same moment.

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};
use placement::keys;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use testbed::{Testbed, runs};
use tokio::task::JoinHandle;

/// Group and node of each live pod of a group, and what was wrong at any moment.
#[derive(Default)]
struct Seen {
    pods: BTreeMap<String, (String, String)>,
    meetings: BTreeSet<String>,
    bound: usize,
}

/// A running watch over a testbed's pods.
pub(crate) struct Watchman {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

impl Watchman {
    pub(crate) async fn start(bed: &Testbed) -> Self {
        let pods: Api<Pod> = Api::all(bed.client().await.unwrap());
        let seen = Arc::new(Mutex::new(Seen::default()));
        let noted = seen.clone();
        let task = tokio::spawn(async move {
            let events = watcher(pods, watcher::Config::default().labels(keys::GROUP)).default_backoff();
            let mut events = events.boxed();
            while let Ok(Some(event)) = events.try_next().await {
                noted.lock().unwrap().note(event);
            }
        });
        Self { seen, task }
    }

    /// Ends the watch; fails if two runs met.
    pub(crate) fn found_nothing(self) {
        self.task.abort();
        let seen = self.seen.lock().unwrap();
        assert!(seen.bound > 0, "nothing was there to watch");
        assert!(
            seen.meetings.is_empty(),
            "two isolated runs met: {:?}",
            seen.meetings
        );
    }
}

impl Seen {
    fn note(&mut self, event: watcher::Event<Pod>) {
        match event {
            watcher::Event::Apply(pod) | watcher::Event::InitApply(pod) => self.pod_is(&pod),
            watcher::Event::Delete(pod) => self.pod_is_gone(&pod),
            watcher::Event::Init | watcher::Event::InitDone => {}
        }
    }

    fn pod_is(&mut self, pod: &Pod) {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let Some(node) = runs::node(pod).filter(|_| !matches!(phase, Some("Succeeded" | "Failed"))) else {
            return self.pod_is_gone(pod);
        };
        let group = pod.metadata.labels.as_ref().unwrap()[keys::GROUP].clone();
        for (other, there) in self.pods.values() {
            if there == node && *other != group {
                self.meetings.insert(format!("{other} and {group} on {node}"));
            }
        }
        self.bound += 1;
        self.pods
            .insert(pod.metadata.uid.clone().unwrap(), (group, node.to_owned()));
    }

    fn pod_is_gone(&mut self, pod: &Pod) {
        self.pods.remove(pod.metadata.uid.as_ref().unwrap());
    }
}
