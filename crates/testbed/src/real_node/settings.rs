//! Settings of containerd, the kubelet and the pod network. All other settings have their defaults.

use serde_json::json;
use std::path::Path;

/// containerd's configuration.
pub(crate) fn containerd(sandbox_image: &str, plugins: &Path, network: &Path) -> String {
    let (plugins, network) = (plugins.display(), network.display());
    format!(
        r#"version = 2
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{sandbox_image}"
# The kubelet asks for scores that some containers and machines do not let it lower.
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{plugins}"
conf_dir = "{network}"
"#
    )
}

/// A pod network whose addresses are known only on this machine.
pub(crate) fn network() -> String {
    let ranges = json!([[{"subnet": "10.251.0.0/16"}]]);
    json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [{"type": "ptp", "ipMasq": false, "ipam": {"type": "host-local", "ranges": ranges}}],
    })
    .to_string()
}

/// The kubelet's configuration.
pub(crate) fn kubelet(port: u16, control_group: &str, ca: &Path) -> String {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "address": "127.0.0.1",
        "port": port,
        "healthzPort": 0,
        "authentication": {"x509": {"clientCAFile": ca}, "anonymous": {"enabled": false}},
        // The control groups of all containers are below one group, which the testbed's guard removes.
        "cgroupRoot": format!("/{control_group}"),
        "cgroupDriver": "cgroupfs",
        "enforceNodeAllocatable": [],
        // The machine may have an old kernel, swap, or a full disk.
        "failCgroupV1": false,
        "failSwapOn": false,
        "localStorageCapacityIsolation": false,
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%", "nodefs.inodesFree": "0%"},
        // The kubelet must not use or change the rules, DNS settings and folders of the machine.
        "makeIPTablesUtilChains": false,
        "resolvConf": "",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
    })
    .to_string()
}
