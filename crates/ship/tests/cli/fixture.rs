//! Helpers: the program, a small binary that needs no build, and a registry that rejects requests.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

pub(crate) const MANIFEST: &str = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: x # named\nspec:\n  containers:\n  - name: x\n    image: ko://pod-affinity # ko://pod-affinity\n";

/// A folder for a test, with all files that the program reads.
pub(crate) struct TestFolder(TempDir);

impl TestFolder {
    pub(crate) fn new() -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        home.write("binary", &static_elf());
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
        self.write("bin/kubectl", script.as_bytes());
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.path("bin/kubectl"), executable).unwrap();
        self
    }

    pub(crate) fn kubectl_input(&self) -> Option<String> {
        std::fs::read_to_string(self.path("kubectl-input")).ok()
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

/// The responses of a registry: to the first request for authentication, and to later requests.
pub(crate) struct Stub {
    pub(crate) version: &'static str,
    pub(crate) rest: &'static str,
}

pub(crate) const ANONYMOUS_ALLOWED: &str =
    "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
pub(crate) const AUTHENTICATE: &str = "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Basic realm=\"here\"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
pub(crate) const FORBIDDEN: &str =
    "HTTP/1.1 403 Forbidden\r\ncontent-length: 15\r\nconnection: close\r\n\r\nnot your branch";
pub(crate) const READ_ONLY: &str =
    "HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

impl Stub {
    /// Listens until the test ends, and returns the address.
    pub(crate) fn start(self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                let head = head(&mut connection);
                let answer = if head.starts_with("GET /v2/ ") {
                    self.version
                } else {
                    self.rest
                };
                connection.write_all(answer.as_bytes()).unwrap();
            }
        });
        address
    }
}

/// The head of a request; the first byte only for a TLS handshake.
fn head(connection: &mut impl Read) -> String {
    const GREETING: u8 = 22;
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && head != [GREETING] && connection.read(&mut byte).unwrap() == 1 {
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// Headers of an executable without an interpreter and libraries. The tests never start it, because it would crash.
fn static_elf() -> Vec<u8> {
    let mut file = vec![0; 64];
    file[..8].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0]);
    file[16..20].copy_from_slice(&[2, 0, 62, 0]);
    file
}

/// A loopback address without a listener.
pub(crate) fn closed_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
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
