//! The program of the image for linux/arm64, which runs here in the emulator of qemu. It needs the standard library and a C compiler
//! for arm64, and qemu-aarch64-static.

use crate::ship::pulled::pull;
use crate::ship::setup::{BINARY, ShipSetup, printed, setup};
use crate::support::SOON;
use crate::support::pool;
use crate::support::runs::{create, nodes_of};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use testbed::runs::RunSpec;
use testbed::{Nodes, Options};

const EMULATOR: &str = "qemu-aarch64-static";

/// The controller, the webhook and the placeholder run in the emulator. The nodes are simulated, and have both architectures.
#[e2e_test(webhook, nightly)]
async fn the_program_for_arm64_runs_and_labelled_runs_are_on_nodes_of_both_architectures() {
    let setup = setup().await;
    let binary = for_arm64(setup);
    let version = Command::new(EMULATOR).arg(&binary).arg("--version").output();
    let expected = format!("pod-affinity {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(printed(&version.unwrap()), expected);
    super::image::ends_at_once_on_a_signal(Command::new(EMULATOR).arg(&binary));

    let options = Options {
        binary: Some(emulated(&setup.folder("arm64"), &binary)),
        ..Options::default()
    };
    let bed = pool::start(options).await;
    for architecture in ["amd64", "arm64"] {
        let nodes = Nodes::new(architecture, 2).architecture(architecture);
        bed.add_nodes(&nodes).await.unwrap();
    }
    bed.install_pod_affinity().await.unwrap();
    let runs = ["a", "b", "c", "d"].map(|name| {
        let run = RunSpec::new("default", name)
            .task("one", &[])
            .task("two", &["one"]);
        run.opted_in("true").lasting("5s")
    });
    for run in &runs {
        create(&bed, run).await;
    }
    let mut nodes = BTreeSet::new();
    for run in &runs {
        bed.until_succeeded(run, SOON).await.unwrap();
        let node = nodes_of(&bed, run).await;
        assert_eq!(node.len(), 1, "{node:?}");
        nodes.extend(node);
    }
    let all = ["amd64-0", "amd64-1", "arm64-0", "arm64-1"].map(str::to_owned);
    assert_eq!(nodes, all.into());
}

/// The program of the image for arm64, which is pushed and pulled.
fn for_arm64(setup: &ShipSetup) -> PathBuf {
    let build = setup.ship(&["build", "--platform=linux/arm64", "--tag=arm64"]);
    // Without optimisation, the emulated webhook would be too slow for the API server.
    let build = build.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3");
    let reference = build.without(BINARY).prints();
    let root = pull(&reference).unpacked(&setup.folder("arm64"));
    root.join("pod-affinity")
}

/// A script that runs the program in the emulator.
fn emulated(folder: &Path, binary: &Path) -> PathBuf {
    let script = folder.join("emulated");
    let content = format!("#!/bin/sh\nexec {EMULATOR} {} \"$@\"\n", binary.display());
    std::fs::write(&script, content).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    script
}
