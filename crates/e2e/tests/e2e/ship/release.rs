//! A complete and signed release. It needs the standard library and a C compiler for arm64, and cargo-zigbuild.

use crate::ship::setup::{BINARY, ShipSetup, printed, setup, workspace};
use crate::support::pages::block;
use crate::support::ship_program::ADDRESSES;
use std::path::{Path, PathBuf};
use std::process::Command;

const PASSWORD: (&str, &str) = ("COSIGN_PASSWORD", "a password");
const GO_FLAGS: &str = "-mod=readonly -trimpath -buildvcs=false -gcflags=all=-dwarf=false";

/// Compiles cosign, and two programs for two platforms.
#[e2e_test(nightly)]
async fn a_signed_release_has_the_same_files_twice_and_a_changed_file_is_found() {
    let setup = setup().await;
    let keys = key_pair(&setup.folder("keys"));
    let (one, two) = (setup.folder("one"), setup.folder("two"));
    for folder in [&one, &two] {
        release(setup, folder, &keys);
    }
    let checksums = |folder: &Path| std::fs::read_to_string(folder.join("checksums.txt")).unwrap();
    assert_eq!(checksums(&one), checksums(&two));

    let public = keys.with_extension("pub");
    let verify = || {
        let arguments = ["verify", one.to_str().unwrap(), "--registry", "--key"];
        setup.ship(&[&arguments[..], &[public.to_str().unwrap()]].concat())
    };
    verify().prints();
    the_checks_of_the_page_pass(setup, &two, &public).await;
    std::fs::write(one.join("krew.yaml"), "").unwrap();
    let said = verify().refuses();
    assert!(
        said.contains("krew.yaml is not the file of the release"),
        "{said}"
    );
    std::fs::write(
        one.join("checksums.txt"),
        checksums(&one).replace("krew.yaml", "x"),
    )
    .unwrap();
    let said = verify().refuses();
    assert!(said.contains("cosign verify-blob failed"), "{said}");
}

async fn the_checks_of_the_page_pass(setup: &ShipSetup, folder: &Path, public: &Path) {
    std::fs::copy(public, folder.join("cosign.pub")).unwrap();
    let crane = testbed::crane().await.unwrap();
    let programs = format!(
        "crane() {{ \"{}\" \"$@\"; }}\ncosign() {{ \"{}\" \"$@\"; }}\ncd \"{}\"",
        crane.display(),
        go_tool(&["-n", "cosign"]).trim(),
        folder.display()
    );
    let checks = block("docs/releasing.md", "## Verify a release").replace(":0.1.0", ":9.8.7");
    setup.follow(&format!("{programs}\n{checks}"));
}

/// A command in the module of cosign, with the flags with which `cargo ship` builds cosign, so that Go builds cosign once.
fn go_tool(arguments: &[&str]) -> String {
    let mut go = Command::new("go");
    go.arg("tool")
        .args(arguments)
        .current_dir(workspace().join("hack/cosign"))
        .envs([PASSWORD, ("CGO_ENABLED", "0"), ("GOFLAGS", GO_FLAGS)]);
    printed(&go.output().unwrap())
}

fn key_pair(folder: &Path) -> PathBuf {
    let keys = folder.join("release");
    let prefix = keys.to_str().unwrap();
    go_tool(&["cosign", "generate-key-pair", "--output-key-prefix", prefix]);
    keys.with_extension("key")
}

fn release(setup: &ShipSetup, folder: &Path, key: &Path) {
    let arguments = [
        "release",
        "v9.8.7",
        "--push",
        "--key",
        key.to_str().unwrap(),
        "--out",
        folder.to_str().unwrap(),
    ];
    let release = setup.ship(&[&arguments[..], &ADDRESSES].concat());
    release.without(BINARY).env(PASSWORD.0, PASSWORD.1).prints();
}
