//! Plays the storage driver that the attach-detach controller asks to attach volumes, and takes note of what is where.

use crate::support::SOON;
use crate::support::claims::claim_of;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testbed::Testbed;
use tokio::task::JoinHandle;

/// Its name.
pub(crate) const DRIVER: &str = "slow.example.com";
/// Holds an attachment back until the volume has left its node, as drivers do.
const FINALIZER: &str = "external-attacher/slow-example-com";
/// Longer than a run takes to be bound to its next node.
pub(crate) const DETACHING: Duration = Duration::from_secs(4);

/// The nodes that each volume is attached to, all that had one, and what was wrong at any moment.
#[derive(Default)]
struct Seen {
    attached: BTreeMap<String, BTreeSet<String>>,
    had_one: BTreeSet<String>,
    doubled: Vec<String>,
}

/// A storage driver at work.
pub(crate) struct Attacher {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

impl Attacher {
    pub(crate) async fn start(bed: &Testbed) -> Self {
        let client = bed.client().await.unwrap();
        let drivers: Api<CSIDriver> = Api::all(client.clone());
        let driver = json!({"metadata": {"name": DRIVER}, "spec": {"attachRequired": true}});
        let driver = serde_json::from_value(driver).unwrap();
        drivers.create(&PostParams::default(), &driver).await.unwrap();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let task = tokio::spawn(serve(Api::all(client), seen.clone()));
        Self { seen, task }
    }

    /// A claim in the default namespace whose volume is this driver's.
    pub(crate) async fn claim(bed: &Testbed, name: &str) {
        let volume = json!({"csi": {"driver": DRIVER, "volumeHandle": name}});
        claim_of(bed, name, volume).await;
    }

    /// Waits until a volume has been attached to this node, which it may have left since.
    pub(crate) async fn until_attached(&self, bed: &Testbed, node: &str) {
        bed.until(format!("a volume to be attached to {node}"), SOON, async || {
            let had_one = self.seen.lock().unwrap().had_one.clone();
            if had_one.contains(node) {
                Ok(())
            } else {
                Err(had_one)
            }
        })
        .await
        .unwrap();
    }

    /// Whether a volume has been attached to this node.
    pub(crate) fn has_attached(&self, node: &str) -> bool {
        self.seen.lock().unwrap().had_one.contains(node)
    }

    /// Ends the driver; fails if a volume was on two nodes at once.
    pub(crate) fn never_attached_twice(self) {
        self.task.abort();
        let seen = self.seen.lock().unwrap();
        assert!(!seen.had_one.is_empty(), "nothing was ever attached");
        assert!(
            seen.doubled.is_empty(),
            "on two nodes at once: {:?}",
            seen.doubled
        );
    }
}

/// Attaches what is asked for at once, and detaches it slowly.
async fn serve(attachments: Api<VolumeAttachment>, seen: Arc<Mutex<Seen>>) {
    let events = watcher(attachments.clone(), watcher::Config::default()).default_backoff();
    let mut asked = events.applied_objects().boxed();
    while let Ok(Some(attachment)) = asked.try_next().await {
        if attachment.metadata.deletion_timestamp.is_some() {
            tokio::time::sleep(DETACHING).await;
            seen.lock().unwrap().note(&attachment, false);
            patch(
                &attachments,
                &attachment,
                json!({"metadata": {"finalizers": null}}),
            )
            .await;
        } else if attachment.finalizers().is_empty() {
            patch(
                &attachments,
                &attachment,
                json!({"metadata": {"finalizers": [FINALIZER]}}),
            )
            .await;
            seen.lock().unwrap().note(&attachment, true);
            let attached = Patch::Merge(json!({"status": {"attached": true}}));
            attachments
                .patch_status(&attachment.name_any(), &PatchParams::default(), &attached)
                .await
                .unwrap();
        }
    }
}

async fn patch(attachments: &Api<VolumeAttachment>, attachment: &VolumeAttachment, patch: serde_json::Value) {
    let name = attachment.name_any();
    attachments
        .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

impl Seen {
    fn note(&mut self, attachment: &VolumeAttachment, is_attached: bool) {
        let volume = attachment.spec.source.persistent_volume_name.clone().unwrap();
        let nodes = self.attached.entry(volume.clone()).or_default();
        if is_attached {
            nodes.insert(attachment.spec.node_name.clone());
            self.had_one.insert(attachment.spec.node_name.clone());
        } else {
            nodes.remove(&attachment.spec.node_name);
        }
        if nodes.len() > 1 {
            self.doubled.push(format!("{volume} on {nodes:?}"));
        }
    }
}
