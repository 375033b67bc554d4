//! Acts as a CSI driver. The attacher attaches volumes for the attach-detach controller, and records which volume is on which node.
//! The provisioner creates a volume for each PVC of two storage classes: at once and in a zone of its own choice, or in the zone of the
//! first pod that mounts the PVC.

use crate::support::SOON;
use crate::support::objects::{changes, patch_node};
use crate::support::placeholders::pods;
use crate::support::pvcs::create_pvc_of;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testbed::{Nodes, Testbed, apply};
use tokio::task::JoinHandle;

/// The name of the CSI driver.
pub(crate) const DRIVER: &str = "slow.example.com";
/// Keeps a `VolumeAttachment` until the volume is detached from its node, as CSI drivers do.
const FINALIZER: &str = "external-attacher/slow-example-com";
/// How long a detachment takes: longer than a run needs to be bound to its next node.
const DETACHING: Duration = Duration::from_secs(4);

/// Nodes with the annotation by which a kubelet asks the attach-detach controller to manage its volumes.
pub(crate) async fn add_attaching_nodes(bed: &Testbed, nodes: &Nodes) {
    let managed = json!({"volumes.kubernetes.io/controller-managed-attach-detach": "true"});
    for node in bed.add_nodes(nodes).await.unwrap() {
        patch_node(bed, &node, json!({"metadata": {"annotations": managed}})).await;
    }
}

/// The nodes that each volume is attached to, all nodes that had a volume, and the violations.
#[derive(Default)]
struct Attachments {
    attached: BTreeMap<String, BTreeSet<String>>,
    nodes_with_volume: BTreeSet<String>,
    /// Volumes that the attach-detach controller has begun to detach from a node.
    detached: BTreeSet<String>,
    violations: Vec<String>,
}

/// A running storage driver.
pub(crate) struct Attacher {
    seen: Arc<Mutex<Attachments>>,
    task: JoinHandle<()>,
}

impl Attacher {
    pub(crate) async fn start(bed: &Testbed) -> Self {
        let client = bed.client().await.unwrap();
        let drivers: Api<CSIDriver> = Api::all(client.clone());
        let driver = json!({"metadata": {"name": DRIVER}, "spec": {"attachRequired": true}});
        let driver = serde_json::from_value(driver).unwrap();
        drivers.create(&PostParams::default(), &driver).await.unwrap();
        let seen = Arc::new(Mutex::new(Attachments::default()));
        let task = tokio::spawn(attach(Api::all(client), seen.clone()));
        Self { seen, task }
    }

    /// Creates a PVC in the default namespace with a volume of this driver.
    pub(crate) async fn create_pvc(bed: &Testbed, name: &str) {
        let volume = json!({"csi": {"driver": DRIVER, "volumeHandle": name}});
        create_pvc_of(bed, name, volume).await;
    }

    /// Waits until a volume has been attached to this node. The volume may be detached again since then.
    pub(crate) async fn until_attached(&self, bed: &Testbed, node: &str) {
        bed.until(format!("a volume to be attached to {node}"), SOON, async || {
            self.check_running();
            let nodes_with_volume = self.seen.lock().unwrap().nodes_with_volume.clone();
            if nodes_with_volume.contains(node) {
                Ok(())
            } else {
                Err(nodes_with_volume)
            }
        })
        .await
        .unwrap();
    }

    /// Whether the attach-detach controller has detached this volume from a node.
    pub(crate) fn has_detached(&self, volume: &str) -> bool {
        self.seen.lock().unwrap().detached.contains(volume)
    }

    /// Waits until the attach-detach controller has handled all earlier changes of pods: it attaches the volume of a pod on
    /// this node, and detaches the volume when the pod is deleted. Each of its passes handles all volumes.
    pub(crate) async fn until_changes_are_handled(&self, bed: &Testbed, node: &str) {
        let marker = "marker";
        Self::create_pvc(bed, marker).await;
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
            self.check_running();
            self.has_detached(marker).then_some(()).ok_or("it is attached")
        })
        .await
        .unwrap();
    }

    fn check_running(&self) {
        assert!(!self.task.is_finished(), "the storage driver has ended");
    }

    /// Ends the driver; fails if a volume was attached to two nodes at once.
    pub(crate) fn assert_never_attached_twice(self) {
        self.check_running();
        self.task.abort();
        let seen = self.seen.lock().unwrap();
        assert!(!seen.nodes_with_volume.is_empty(), "nothing was ever attached");
        assert!(
            seen.violations.is_empty(),
            "on two nodes at once: {:?}",
            seen.violations
        );
    }
}

/// Attaches requested volumes at once, and detaches them after a delay.
async fn attach(attachments: Api<VolumeAttachment>, seen: Arc<Mutex<Attachments>>) {
    let mut changed = changes(attachments.clone(), watcher::Config::default());
    while let Some(attachment) = changed.next().await {
        if attachment.metadata.deletion_timestamp.is_some() {
            let volume = attachment.spec.source.persistent_volume_name.clone().unwrap();
            seen.lock().unwrap().detached.insert(volume);
            tokio::time::sleep(DETACHING).await;
            seen.lock().unwrap().record(&attachment, false);
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
            seen.lock().unwrap().record(&attachment, true);
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

impl Attachments {
    fn record(&mut self, attachment: &VolumeAttachment, is_attached: bool) {
        let volume = attachment.spec.source.persistent_volume_name.clone().unwrap();
        let nodes = self.attached.entry(volume.clone()).or_default();
        if is_attached {
            nodes.insert(attachment.spec.node_name.clone());
            self.nodes_with_volume.insert(attachment.spec.node_name.clone());
        } else {
            nodes.remove(&attachment.spec.node_name);
        }
        if nodes.len() > 1 {
            self.violations.push(format!("{volume} on {nodes:?}"));
        }
    }
}

/// The storage classes, by their binding mode.
pub(crate) const IMMEDIATE: &str = "immediate";
pub(crate) const WITH_THE_FIRST_POD: &str = "with-the-first-pod";
/// The zone in which the driver creates volumes for immediate binding.
pub(crate) const DEFAULT_ZONE: &str = "west";
const ZONE: &str = "topology.kubernetes.io/zone";
/// The annotation that the scheduler sets on a PVC.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// A running storage driver; it ends when it is dropped.
pub(crate) struct Provisioner(JoinHandle<()>);

impl Provisioner {
    pub(crate) async fn start(bed: &Testbed) -> Self {
        Self::create_classes(bed).await;
        Self(tokio::spawn(provision(bed.client().await.unwrap())))
    }

    /// Creates the storage classes, without a driver that creates volumes.
    pub(crate) async fn create_classes(bed: &Testbed) {
        let client = bed.client().await.unwrap();
        let class = |(name, mode): (&str, &str)| {
            json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
                "provisioner": DRIVER, "volumeBindingMode": mode,
            })
        };
        let classes = [
            (IMMEDIATE, "Immediate"),
            (WITH_THE_FIRST_POD, "WaitForFirstConsumer"),
        ];
        apply::apply_all(&client, &classes.map(class)).await.unwrap();
    }
}

impl Drop for Provisioner {
    fn drop(&mut self) {
        let is_running = !self.0.is_finished();
        self.0.abort();
        // A second panic would abort the test binary.
        assert!(
            is_running || std::thread::panicking(),
            "the provisioner has ended"
        );
    }
}

async fn provision(client: Client) {
    let pvcs: Api<PersistentVolumeClaim> = Api::all(client.clone());
    let mut changed = changes(pvcs, watcher::Config::default());
    while let Some(pvc) = changed.next().await {
        if let Some(zone) = zone_for(&client, &pvc).await {
            create_volume(&client, &pvc, &zone).await;
        }
    }
}

/// `None` if the PVC belongs to another driver, has a volume, or waits for its first pod.
async fn zone_for(client: &Client, pvc: &PersistentVolumeClaim) -> Option<String> {
    let spec = pvc.spec.as_ref().filter(|spec| spec.volume_name.is_none())?;
    match spec.storage_class_name.as_deref()? {
        IMMEDIATE => Some(DEFAULT_ZONE.to_owned()),
        WITH_THE_FIRST_POD => {
            let node = pvc.annotations().get(SELECTED_NODE)?;
            let node = Api::<Node>::all(client.clone()).get(node).await.unwrap();
            node.labels().get(ZONE).cloned()
        }
        _ => None,
    }
}

async fn create_volume(client: &Client, pvc: &PersistentVolumeClaim, zone: &str) {
    let name = format!("volume-{}", pvc.uid().unwrap());
    let spec = pvc.spec.as_ref().unwrap();
    let here = json!({"key": ZONE, "operator": "In", "values": [zone]});
    let volume = json!({
        "metadata": {"name": name},
        "spec": {
            "capacity": spec.resources.as_ref().unwrap().requests,
            "accessModes": spec.access_modes,
            "storageClassName": spec.storage_class_name,
            "claimRef": {"namespace": pvc.namespace(), "name": pvc.name_any(), "uid": pvc.uid()},
            "csi": {"driver": DRIVER, "volumeHandle": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    });
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let volume = serde_json::from_value(volume).unwrap();
    match volumes.create(&PostParams::default(), &volume).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        other => drop(other.unwrap()),
    }
}
