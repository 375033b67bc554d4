//! Installs a release with the commands of the documentation.

use super::cli::binary;
use super::kubectl::{call, file, kubectl, parsed, printed};
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
    let mut shell = Command::new("bash");
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
