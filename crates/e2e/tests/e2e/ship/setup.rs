//! The program, a registry and an API server, which all tests of this binary share.

use crate::ship::pulled::pull;
use crate::support::pool;
pub(crate) use crate::support::ship_program::{BINARY, printed, workspace};
use crate::support::ship_program::{program, ship};
use crate::support::usage::Counted;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use testbed::Options;
use tokio::sync::OnceCell;

/// The environment that the tests share.
pub(crate) struct ShipSetup {
    pub(crate) bed: Counted,
    /// An address such as `127.0.0.1:20012`.
    pub(crate) registry: String,
    /// The image that was built and pushed first.
    pub(crate) reference: String,
    pub(crate) binary: PathBuf,
}

/// An API server and a registry with the image, without Tekton.
pub(crate) async fn setup() -> &'static ShipSetup {
    static WORLD: OnceCell<ShipSetup> = OnceCell::const_new();
    WORLD.get_or_init(start).await
}

async fn start() -> ShipSetup {
    let options = Options {
        tekton: false,
        ..Options::default()
    };
    let bed = pool::start(options).await;
    let registry = bed.start_registry().await.expect("a registry");
    let mut setup = ShipSetup {
        bed,
        registry,
        reference: String::new(),
        binary: PathBuf::new(),
    };
    let build = setup.ship(&["build"]);
    let build = match std::env::var_os(BINARY) {
        Some(given) => build.env(BINARY, given),
        None => build.without(BINARY),
    };
    build.prints().trim().clone_into(&mut setup.reference);
    setup.binary = pull(&setup.reference)
        .unpacked(&setup.folder("first"))
        .join("pod-affinity");
    setup
}

impl ShipSetup {
    /// A folder for a test, which is deleted with the testbed.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let folder = self.bed.folder().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// A `ship` command with this registry, this cluster and the first binary, without credentials.
    pub(crate) fn ship(&self, arguments: &[&str]) -> Ship {
        let mut command = ship();
        command.args(arguments);
        self.here(command)
    }

    /// Executes commands of a page in a shell that stops at the first failure. `cargo ship` is the built program, and the
    /// page's registry is this one.
    pub(crate) fn follow(&self, commands: &str) {
        let commands = commands.replace("registry.example.com/team", &self.registry);
        let mut shell = Command::new("bash");
        shell
            .args(["-euo", "pipefail", "-c"])
            .arg(format!("cargo() {{ \"$SHIP\" \"${{@:2}}\"; }}\n{commands}"))
            .env("SHIP", program());
        self.here(shell).prints();
    }

    fn here(&self, mut command: Command) -> Ship {
        command
            .current_dir(workspace())
            .env("KO_DOCKER_REPO", &self.registry)
            .env("KUBECONFIG", self.bed.kubeconfig())
            .env("DOCKER_CONFIG", self.folder("docker"))
            .env(BINARY, &self.binary)
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        Ship(command)
    }
}

/// A `ship` command.
pub(crate) struct Ship(Command);

impl Ship {
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.0.env(name, value);
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.0.env_remove(name);
        self
    }

    pub(crate) fn output(mut self) -> Output {
        self.0.output().unwrap()
    }

    /// The output, if the program succeeds.
    pub(crate) fn prints(self) -> String {
        printed(&self.output())
    }

    /// The last line of the errors, if the program fails and prints nothing to standard output.
    pub(crate) fn refuses(self) -> String {
        let output = self.output();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
        said.lines().last().unwrap().to_owned()
    }
}
