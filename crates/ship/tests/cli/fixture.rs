//! Helpers: the program, and small binaries that need no build.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

pub(crate) const MANIFEST: &str = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: x # named\nspec:\n  containers:\n  - name: x\n    image: ko://pod-affinity # ko://pod-affinity\n";

/// The addresses that every release needs.
pub(crate) const ADDRESSES: [&str; 6] = [
    "--repo=ghcr.io/me",
    "--downloads=https://example.com/downloads",
    "--homepage=https://example.com",
    "--source-repository=https://example.com/source",
    "--security-contact=mailto:security@example.com",
    "--maintainer=Ann <ann@example.com>",
];

/// A folder for a test, with all files that the program reads.
pub(crate) struct TestFolder(TempDir);

impl TestFolder {
    pub(crate) fn new() -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        home.write("binary", b"a program");
        for processor in ["amd64", "arm64"] {
            home.write(&format!("binaries/pod-affinity-{processor}"), b"a program");
            let plugin = format!("binaries/kubectl-pod_affinity-{processor}");
            home.write_program(&plugin, "#!/bin/sh\necho \"a script for $2\"\n");
        }
        home.write("pod.yaml", MANIFEST.as_bytes());
        std::fs::create_dir(home.path("docker")).unwrap();
        home
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) fn write(&self, name: &str, content: &[u8]) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// A kubectl that records its input and exits with this code. For `kustomize`, it prints the file `rendered` of that
    /// folder.
    pub(crate) fn with_kubectl(self, code: u8) -> Self {
        let written = self.path("kubectl-input");
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = version ] && exit 0\n\
             [ \"$1\" = kustomize ] && exec cat \"$2/rendered\"\n{{ echo \"$@\"; cat; }} >{}\nexit {code}\n",
            written.display()
        );
        self.write_program("bin/kubectl", &script);
        self
    }

    /// Puts a script in front of the PATH.
    pub(crate) fn with_program(self, name: &str, script: &str) -> Self {
        self.write_program(&format!("bin/{name}"), script);
        self
    }

    fn write_program(&self, name: &str, script: &str) {
        self.write(name, script.as_bytes());
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.path(name), executable).unwrap();
    }

    pub(crate) fn kubectl_input(&self) -> Option<String> {
        std::fs::read_to_string(self.path("kubectl-input")).ok()
    }

    /// Writes a release of this checkout into the folder `out`.
    pub(crate) fn release(&self, more: &[&str]) {
        self.ship_release(more).prints();
    }

    /// The command that writes a release of this checkout into the folder `out`.
    pub(crate) fn ship_release(&self, more: &[&str]) -> Ship {
        let out = self.path("out");
        let arguments = [
            "release",
            "v1.2.3",
            "--allow-dirty",
            "--out",
            out.to_str().unwrap(),
        ];
        self.ship(&[&arguments[..], &ADDRESSES, more].concat())
    }

    /// The program in the workspace, without credentials and kubeconfig of this machine.
    pub(crate) fn ship(&self, arguments: &[&str]) -> Ship {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ship"));
        let path = std::env::var("PATH").unwrap();
        command
            .args(arguments)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env_remove("KO_DOCKER_REPO")
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .env("DOCKER_CONFIG", self.path("docker"))
            .env("POD_AFFINITY_SHIP_BINARY", self.path("binary"))
            .env("POD_AFFINITY_SHIP_BINARIES", self.path("binaries"))
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .stdin(Stdio::null());
        Ship(command)
    }
}

/// A `ship` command.
pub(crate) struct Ship(Command);

impl Ship {
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.0.env(name, value);
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.0.env_remove(name);
        self
    }

    pub(crate) fn within(mut self, folder: &Path) -> Self {
        self.0.current_dir(folder);
        self
    }

    pub(crate) fn output(mut self) -> Output {
        self.0.output().unwrap()
    }

    /// The output, if the program succeeds.
    pub(crate) fn prints(self) -> String {
        let output = self.output();
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The last line of the errors, if the program fails and prints nothing to standard output.
    pub(crate) fn fails(self) -> String {
        let output = self.output();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(output.stdout.is_empty());
        said.lines().last().unwrap().to_owned()
    }
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Names of the files in a folder and its subfolders.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
