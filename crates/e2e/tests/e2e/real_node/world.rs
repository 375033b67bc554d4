//! A testbed with a registry, the image in it, and the real node.

use crate::real_node::images::{pull, push_program, push_sandbox, unpack};
use crate::support::pool;
use crate::support::ship_program::{BINARY, printed, ship, workspace};
use crate::support::usage::Counted;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use testbed::Options;

/// Longest wait for anything that should take seconds; only a failing test takes this long.
pub(crate) const SOON: Duration = Duration::from_mins(2);

/// What the test works with.
pub(crate) struct World {
    pub(crate) bed: Counted,
    /// Such as `127.0.0.1:20012`.
    pub(crate) registry: String,
    /// Our image, by its digest, as `cargo ship` printed it.
    pub(crate) image: String,
    /// What is in it: all is shipped from this one, whatever becomes of the sources meanwhile.
    binary: Option<PathBuf>,
}

/// Everything but an installation.
pub(crate) async fn start(tekton: bool) -> World {
    let options = Options {
        tekton,
        ..Options::default()
    };
    let bed = pool::start_exactly(options).await;
    let registry = bed.start_registry().await.expect("a registry");
    let mut world = World {
        bed,
        registry,
        image: String::new(),
        binary: std::env::var_os(BINARY).map(PathBuf::from),
    };
    let built = world.ship(&["build", "--sbom=none"]);
    built.trim().clone_into(&mut world.image);
    let pulled = pull(&world.image).await;
    world.binary = Some(unpack(&pulled, &world.folder("shipped")));
    if tekton {
        world.give_tekton_its_entrypoint().await;
    }
    let sandbox = push_sandbox(&world.registry, &pulled).await;
    world.bed.start_real_node(&sandbox).await.expect("a real node");
    world
}

impl World {
    /// Tekton's own part of each pod comes from the registry, too.
    async fn give_tekton_its_entrypoint(&self) {
        let program = self.bed.tekton_entrypoint().await.expect("Tekton's entrypoint");
        let image = push_program(&self.registry, "entrypoint", &program, "ko-app/entrypoint").await;
        self.bed.tekton_entrypoint_image(&image).await.expect("Tekton");
    }

    /// What `cargo ship` prints.
    pub(crate) fn ship(&self, arguments: &[&str]) -> String {
        let mut command = ship();
        command
            .args(arguments)
            .current_dir(workspace())
            .env("KO_DOCKER_REPO", &self.registry)
            .env("DOCKER_CONFIG", self.bed.folder())
            .envs(self.binary.iter().map(|binary| (BINARY, binary)));
        printed(&self.output(command))
    }

    /// What kubectl prints.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("kubectl");
        command.args(arguments);
        printed(&self.output(command))
    }

    /// What kubectl prints to a question whose answer may be no, which it calls a failure.
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

    /// A folder that goes with the testbed.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let folder = self.bed.folder().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }
}
