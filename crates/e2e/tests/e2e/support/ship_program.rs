//! The program `ship`, built as `cargo ship` builds it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread::JoinHandle;

/// Environment variable with the path of a binary that is shipped instead of a new build.
pub(crate) const BINARY: &str = "POD_AFFINITY_SHIP_BINARY";

/// Environment variable with the folder of the binaries that a release ships instead of a new build.
pub(crate) const BINARIES: &str = "POD_AFFINITY_SHIP_BINARIES";

/// Puts the binary into a folder for [`BINARIES`], beside a file that no arm64 processor can run, and returns the folder.
pub(crate) fn binaries(folder: PathBuf, binary: &Path) -> PathBuf {
    let link = folder.join("pod-affinity-amd64");
    if !link.exists() {
        std::os::unix::fs::symlink(binary, link).unwrap();
    }
    std::fs::write(folder.join("pod-affinity-arm64"), "no program").unwrap();
    folder
}

/// Arguments that every release needs, except its repository.
pub(crate) const ADDRESSES: [&str; 6] = [
    "--allow-dirty",
    "--downloads=https://example.com/downloads",
    "--homepage=https://example.com",
    "--source-repository=https://example.com/source",
    "--security-contact=mailto:security@example.com",
    "--maintainer=Ann <ann@example.com>",
];
/// Arguments that leave out the parts of a release that take long to build.
pub(crate) const ON_THIS_PROCESSOR: [&str; 2] = ["--without-plugin", "--platform=linux/amd64"];

/// Writes a release below the folder, with an image that contains only the version, and returns the folder of the release.
pub(crate) fn released(below: &Path, version: &str) -> PathBuf {
    let (out, binaries) = (below.join(version), below.join("binaries"));
    std::fs::create_dir_all(&binaries).unwrap();
    std::fs::write(binaries.join("pod-affinity-amd64"), version).unwrap();
    let mut ship = Command::new(program());
    ship.args(["release", version, "--repo=registry.invalid/team"])
        .args(ADDRESSES)
        .args(ON_THIS_PROCESSOR)
        .arg("--out")
        .arg(&out)
        .env(BINARIES, &binaries)
        .current_dir(workspace());
    printed(&ship.output().unwrap());
    out
}

/// Standard output of a command that must have succeeded.
pub(crate) fn printed(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// The program, built once.
pub(crate) fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args([
                "build",
                "--quiet",
                "--bin=ship",
                "--message-format=json-render-diagnostics",
            ])
            .current_dir(workspace())
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        let messages = printed(&output);
        let artifacts = messages
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let mut executables =
            artifacts.filter_map(|artifact| artifact["executable"].as_str().map(PathBuf::from));
        executables.next_back().expect("cargo to name the executable")
    })
}

/// A `ship` command that compiles the program without optimisation: on a fresh machine, an optimised build takes longer than all
/// tests. A nightly test, `ship::image::the_image_as_it_is_shipped_...`, compiles the program with the settings of a release.
pub(crate) fn ship() -> Command {
    quickly(Command::new(program()))
}

fn quickly(mut ship: Command) -> Command {
    ship.env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "256");
    ship
}

/// Compiles the release while other tests run, with a lower priority and one crate at a time, so that the tests are not
/// starved. Tests that ship the release wait for cargo's lock, and then find the release compiled.
pub(crate) fn compile_release_ahead() -> JoinHandle<()> {
    std::thread::spawn(|| {
        let mut gives_way = Command::new("nice");
        gives_way.args(["-n", "10"]).arg(program());
        let compile = quickly(gives_way)
            .args(["build", "--push=false"])
            .env("CARGO_BUILD_JOBS", "1")
            .current_dir(workspace())
            .stdin(Stdio::null())
            .output();
        // Errors are ignored: the tests that ship the release compile it as well, and report the error.
        drop(compile);
    })
}
