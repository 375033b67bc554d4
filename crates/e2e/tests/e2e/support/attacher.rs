//! Acts as the storage driver that attaches volumes for the attach-detach controller, and records which volume is on which
//! node.

use crate::support::SOON;
use crate::support::changes::changes;
use crate::support::claims::claim_of;
use crate::support::placeholders::pods;
use futures::StreamExt;
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testbed::Testbed;
use tokio::task::JoinHandle;

/// The name of the CSI driver.
pub(crate) const DRIVER: &str = "slow.example.com";
/// Keeps a VolumeAttachment until the volume is detached from its node, as CSI drivers do.
const FINALIZER: &str = "external-attacher/slow-example-com";
/// How long a detachment takes: longer than a run needs to be bound to its next node.
const DETACHING: Duration = Duration::from_secs(4);

/// The nodes that each volume is attached to, all nodes that had a volume, and the violations.
#[derive(Default)]
struct Seen {
    attached: BTreeMap<String, BTreeSet<String>>,
    had_one: BTreeSet<String>,
    /// Volumes that the attach-detach controller is detaching from a node.
    leaving: BTreeSet<String>,
    doubled: Vec<String>,
}

/// A running storage driver.
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

    /// Creates a PVC in the default namespace with a volume of this driver.
    pub(crate) async fn claim(bed: &Testbed, name: &str) {
        let volume = json!({"csi": {"driver": DRIVER, "volumeHandle": name}});
        claim_of(bed, name, volume).await;
    }

    /// Waits until a volume has been attached to this node. The volume may be detached again since then.
    pub(crate) async fn until_attached(&self, bed: &Testbed, node: &str) {
        bed.until(format!("a volume to be attached to {node}"), SOON, async || {
            self.is_at_work();
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

    /// Whether the attach-detach controller has detached this volume from a node.
    pub(crate) fn has_detached(&self, volume: &str) -> bool {
        self.seen.lock().unwrap().leaving.contains(volume)
    }

    /// Waits until the attach-detach controller has handled all earlier changes of pods: it attaches the volume of a pod on
    /// this node, and detaches the volume when the pod is deleted. Each of its passes handles all volumes.
    pub(crate) async fn until_passed(&self, bed: &Testbed, node: &str) {
        let marker = "marker";
        Self::claim(bed, marker).await;
        let pod = json!({
            "metadata": {"name": marker},
            "spec": {
                "nodeName": node,
                "containers": [{"name": "main", "image": "testbed.invalid/main"}],
                "volumes": [{"name": "marker", "persistentVolumeClaim": {"claimName": marker}}],
            },
        });
        let pods = pods(&bed.client().await.unwrap(), "default");
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap())
            .await
            .unwrap();
        self.until_attached(bed, node).await;
        pods.delete(marker, &DeleteParams::default()).await.unwrap();
        bed.until("the marker's volume to be detached", SOON, async || {
            self.is_at_work();
            self.has_detached(marker).then_some(()).ok_or("it is attached")
        })
        .await
        .unwrap();
    }

    fn is_at_work(&self) {
        assert!(!self.task.is_finished(), "the storage driver has ended");
    }

    /// Ends the driver; fails if a volume was attached to two nodes at once.
    pub(crate) fn never_attached_twice(self) {
        self.is_at_work();
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

/// Attaches requested volumes at once, and detaches them after a delay.
async fn serve(attachments: Api<VolumeAttachment>, seen: Arc<Mutex<Seen>>) {
    let mut asked = changes(attachments.clone(), watcher::Config::default());
    while let Some(attachment) = asked.next().await {
        if attachment.metadata.deletion_timestamp.is_some() {
            let volume = attachment.spec.source.persistent_volume_name.clone().unwrap();
            seen.lock().unwrap().leaving.insert(volume);
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
