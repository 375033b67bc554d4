//! KWOK: nodes that do not exist, and pods on them that behave as their annotations say.

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

pub use crate::stages::{DURATION, OUTCOME};

/// The annotation by which KWOK knows its nodes.
pub const MANAGED: (&str, &str) = ("kwok.x-k8s.io/node", "fake");
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Nodes made at the same time.
const CONCURRENCY: usize = 16;

/// Nodes to add.
#[derive(Clone, Debug)]
pub struct Nodes {
    /// Start of their names; a number follows.
    pub prefix: String,
    /// How many.
    pub count: usize,
    /// CPU, as a quantity.
    pub cpu: String,
    /// Memory, as a quantity.
    pub memory: String,
    /// Zone, if any.
    pub zone: Option<String>,
    /// More labels.
    pub labels: BTreeMap<String, String>,
    /// Taints.
    pub taints: Vec<Taint>,
    /// Devices, by the name of their resource.
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
            zone: None,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            devices: BTreeMap::new(),
        }
    }

    /// With another size.
    #[must_use]
    pub fn size(self, cpu: &str, memory: &str) -> Self {
        Self {
            cpu: cpu.into(),
            memory: memory.into(),
            ..self
        }
    }

    /// In a zone.
    #[must_use]
    pub fn zone(self, zone: &str) -> Self {
        Self {
            zone: Some(zone.into()),
            ..self
        }
    }

    /// With one more label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// With devices, and with the taint that keeps pods away which do not ask for one.
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

    /// The node of this name as KWOK and the autoscaler's templates take it. In-place resize is refused on nodes whose
    /// version does not look like a real one.
    pub(crate) fn manifest(&self, name: &str, kubelet_version: &str) -> Value {
        let mut labels = self.labels.clone();
        labels.insert("kubernetes.io/os".into(), "linux".into());
        labels.insert("kubernetes.io/arch".into(), "amd64".into());
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
                    "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
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
    let launch = Launch::of(built.program("kwok"))
        .path("--kubeconfig", bed.kubeconfig())
        .path("--config", &config)
        .arg("--manage-all-nodes=false")
        .arg(format!("--manage-nodes-with-annotation-selector={key}={value}"))
        // No leases. A node whose name another had before would share its lease, which the garbage collector takes as the
        // old node's, and KWOK leaves a node without one alone.
        .arg("--node-lease-duration-seconds=0")
        .arg("--enable-crds=")
        .arg(format!("--server-address=127.0.0.1:{port}"));
    bed.launch(Part::Kwok, launch)?;
    bed.listens(Part::Kwok, port).await?;
    // Claims without a class of their own get a volume at once, as on most clusters.
    let class = apply::documents(&built.asset("kustomize/stage/volume/fast/storage-class.yaml"))?;
    apply::apply_all(&bed.client().await?, &class).await
}

impl Testbed {
    /// Adds nodes, and returns their names once all are Ready and have lost the taint of new nodes.
    pub async fn add_nodes(&self, nodes: &Nodes) -> Result<Vec<String>> {
        let client = self.client().await?;
        let api: Api<Node> = Api::all(client.clone());
        let manifest = |name: String| at_work(&name, nodes.manifest(&name, &self.kubelet_version));
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

    /// Removes nodes, as a cloud does that takes them back.
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
    /// Makes a node fall silent: KWOK looks after it no longer, and the control plane takes it for dead, since it says so
    /// here.
    pub async fn silence(&self, node: &str) -> Result<()> {
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
    /// Has KWOK look after a node again that fell silent, as when a machine has restarted.
    pub async fn revive(&self, node: &str) -> Result<()> {
        let api: Api<Node> = Api::all(self.client().await?);
        let managed = json!({"metadata": {"annotations": {MANAGED.0: MANAGED.1}}});
        api.patch(node, &PatchParams::default(), &Patch::Merge(managed))
            .await
            .map_err(Error::api(format!("reviving node {node}")))?;
        self.nodes_are_ready(&self.client().await?, &[node.to_owned()])
            .await
    }
}

/// A node as one that has been there for a while: what KWOK and the controller manager would write on it, in ten steps that
/// everybody who watches nodes hears of, it has already. Only the taint is left to them. An autoscaler's nodes become so step by
/// step.
fn at_work(name: &str, mut manifest: Value) -> Value {
    let metadata = &mut manifest["metadata"];
    metadata["labels"][HOSTNAME] = json!(name);
    metadata["labels"]["beta.kubernetes.io/os"] = json!("linux");
    metadata["labels"]["beta.kubernetes.io/arch"] = json!("amd64");
    metadata["annotations"]["node.alpha.kubernetes.io/ttl"] = json!("0");
    // KWOK lets the heart of such a node beat.
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

/// Ready, and without the taints that new nodes carry.
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
