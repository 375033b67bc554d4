//! helm as a user calls it, with charts that `cargo ship release` wrote.

use super::kubectl::{parsed, printed};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use testbed::product::NAMESPACE;
use testbed::{Helm, Testbed};

/// A chart, and helm.
pub(crate) struct Chart {
    helm: PathBuf,
    archive: PathBuf,
}

/// The chart in the folder of a release.
pub(crate) async fn chart(helm: Helm, release: &Path, version: &str) -> Chart {
    Chart {
        helm: helm.path().await.unwrap(),
        archive: release.join(format!("pod-affinity-{version}.tgz")),
    }
}

impl Chart {
    /// Calls helm with the chart as the last argument.
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        printed(&self.call(arguments))
    }

    fn call(&self, arguments: &[&str]) -> Output {
        let mut helm = Command::new(&self.helm);
        helm.args(arguments).arg(&self.archive).output().unwrap()
    }

    fn rendered(&self, values: &Value, namespace: &str) -> Output {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, values.to_string()).unwrap();
        let path = file.path().to_str().unwrap();
        self.call(&[
            "template",
            "pod-affinity",
            "--namespace",
            namespace,
            "--values",
            path,
        ])
    }

    pub(crate) fn template(&self, values: &Value) -> String {
        printed(&self.rendered(values, NAMESPACE))
    }

    pub(crate) fn objects(&self, values: &Value) -> Vec<Value> {
        parsed(&self.template(values))
    }

    /// The error of helm, which must fail.
    pub(crate) fn rejected(&self, values: &Value, namespace: &str) -> String {
        let output = self.rendered(values, namespace);
        assert!(!output.status.success(), "{values}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Gives the chart a name in the folder in which [`shell`] executes commands.
    pub(crate) fn named(&self, bed: &Testbed, name: &str) {
        std::os::unix::fs::symlink(&self.archive, bed.folder().join(name)).unwrap();
    }
}

/// A shell that executes commands of a page with this version of helm, and stops at the first failure.
pub(crate) async fn shell(bed: &Testbed, helm: Helm, commands: &str) -> Command {
    let helm = helm.path().await.unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut shell = Command::new("bash");
    shell
        .args(["-euo", "pipefail", "-c", commands])
        .current_dir(bed.folder())
        .env("KUBECONFIG", bed.kubeconfig())
        .env("PATH", format!("{}:{path}", helm.parent().unwrap().display()));
    shell
}
