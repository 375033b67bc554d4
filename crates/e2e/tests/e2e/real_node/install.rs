//! Both ways to install pod-affinity, and both ways to uninstall it.

use crate::real_node::setup::{NodeSetup, SOON};
use crate::support::pages::block;
use crate::support::ship_program::{ADDRESSES, printed, workspace};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Patches for manifests on one node without a cluster network, each with its reason.
const ONE_NODE: &str = include_str!("one_node/kustomization.yaml");

/// A further patch: the processes run as a user that the image does not define, in the root group, as on OpenShift.
const AN_ASSIGNED_USER: &str = "
  - target: {kind: Deployment}
    patch: |
      - {op: add, path: /spec/template/spec/securityContext/runAsUser, value: 1000650000}
";

/// The Job of the component release-all on the network of the node, as `ONE_NODE` has the other processes.
const JOB_ON_ONE_NODE: &str = r#"
resources: [manifests.yaml]
patches:
  - target: {kind: Job}
    patch: |
      apiVersion: batch/v1
      kind: Job
      metadata:
        name: any
      spec:
        template:
          spec:
            hostNetwork: true
            containers:
              - name: release-all
                env:
                  - {name: KUBERNETES_SERVICE_HOST, value: 127.0.0.1}
                  - {name: KUBERNETES_SERVICE_PORT, value: "API_PORT"}
"#;

/// An installation.
pub(crate) struct Installation {
    manifests: PathBuf,
    /// The reference of pod-affinity's image in the manifests.
    pub(crate) image: String,
}

/// `cargo ship apply` of config/.
pub(crate) fn from_the_checkout(setup: &NodeSetup) -> Installation {
    let mut files: Vec<_> = std::fs::read_dir(workspace().join("config"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "yaml"))
        .collect();
    files.sort();
    let manifests: Vec<_> = files
        .iter()
        .map(|file| std::fs::read_to_string(file).unwrap())
        .collect();
    let manifests = for_one_node(setup, "checkout", &manifests.join("\n---\n"), "");
    setup.ship(&["apply", "--filename", manifests.to_str().unwrap()]);
    rolled_out(setup);
    Installation {
        manifests,
        image: setup.image.clone(),
    }
}

/// The release.yaml that `cargo ship release` wrote, with the image from the archive of the release, as docs/install.md has it.
pub(crate) fn from_a_release(setup: &NodeSetup) -> Installation {
    let folder = setup.folder("release");
    let out = folder.to_str().unwrap();
    let release = ["release", "v9.8.7", "--without-plugin", "--out", out];
    let unreachable = ["--repo=registry.invalid/team"];
    setup.ship(&[&release[..], &unreachable, &ADDRESSES].concat());
    load(setup, &folder.join("pod-affinity-image.tar"));
    let name_the_tag = block("docs/install.md", "## On kind").replace("v0.1.0", "v9.8.7");
    let shell = Command::new("sh")
        .args(["-euc", &name_the_tag])
        .current_dir(&folder)
        .output();
    printed(&shell.unwrap());
    let release = std::fs::read_to_string(folder.join("quick-start.yaml")).unwrap();
    let manifests = for_one_node(setup, "release", &release, AN_ASSIGNED_USER);
    setup.kubectl(&["apply", "--filename", manifests.to_str().unwrap()]);
    rolled_out(setup);
    Installation {
        manifests,
        image: "registry.invalid/team/pod-affinity:v9.8.7".to_owned(),
    }
}

/// Loads an archive into the node's containerd, as `kind load image-archive` does.
fn load(setup: &NodeSetup, archive: &Path) {
    let within = format!("--target={}", setup.bed.real_node_process().unwrap());
    let import = ["images", "import", "--all-platforms", "--digests"];
    let output = Command::new("nsenter")
        .args([&within, "--mount", "ctr", "--namespace=k8s.io"])
        .args(import)
        .arg(archive)
        .output();
    printed(&output.unwrap());
}

fn for_one_node(setup: &NodeSetup, name: &str, manifests: &str, more: &str) -> PathBuf {
    let folder = setup.folder(&format!("{name}-patched"));
    std::fs::write(folder.join("manifests.yaml"), manifests).unwrap();
    std::fs::write(folder.join("kustomization.yaml"), patches(setup) + more).unwrap();
    let patched = folder.join("patched.yaml");
    let manifests = setup.kubectl(&["kustomize", folder.to_str().unwrap()]);
    std::fs::write(&patched, manifests).unwrap();
    patched
}

fn with_api_port(setup: &NodeSetup, patches: &str) -> String {
    let server = "--output=jsonpath={.clusters[0].cluster.server}";
    let server = setup.kubectl(&["config", "view", server]);
    let (_, api) = server.rsplit_once(':').unwrap();
    patches.replace("API_PORT", api)
}

fn patches(setup: &NodeSetup) -> String {
    let with_api = with_api_port(setup, ONE_NODE);
    let words = ["WEBHOOK_PORT", "WEBHOOK_ADMIN", "CONTROLLER_ADMIN"];
    words.iter().fold(with_api, |patches, word| {
        patches.replace(word, &setup.bed.port().unwrap().to_string())
    })
}

/// Waits until all pods are Ready, with the command of docs/install.md.
fn rolled_out(setup: &NodeSetup) {
    for deployment in ["pod-affinity-webhook", "pod-affinity-controller"] {
        let deployment = format!("deployment/{deployment}");
        let namespace = "--namespace=tekton-pod-affinity";
        setup.kubectl(&[namespace, "rollout", "status", &deployment]);
    }
}

/// Executes the Job that the Helm chart has as a hook before a deletion, and waits until the Job has succeeded.
pub(crate) fn release_all(setup: &NodeSetup, installed: &Installation) {
    let folder = setup.folder("release-all");
    let component = workspace().join("config/components/release-all");
    let manifests = setup.kubectl(&["kustomize", component.to_str().unwrap()]);
    let manifests = manifests.replace("ko://pod-affinity", &installed.image);
    std::fs::write(folder.join("manifests.yaml"), manifests).unwrap();
    let kustomization = with_api_port(setup, JOB_ON_ONE_NODE);
    std::fs::write(folder.join("kustomization.yaml"), kustomization).unwrap();
    let folder = folder.to_str().unwrap();
    setup.kubectl(&["apply", "--kustomize", folder]);
    let job = ["--namespace=tekton-pod-affinity", "job/pod-affinity-release-all"];
    let wait = ["wait", "--for=condition=complete", "--timeout=120s"];
    setup.kubectl(&[&wait[..], &job].concat());
    setup.kubectl(&["delete", "--kustomize", folder]);
}

/// Deletes the manifests, and checks that no object with pod-affinity's name is left in any namespace or at cluster scope.
pub(crate) fn uninstall(setup: &NodeSetup, installed: &Installation) {
    let manifests = installed.manifests.to_str().unwrap();
    // The deletion of the namespace may delete an object before kubectl does.
    setup.kubectl(&["delete", "--ignore-not-found", "--filename", manifests]);
    let ours = "--selector=app.kubernetes.io/name=pod-affinity";
    let kinds = "namespaces,clusterroles,clusterrolebindings,mutatingwebhookconfigurations,statefulsets,pods";
    let left = setup.kubectl(&["get", kinds, ours, "--all-namespaces", "--output=name"]);
    assert_eq!(left, "");
}

/// Removes the controller's right to resize pods, as on an API server without the subresource.
pub(crate) async fn forbid_resize(setup: &NodeSetup) {
    let role = "clusterrole/pod-affinity-controller";
    let rules = setup.kubectl(&["get", role, "--output=jsonpath={.rules}"]);
    let mut rules: Vec<serde_json::Value> = serde_json::from_str(&rules).unwrap();
    rules.retain(|rule| rule["resources"] != serde_json::json!(["pods/resize"]));
    let patch = serde_json::json!({"rules": rules}).to_string();
    setup.kubectl(&["patch", role, "--type=merge", "--patch", &patch]);
    let account = "--as=system:serviceaccount:tekton-pod-affinity:pod-affinity-controller";
    let may = ["auth", "can-i", "patch", "pods", "--subresource=resize", account];
    let forbidden = setup.bed.until("resize to be forbidden", SOON, async || {
        let answer = setup.asked(&may);
        if answer.trim() == "no" {
            Ok(())
        } else {
            Err(answer)
        }
    });
    forbidden.await.unwrap();
}
