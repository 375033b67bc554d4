//! The cluster autoscaler, with node groups of KWOK nodes.

use crate::apply;
use crate::binaries;
use crate::error::{Error, Result};
use crate::kwok::Nodes;
use crate::part::{Launch, Part};
use crate::probe;
use crate::recipe::CLUSTER_AUTOSCALER;
use crate::testbed::{READY, Testbed, built};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};

/// Label that assigns a node to a node group of the autoscaler.
pub const GROUP: &str = "testbed.pod-affinity.tekton.dev/group";
const NAMESPACE: &str = "kube-system";
/// Scan interval of the autoscaler. The default of 10 s would slow down tests.
pub const SCAN_INTERVAL: &str = "2s";

/// A group of equal nodes that the autoscaler can scale up and down.
#[derive(Clone, Debug)]
pub struct NodeGroup {
    /// Name of the group and prefix of the node names.
    pub name: String,
    /// Size and labels of the nodes; prefix and count are ignored.
    pub nodes: Nodes,
    /// Minimum number of nodes.
    pub min: usize,
    /// Maximum number of nodes.
    pub max: usize,
}

impl NodeGroup {
    /// A group that may have `min` to `max` nodes of 8 CPU and 32 GiB.
    pub fn new(name: &str, min: usize, max: usize) -> Self {
        Self {
            name: name.into(),
            nodes: Nodes::new(name, 0),
            min,
            max,
        }
    }

    /// Sets the size of the nodes.
    #[must_use]
    pub fn size(self, cpu: &str, memory: &str) -> Self {
        Self {
            nodes: self.nodes.size(cpu, memory),
            ..self
        }
    }

    fn template(&self, kubelet_version: &str) -> Value {
        let nodes = self.nodes.clone().label(GROUP, &self.name);
        let mut node = nodes.manifest(&self.name, kubelet_version);
        let key = |what: &str| format!("cluster-autoscaler.kwok.nodegroup/{what}-count");
        let annotations = &mut node["metadata"]["annotations"];
        annotations[key("min")] = json!(self.min.to_string());
        annotations[key("max")] = json!(self.max.to_string());
        annotations[key("desired")] = json!(self.min.to_string());
        node["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        node
    }
}

impl Testbed {
    /// Starts the autoscaler, creates the minimum number of nodes of each group, and waits until the autoscaler manages the nodes.
    pub async fn start_autoscaler(&self, groups: &[NodeGroup]) -> Result<()> {
        let [built] = built(|| binaries::ensure([&CLUSTER_AUTOSCALER])).await?;
        let client = self.client().await?;
        apply::apply_all(&client, &configuration(groups, &self.kubelet_version)).await?;
        for group in groups {
            self.first_nodes(group).await?;
        }
        let port = self.port()?;
        // A testbed has one autoscaler, so the port is set once.
        let port = *self.autoscaler_port.get_or_init(|| port);
        self.launch(
            Part::ClusterAutoscaler,
            self.autoscaler(built.program("cluster-autoscaler"), port),
        )?;
        self.until("cluster-autoscaler to be healthy", READY, async || {
            probe::get(port, "/health-check").await
        })
        .await
        .map(drop)
    }

    fn autoscaler(&self, program: std::path::PathBuf, port: u16) -> Launch {
        Launch::new(program)
            .env("POD_NAMESPACE", NAMESPACE)
            .env("KWOK_PROVIDER_MODE", "local")
            .env("KUBECONFIG", self.kubeconfig().display().to_string())
            .path("--kubeconfig", self.kubeconfig())
            .arg("--cloud-provider=kwok")
            .arg("--leader-elect=false")
            .arg(format!("--address=127.0.0.1:{port}"))
            .arg(format!("--scan-interval={SCAN_INTERVAL}"))
            // If two groups fit, the autoscaler adds the smaller node, which costs less.
            .arg("--expander=least-waste")
            .arg("--scale-down-delay-after-add=4s")
            .arg("--scale-down-delay-after-delete=1s")
            .arg("--scale-down-unneeded-time=4s")
            .arg("--scale-down-unready-time=4s")
            .arg("--unremovable-node-recheck-timeout=5s")
            .arg("--skip-nodes-with-system-pods=false")
    }

    async fn first_nodes(&self, group: &NodeGroup) -> Result<()> {
        let api: Api<Node> = Api::all(self.client().await?);
        for index in 0..group.min {
            let name = format!("{}-first-{index}", group.name);
            let mut manifest = group.template(&self.kubelet_version);
            manifest["metadata"]["name"] = json!(name);
            manifest["spec"]["providerID"] = json!(format!("kwok:{name}"));
            let node: Node = serde_json::from_value(manifest).map_err(|error| Error::Manifest {
                file: name.clone().into(),
                problem: error.to_string(),
            })?;
            let what = format!("creating node {name}");
            api.create(&PostParams::default(), &node)
                .await
                .map_err(Error::api(what))?;
        }
        self.until(
            format!("the first nodes of group {}", group.name),
            READY,
            async || {
                let names = self
                    .ready_nodes_of(&group.name)
                    .await
                    .map_err(|error| error.to_string())?;
                if names.len() >= group.min {
                    Ok(())
                } else {
                    Err(format!("{names:?}"))
                }
            },
        )
        .await
    }

    /// The metrics port of the autoscaler, if the autoscaler was started.
    pub fn autoscaler_port(&self) -> Option<u16> {
        self.autoscaler_port.get().copied()
    }

    /// Names of the Ready nodes of a group.
    pub async fn ready_nodes_of(&self, group: &str) -> Result<Vec<String>> {
        let api: Api<Node> = Api::all(self.client().await?);
        let selector = ListParams::default().labels(&format!("{GROUP}={group}"));
        let nodes = api
            .list(&selector)
            .await
            .map_err(Error::api(format!("listing the nodes of group {group}")))?;
        Ok(nodes
            .items
            .iter()
            .filter(|node| crate::kwok::is_ready(node))
            .map(ResourceExt::name_any)
            .collect())
    }
}

fn configuration(groups: &[NodeGroup], kubelet_version: &str) -> [Value; 2] {
    let config = json!({
        "apiVersion": "v1alpha1",
        "readNodesFrom": "configmap",
        "nodegroups": {"fromNodeLabelKey": GROUP},
        "nodes": {"skipTaint": true},
        "configmap": {"name": "kwok-provider-templates"},
    });
    let templates = groups.iter().map(|group| group.template(kubelet_version));
    let templates: Vec<_> = templates.collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": templates});
    let map = |name: &str, key: &str, value: &Value| {
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "data": {key: value.to_string()},
        })
    };
    [
        map("kwok-provider-config", "config", &config),
        map("kwok-provider-templates", "templates", &list),
    ]
}
