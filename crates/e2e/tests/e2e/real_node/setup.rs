//! A testbed with a registry, pod-affinity's image, and a real node.

use crate::real_node::images::{pull, push_program, push_sandbox, unpack};
use crate::support::pool;
use crate::support::ship_program::{BINARIES, BINARY, binaries, printed, ship, workspace};
use crate::support::usage::Counted;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use testbed::Options;

/// Timeout of waits that take seconds in a passing test. Only a failing test waits this long.
pub(crate) const SOON: Duration = Duration::from_mins(2);

/// The testbed and the images of a test.
pub(crate) struct NodeSetup {
    pub(crate) bed: Counted,
    /// An address such as `127.0.0.1:20012`.
    pub(crate) registry: String,
    /// The digest reference of pod-affinity's image, as `cargo ship` printed it.
    pub(crate) image: String,
    /// The binary in the image. All images are built from it, even if the sources change meanwhile.
    binary: Option<PathBuf>,
}

/// Starts everything except an installation.
pub(crate) async fn start(tekton: bool) -> NodeSetup {
    let options = Options {
        tekton,
        ..Options::default()
    };
    let bed = pool::start_exactly(options).await;
    let registry = bed.start_registry().await.expect("a registry");
    let mut setup = NodeSetup {
        bed,
        registry,
        image: String::new(),
        binary: std::env::var_os(BINARY).map(PathBuf::from),
    };
    let built = setup.ship(&["build"]);
    built.trim().clone_into(&mut setup.image);
    let pulled = pull(&setup.image).await;
    setup.binary = Some(unpack(&pulled, &setup.folder("shipped")));
    if tekton {
        setup.give_tekton_its_entrypoint().await;
    }
    let sandbox = push_sandbox(&setup.registry, &pulled).await;
    setup.bed.start_real_node(&sandbox).await.expect("a real node");
    setup
}

impl NodeSetup {
    /// Tekton's entrypoint image, which is a part of each pod, comes from the registry as well.
    async fn give_tekton_its_entrypoint(&self) {
        let program = self.bed.tekton_entrypoint().await.expect("Tekton's entrypoint");
        let image = push_program(&self.registry, "entrypoint", &program, "ko-app/entrypoint").await;
        self.bed.tekton_entrypoint_image(&image).await.expect("Tekton");
    }

    /// The output of `cargo ship`.
    pub(crate) fn ship(&self, arguments: &[&str]) -> String {
        let mut command = ship();
        command
            .args(arguments)
            .current_dir(workspace())
            .env("KO_DOCKER_REPO", &self.registry)
            .env("DOCKER_CONFIG", self.bed.folder())
            .envs(self.binary.iter().map(|binary| (BINARY, binary)));
        if let Some(binary) = &self.binary {
            command.env(BINARIES, binaries(self.folder("binaries"), binary));
        }
        printed(&self.output(command))
    }

    /// The output of kubectl.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("kubectl");
        command.args(arguments);
        printed(&self.output(command))
    }

    /// The output of a kubectl command whose answer may be no, which is a failure for kubectl.
    pub(crate) fn asked(&self, question: &[&str]) -> String {
        let mut command = Command::new("kubectl");
        command.args(question);
        String::from_utf8(self.output(command).stdout).unwrap()
    }

    fn output(&self, mut command: Command) -> Output {
        command
            .env("KUBECONFIG", self.bed.kubeconfig())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// A folder that is deleted with the testbed.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let folder = self.bed.folder().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }
}
