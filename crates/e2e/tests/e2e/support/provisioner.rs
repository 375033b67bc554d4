//! Acts as the storage driver that creates a volume for each PVC of two StorageClasses: at once and in a zone of its own
//! choice, or in the zone of the first pod that mounts the PVC.

use crate::support::attacher::DRIVER;
use crate::support::changes::changes;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use kube::api::{Api, PostParams};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use serde_json::json;
use testbed::{Testbed, apply};
use tokio::task::JoinHandle;

/// The StorageClasses, by their binding mode.
pub(crate) const IMMEDIATE: &str = "immediate";
pub(crate) const WITH_THE_FIRST_POD: &str = "with-the-first-pod";
/// The zone in which the driver creates volumes for immediate binding.
pub(crate) const ITS_ZONE: &str = "west";
const ZONE: &str = "topology.kubernetes.io/zone";
/// The annotation that the scheduler sets on a PVC.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// A running storage driver; it ends when it is dropped.
pub(crate) struct Provisioner(JoinHandle<()>);

impl Provisioner {
    pub(crate) async fn start(bed: &Testbed) -> Self {
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
        Self(tokio::spawn(serve(client)))
    }
}

impl Drop for Provisioner {
    fn drop(&mut self) {
        let at_work = !self.0.is_finished();
        self.0.abort();
        // A second panic would abort the test binary.
        assert!(at_work || std::thread::panicking(), "the provisioner has ended");
    }
}

async fn serve(client: Client) {
    let claims: Api<PersistentVolumeClaim> = Api::all(client.clone());
    let mut asked = changes(claims, watcher::Config::default());
    while let Some(claim) = asked.next().await {
        if let Some(zone) = zone_for(&client, &claim).await {
            make(&client, &claim, &zone).await;
        }
    }
}

/// `None` if the PVC belongs to another driver, has a volume, or waits for its first pod.
async fn zone_for(client: &Client, claim: &PersistentVolumeClaim) -> Option<String> {
    let spec = claim.spec.as_ref().filter(|spec| spec.volume_name.is_none())?;
    match spec.storage_class_name.as_deref()? {
        IMMEDIATE => Some(ITS_ZONE.to_owned()),
        WITH_THE_FIRST_POD => {
            let node = claim.annotations().get(SELECTED_NODE)?;
            let node = Api::<Node>::all(client.clone()).get(node).await.unwrap();
            node.labels().get(ZONE).cloned()
        }
        _ => None,
    }
}

async fn make(client: &Client, claim: &PersistentVolumeClaim, zone: &str) {
    let name = format!("volume-{}", claim.uid().unwrap());
    let spec = claim.spec.as_ref().unwrap();
    let here = json!({"key": ZONE, "operator": "In", "values": [zone]});
    let volume = json!({
        "metadata": {"name": name},
        "spec": {
            "capacity": spec.resources.as_ref().unwrap().requests,
            "accessModes": spec.access_modes,
            "storageClassName": spec.storage_class_name,
            "claimRef": {"namespace": claim.namespace(), "name": claim.name_any(), "uid": claim.uid()},
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
