//! One real node: a real kubelet with a real containerd, which pulls images and runs pods like any node.
//!
//! Both have their own mount and process namespaces (`node.sh`), led by a process of the testbed's group. Containers, their shims
//! and their mounts leave every process group, but end with this one process. Pods have addresses of a network that ends on this
//! machine, without routing and without kube-proxy. Pods that must reach the API server, or must be reachable, use the host
//! network.

mod settings;

use crate::binaries::{self, Built};
use crate::error::{Error, Result, write};
use crate::kwok;
use crate::part::{Launch, Part};
use crate::recipe::KUBELET;
use crate::testbed::{READY, Testbed, built};
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Name of the node.
pub const NAME: &str = crate::plane::REAL_NODE;

const SCRIPT: &str = include_str!("real_node/node.sh");
/// Flags of `unshare`, which creates the namespaces and ends the node with the process that requested them.
const UNSHARE: [&str; 5] = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
/// Programs that the script and the kubelet call. containerd finds its own helpers.
const PROGRAMS: [&str; 5] = [
    "containerd",
    "containerd-shim-runc-v2",
    "runc",
    "unshare",
    "mount",
];
/// Folders in which distributions install network plugins.
const PLUGIN_FOLDERS: [&str; 3] = ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];
const PLUGINS: [&str; 3] = ["loopback", "ptp", "host-local"];

/// The reason why this machine cannot have a real node, and the remedy; `None` if it can.
pub fn lacking() -> Option<String> {
    missing_rights()
        .or_else(missing_program)
        .or_else(missing_plugins)
        .or_else(refused_namespaces)
}

fn missing_rights() -> Option<String> {
    let is_root = rustix::process::getuid().is_root();
    (!is_root).then(|| "only root may run containers with containerd: run it as root".into())
}

fn missing_program() -> Option<String> {
    let program = PROGRAMS.iter().find(|program| !is_on_the_path(program))?;
    Some(format!(
        "{program} is not on the PATH: install containerd, runc and util-linux"
    ))
}

fn missing_plugins() -> Option<String> {
    let (plugins, folders) = (PLUGINS.join(", "), PLUGIN_FOLDERS.join(", "));
    plugin_folder().is_none().then(|| {
        format!("the network plugins {plugins} are in none of {folders}: install containernetworking-plugins")
    })
}

fn refused_namespaces() -> Option<String> {
    let mut tried = Command::new("unshare");
    let cause = match tried.args(UNSHARE).arg("true").stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => return None,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    Some(format!(
        "namespaces cannot be made here ({cause}): run it on a machine, or in a privileged container"
    ))
}

fn is_on_the_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn plugin_folder() -> Option<&'static Path> {
    let mut folders = PLUGIN_FOLDERS.iter().map(Path::new);
    folders.find(|folder| PLUGINS.iter().all(|plugin| folder.join(plugin).is_file()))
}

impl Testbed {
    /// Starts the node and returns when it is Ready. The container of `sandbox_image` holds a pod's namespaces: any image in a
    /// local registry that does nothing until it gets a signal.
    pub async fn start_real_node(&self, sandbox_image: &str) -> Result<()> {
        if !self.versions.are_defaults() {
            let versions = self.versions.to_string();
            return Err(Error::NoKubelet { versions });
        }
        let [kubelet] = built(|| binaries::ensure([&KUBELET])).await?;
        self.write_settings(sandbox_image)?;
        self.launch(Part::RealNode, self.real_node(&kubelet))?;
        self.real_node_is_ready().await
    }

    fn write_settings(&self, sandbox_image: &str) -> Result<()> {
        let plugins = plugin_folder().ok_or(Error::MissingTool {
            tool: "a network plugin",
            remedy: "see the reason in real_node::lacking",
        })?;
        let node = self.real_node_folder();
        let network = node.join("network");
        std::fs::create_dir_all(&network).map_err(Error::io("creating", &network))?;
        let containerd = settings::containerd(sandbox_image, plugins, &network);
        let kubelet = settings::kubelet(self.port()?, &self.control_group(), &self.plane.ca);
        write(&network.join("pods.conflist"), &settings::network())?;
        write(&node.join("containerd.toml"), &containerd)?;
        write(&node.join("kubelet.json"), &kubelet)?;
        write(&node.join("node.sh"), SCRIPT)
    }

    fn real_node(&self, kubelet: &Built) -> Launch {
        let node = self.real_node_folder();
        UNSHARE
            .iter()
            .fold(Launch::new("unshare"), |launch, flag| launch.arg(*flag))
            .arg("sh")
            .arg(node.join("node.sh").display().to_string())
            .arg(node.display().to_string())
            .arg(self.control_group())
            .arg(kubelet.program("kubelet").display().to_string())
            .path("--config", &node.join("kubelet.json"))
            .path("--kubeconfig", &self.plane.node)
            .arg(format!("--hostname-override={NAME}"))
    }

    async fn real_node_is_ready(&self) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client().await?);
        self.until("the real node to be Ready", READY, async || {
            let node = nodes.get(NAME).await.map_err(|error| error.to_string())?;
            if kwok::is_ready(&node) {
                Ok(())
            } else {
                Err(format!("{:?}", node.status.and_then(|status| status.conditions)))
            }
        })
        .await
    }

    /// The folder with the node's `/var/lib` and `/var/log`, under the same names.
    pub fn real_node_folder(&self) -> PathBuf {
        self.folder.join("node")
    }

    /// The first process in the namespaces of the node.
    pub fn real_node_process(&self) -> Option<u32> {
        let unshare = self.pid(Part::RealNode)?;
        let children = std::fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    }

    // The guard removes control groups with this name.
    fn control_group(&self) -> String {
        let name = self.folder.file_name().unwrap_or_default();
        name.display().to_string()
    }
}
