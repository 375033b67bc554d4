//! KWOK simulates nodes, and pods that behave as their annotations say.

use crate::apply;
use crate::binaries::Built;
use crate::error::{Error, Result, write};
use crate::part::{Launch, Part};
use crate::stages;
use crate::testbed::{READY, Testbed};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

pub use crate::stages::{DURATION, MESSAGE, OUTCOME, result};

/// The annotation of nodes that KWOK manages.
pub const MANAGED: (&str, &str) = ("kwok.x-k8s.io/node", "fake");
const HOSTNAME: &str = "kubernetes.io/hostname";
const ARCHITECTURE: &str = "kubernetes.io/arch";
/// Number of nodes that are created concurrently.
const CONCURRENCY: usize = 16;

/// Nodes to add.
#[derive(Clone, Debug)]
pub struct Nodes {
    /// Prefix of the names; a number follows.
    pub prefix: String,
    /// Number of nodes.
    pub count: usize,
    /// CPU, as a quantity.
    pub cpu: String,
    /// Memory, as a quantity.
    pub memory: String,
    /// Architecture of the processor, as in `kubernetes.io/arch`.
    pub architecture: String,
    /// Zone, if any.
    pub zone: Option<String>,
    /// Additional labels.
    pub labels: BTreeMap<String, String>,
    /// Taints.
    pub taints: Vec<Taint>,
    /// Number of devices by resource name.
    pub devices: BTreeMap<String, u32>,
}

impl Nodes {
    /// `count` nodes of 8 CPU and 32 GiB.
    pub fn new(prefix: &str, count: usize) -> Self {
        Self {
            prefix: prefix.into(),
            count,
            cpu: "8".into(),
            memory: "32Gi".into(),
            architecture: "amd64".into(),
            zone: None,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            devices: BTreeMap::new(),
        }
    }

    /// Sets the size.
    #[must_use]
    pub fn size(self, cpu: &str, memory: &str) -> Self {
        Self {
            cpu: cpu.into(),
            memory: memory.into(),
            ..self
        }
    }

    /// Sets the architecture, which is amd64 otherwise.
    #[must_use]
    pub fn architecture(self, architecture: &str) -> Self {
        Self {
            architecture: architecture.into(),
            ..self
        }
    }

    /// Sets the zone.
    #[must_use]
    pub fn zone(self, zone: &str) -> Self {
        Self {
            zone: Some(zone.into()),
            ..self
        }
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Adds devices, and a taint that keeps off pods that do not request a device.
    #[must_use]
    pub fn devices(mut self, resource: &str, count: u32) -> Self {
        self.devices.insert(resource.into(), count);
        self.taints.push(Taint {
            key: resource.into(),
            effect: "NoSchedule".into(),
            ..Taint::default()
        });
        self
    }

    fn names(&self) -> impl Iterator<Item = String> + '_ {
        (0..self.count).map(|index| format!("{}-{index}", self.prefix))
    }

    /// The manifest of a node with this name, for KWOK and for the autoscaler's templates. In-place resize is refused on nodes
    /// whose kubelet version is not a valid version.
    pub(crate) fn manifest(&self, name: &str, kubelet_version: &str) -> Value {
        let mut labels = self.labels.clone();
        labels.insert("kubernetes.io/os".into(), "linux".into());
        labels.insert(ARCHITECTURE.into(), self.architecture.clone());
        if let Some(zone) = &self.zone {
            labels.insert("topology.kubernetes.io/zone".into(), zone.clone());
        }
        let mut room = json!({"cpu": self.cpu, "memory": self.memory, "pods": "110"});
        for (resource, count) in &self.devices {
            room[resource] = json!(count.to_string());
        }
        let (key, value) = MANAGED;
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels, "annotations": {key: value}},
            "spec": {"taints": self.taints},
            "status": {
                "capacity": room,
                "allocatable": room,
                "nodeInfo": {
                    "architecture": self.architecture, "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
                    "kubeProxyVersion": "", "kubeletVersion": kubelet_version, "machineID": "",
                    "operatingSystem": "linux", "osImage": "", "systemUUID": "",
                },
            },
        })
    }
}

pub(crate) async fn start(bed: &Testbed, built: &Built) -> Result<()> {
    let config = bed.folder.join("kwok.yaml");
    write(&config, &stages::render(built, &bed.kubelet_version)?)?;
    let port = bed.port()?;
    let (key, value) = MANAGED;
    let launch = Launch::new(built.program("kwok"))
        .path("--kubeconfig", bed.kubeconfig())
        .path("--config", &config)
        .arg("--manage-all-nodes=false")
        .arg(format!("--manage-nodes-with-annotation-selector={key}={value}"))
        // KWOK creates no Leases. A new node with the name of an old node would reuse the old Lease, the garbage collector would
        // delete this Lease as a dependent of the old node, and KWOK does not update a node without a Lease.
        .arg("--node-lease-duration-seconds=0")
        .arg("--enable-crds=")
        .arg(format!("--server-address=127.0.0.1:{port}"));
    bed.launch(Part::Kwok, launch)?;
    bed.listens(Part::Kwok, port).await?;
    // PVCs without a storage class are bound immediately, as on most clusters.
    let class = apply::documents(&built.asset("kustomize/stage/volume/fast/storage-class.yaml"))?;
    apply::apply_all(&bed.client().await?, &class).await
}

impl Testbed {
    /// Adds nodes and returns their names when all nodes are Ready and have lost the taint of new nodes.
    pub async fn add_nodes(&self, nodes: &Nodes) -> Result<Vec<String>> {
        let client = self.client().await?;
        let api: Api<Node> = Api::all(client.clone());
        let manifest = |name: String| ready_manifest(&name, nodes.manifest(&name, &self.kubelet_version));
        stream::iter(nodes.names().map(|name| create(&api, manifest(name))))
            .buffer_unordered(CONCURRENCY)
            .try_collect::<Vec<_>>()
            .await?;
        let names: Vec<_> = nodes.names().collect();
        self.nodes_are_ready(&client, &names).await?;
        Ok(names)
    }

    async fn nodes_are_ready(&self, client: &Client, names: &[String]) -> Result<()> {
        let api: Api<Node> = Api::all(client.clone());
        self.until(
            format!("{} new nodes to be Ready", names.len()),
            READY,
            async || {
                let listed = api
                    .list(&ListParams::default())
                    .await
                    .map_err(|error| error.to_string())?;
                let ready = listed.items.iter().filter(|node| is_ready(node));
                let ready = ready.filter(|node| {
                    node.metadata
                        .name
                        .as_ref()
                        .is_some_and(|name| names.contains(name))
                });
                let count = ready.count();
                if count == names.len() {
                    Ok(())
                } else {
                    Err(format!("{count} are"))
                }
            },
        )
        .await
    }

    /// Deletes nodes, as a cloud provider does when it removes machines.
    pub async fn remove_nodes(&self, names: &[String]) -> Result<()> {
        let api: Api<Node> = Api::all(self.client().await?);
        for name in names {
            let what = format!("deleting node {name}");
            api.delete(name, &DeleteParams::default())
                .await
                .map_err(Error::api(what))?;
        }
        Ok(())
    }
}

impl Testbed {
    /// Makes a node fail: KWOK stops to update the node, and the Ready condition becomes False here, so the control plane treats
    /// the node as failed.
    pub async fn fail_node(&self, node: &str) -> Result<()> {
        let api: Api<Node> = Api::all(self.client().await?);
        let what = || format!("silencing node {node}");
        let unmanaged = json!({"metadata": {"annotations": {MANAGED.0: null}}});
        let params = PatchParams::default();
        api.patch(node, &params, &Patch::Merge(unmanaged))
            .await
            .map_err(Error::api(what()))?;
        let condition = json!({"type": "Ready", "status": "False", "reason": "Silenced"});
        let status = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        api.patch_status(node, &params, &status)
            .await
            .map(drop)
            .map_err(Error::api(what()))
    }
}

impl Testbed {
    /// Makes KWOK update a failed node again, like a machine that has restarted.
    pub async fn recover_node(&self, node: &str) -> Result<()> {
        let api: Api<Node> = Api::all(self.client().await?);
        let managed = json!({"metadata": {"annotations": {MANAGED.0: MANAGED.1}}});
        api.patch(node, &PatchParams::default(), &Patch::Merge(managed))
            .await
            .map_err(Error::api(format!("reviving node {node}")))?;
        self.nodes_are_ready(&self.client().await?, &[node.to_owned()])
            .await
    }
}

/// The node with all changes that KWOK and the controller manager would otherwise write in ten steps, each of which is an event
/// for every watch of nodes. Only the taint is left to them. The autoscaler's nodes go through all steps.
fn ready_manifest(name: &str, mut manifest: Value) -> Value {
    let metadata = &mut manifest["metadata"];
    metadata["labels"][HOSTNAME] = json!(name);
    metadata["labels"]["beta.kubernetes.io/os"] = json!("linux");
    metadata["labels"]["beta.kubernetes.io/arch"] = metadata["labels"][ARCHITECTURE].clone();
    metadata["annotations"]["node.alpha.kubernetes.io/ttl"] = json!("0");
    // KWOK sends heartbeats for nodes in this phase.
    manifest["status"]["phase"] = json!("Running");
    manifest["status"]["conditions"] = json!([{"type": "Ready", "status": "True", "reason": "KubeletReady"}]);
    manifest
}

async fn create(api: &Api<Node>, manifest: Value) -> Result<()> {
    let name = manifest["metadata"]["name"].to_string();
    let what = format!("creating node {name}");
    let node: Node = serde_json::from_value(manifest).map_err(|error| Error::Manifest {
        file: PathBuf::from(name),
        problem: error.to_string(),
    })?;
    api.create(&PostParams::default(), &node)
        .await
        .map_err(Error::api(what))
        .map(drop)
}

/// Whether the node is Ready and without the taints of new nodes.
pub fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    ready && !taints.any(|taint| taint.key.starts_with("node.kubernetes.io/"))
}
