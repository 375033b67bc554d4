//! kubectl as a user who installs pod-affinity calls it, with manifests whose webhooks point to the testbed's processes.

use serde::Deserialize;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use testbed::Testbed;

pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A command that fails after ten minutes, with all the processes that the command has started: kubectl waits for a silent API
/// server without limit.
pub(crate) fn limited(program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", "600", program]);
    command
}

/// A command with the kubeconfig of this cluster.
pub(crate) fn call(bed: &Testbed, program: &str, arguments: &[&str]) -> Output {
    let mut command = limited(program);
    command
        .args(arguments)
        .current_dir(workspace())
        .env("KUBECONFIG", bed.kubeconfig());
    command.output().unwrap()
}

/// Standard output of a command that must have succeeded.
pub(crate) fn printed(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn kubectl(bed: &Testbed, arguments: &[&str]) -> String {
    printed(&call(bed, "kubectl", arguments))
}

/// The objects that kustomize builds from a folder.
pub(crate) fn rendered(folder: &Path) -> Vec<Value> {
    testbed::apply::rendered(folder).unwrap()
}

pub(crate) fn parsed(yaml: &str) -> Vec<Value> {
    serde_yaml::Deserializer::from_str(yaml)
        .map(|document| Value::deserialize(document).unwrap())
        .collect()
}

/// Writes objects to a file for `kubectl -f`.
pub(crate) fn file(bed: &Testbed, name: &str, objects: &[Value]) -> String {
    let path = bed.folder().join(format!("{name}.json"));
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    std::fs::write(&path, list.to_string()).unwrap();
    path.into_os_string().into_string().unwrap()
}
