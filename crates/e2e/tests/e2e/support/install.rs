//! Installs a release with the commands of the documentation.

use super::SOON;
use super::cert_manager::configurations;
use super::cli::binary;
use super::kubectl::{call, file, kubectl, limited, parsed, printed, workspace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use placement::keys;
use runtime::install;
use std::path::{Path, PathBuf};
use std::process::Command;
use testbed::Testbed;
use testbed::product::Installed;
use testbed::runs::RunSpec;

/// A file of a release, and the folder of its manifests.
#[derive(Clone, Copy)]
pub(crate) struct Release {
    pub(crate) file: &'static str,
    pub(crate) folder: &'static str,
}

pub(crate) const WEBHOOK: Release = Release {
    file: "release.yaml",
    folder: "config",
};

pub(crate) const POLICIES: Release = Release {
    file: "release-policies.yaml",
    folder: "overlays/policies",
};

/// Executes commands as a reader of the page does: in a folder with the release, in a shell that stops at the first failure.
/// Returns the output.
pub(crate) async fn follow(bed: &Testbed, command: &str, run: &RunSpec) -> String {
    let plugins = plugins(bed, &binary().await);
    let path = std::env::var("PATH").unwrap();
    let mut shell = shell(bed, command, run);
    shell.env("PATH", format!("{}:{path}", plugins.display()));
    printed(&shell.output().unwrap())
}

/// A folder in which kubectl finds the plugin.
pub(crate) fn plugins(bed: &Testbed, binary: &Path) -> PathBuf {
    let folder = bed.folder().join("plugins");
    let link = folder.join("kubectl-pod_affinity");
    if !link.exists() {
        std::fs::create_dir_all(&folder).unwrap();
        std::os::unix::fs::symlink(binary, link).unwrap();
    }
    folder
}

pub(crate) fn shell(bed: &Testbed, command: &str, run: &RunSpec) -> Command {
    let mut shell = limited("bash");
    shell
        .args(["-euo", "pipefail", "-c", command])
        .current_dir(bed.folder())
        .env("KUBECONFIG", bed.kubeconfig())
        .env("NAMESPACE", run.namespace())
        .env("RUN", run.name());
    shell
}

/// Installs a release whose webhooks point to the testbed's processes. The Deployments are created as well, and KWOK
/// simulates their pods.
pub(crate) async fn install(bed: &Testbed, release: Release) -> Installed {
    let manifests = kubectl(bed, &["kustomize", release.folder]);
    let objects = parsed(&manifests.replace("ko://", "testbed.invalid/"));
    bed.install(objects, &[], async |objects| {
        let list = file(bed, "release", &objects);
        std::fs::rename(list, bed.folder().join(release.file)).unwrap();
        apply(bed, release);
        Ok(())
    })
    .await
    .unwrap()
}

pub(crate) fn apply(bed: &Testbed, release: Release) {
    let file = bed.folder().join(release.file);
    printed(&call(bed, "kubectl", &["apply", "-f", file.to_str().unwrap()]));
}

pub(crate) fn overlay(name: &str) -> PathBuf {
    workspace().join("overlays").join(name)
}

/// The overlay own-ca in a copy in which the user has put the certificate of a CA into certs/own-ca.
pub(crate) fn own_ca(folder: &Path, authority: &str) -> PathBuf {
    let copy = folder.join("copy");
    std::fs::create_dir_all(&copy).unwrap();
    let mut command = Command::new("cp");
    let folders = ["-r", "config", "certs", "overlays"];
    let copied = command.args(folders).arg(&copy).current_dir(workspace());
    printed(&copied.output().unwrap());
    std::fs::write(copy.join("certs/own-ca/ca.crt"), authority).unwrap();
    copy.join("overlays/own-ca")
}

/// The webhook configurations go with the namespace.
pub(crate) async fn until_owned(bed: &Testbed, client: &Client) {
    bed.until("an owner of the webhook configurations", SOON, async || {
        let mut owners = Vec::new();
        for name in [install::PIPELINE_RUN_WEBHOOK, install::POD_WEBHOOK] {
            let one = configurations(client).get(name).await.unwrap();
            owners.extend(one.metadata.owner_references.into_iter().flatten());
        }
        let is_ours = |owner: &OwnerReference| owner.kind == "Namespace" && owner.name == keys::NAMESPACE;
        if owners.len() == 2 && owners.iter().all(is_ours) {
            Ok(())
        } else {
            Err(owners)
        }
    })
    .await
    .unwrap();
}
