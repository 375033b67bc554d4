//! Every failure is reported with its remedy, and nothing is printed to standard output.

use crate::fixture::{ADDRESSES, TestFolder};

fn resolved(home: &TestFolder, file: &str) -> String {
    let path = home.path(file);
    home.ship(&["resolve", "-f", path.to_str().unwrap()]).fails()
}

#[test]
fn without_a_repository_a_push_is_an_error() {
    let said = TestFolder::new().ship(&["build"]).fails();
    assert!(
        said.contains("KO_DOCKER_REPO is not set") && said.contains("--push=false"),
        "{said}"
    );
}

#[test]
fn a_file_with_invalid_yaml_is_an_error_with_its_line() {
    let home = TestFolder::new();
    home.write("bad.yaml", b"kind: [\n");
    let said = resolved(&home, "bad.yaml");
    assert!(said.contains("bad.yaml is not valid YAML"), "{said}");
}

#[test]
fn a_text_file_is_not_a_manifest() {
    let home = TestFolder::new();
    home.write("README.md", b"# Title\n\nWords.\n");
    let said = resolved(&home, "README.md");
    assert!(
        said.contains("contains a document that is not a Kubernetes object"),
        "{said}"
    );
}

#[test]
fn a_file_that_does_not_exist_is_named() {
    let said = resolved(&TestFolder::new(), "nowhere.yaml");
    assert!(
        said.contains("nowhere.yaml cannot be read: No such file"),
        "{said}"
    );
}

#[test]
fn an_unknown_image_is_refused_with_the_known_one() {
    let home = TestFolder::new();
    home.write(
        "other.yaml",
        b"apiVersion: v1\nkind: Pod\nspec: {image: ko://other}\n",
    );
    let said = resolved(&home, "other.yaml");
    assert!(
        said.contains("ko://other is unknown; the known image is ko://pod-affinity"),
        "{said}"
    );
}

#[test]
fn a_platform_that_this_machine_cannot_link_for_is_an_error_with_the_missing_compiler() {
    let home = TestFolder::new();
    let fake = home.with_program("aarch64-linux-gnu-gcc", "#!/bin/sh\nexit 1\n");
    let build = fake.ship(&["build", "--push=false", "--platform=linux/arm64"]);
    let said = build.without("POD_AFFINITY_SHIP_BINARY").fails();
    assert!(said.contains("aarch64-linux-gnu-gcc --version failed"), "{said}");
}

#[test]
fn a_release_is_written_only_into_an_empty_folder() {
    let home = TestFolder::new();
    home.write("out/mine", b"");
    let said = home.ship_release(&[]).fails();
    assert!(said.contains("is not empty") && said.contains("--out"), "{said}");
}

#[test]
fn an_invalid_version_is_an_error() {
    let said = TestFolder::new().ship(&["release", "1.2.3"]).output();
    assert_eq!(said.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&said.stderr).contains("write it as v1.2.3"));
}

#[test]
fn a_release_without_addresses_is_an_error_that_names_them() {
    let said = TestFolder::new().ship(&["release", "v1.2.3"]).output();
    assert_eq!(said.status.code(), Some(2));
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(
        said.contains("--downloads") && said.contains("--security-contact"),
        "{said}"
    );
}

fn checkout(home: &TestFolder, package: &str) {
    let manifest =
        format!("[package]\nname = \"{package}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n");
    home.write("other/Cargo.toml", manifest.as_bytes());
    home.write("other/src/lib.rs", b"");
}

#[test]
fn a_release_with_uncommitted_changes_is_an_error() {
    let home = TestFolder::new();
    checkout(&home, "pod-affinity");
    for arguments in [
        &["init", "--quiet"][..],
        &[
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@example.com",
            "commit",
            "--quiet",
            "--allow-empty",
            "--message=a",
        ],
    ] {
        let git = std::process::Command::new("git")
            .args(arguments)
            .current_dir(home.path("other"))
            .status();
        assert!(git.unwrap().success());
    }
    let said = home
        .ship(&[&["release", "v1.2.3"], &ADDRESSES[..]].concat())
        .within(&home.path("other"))
        .fails();
    assert!(said.contains("commit or stash the changes"), "{said}");
}

#[test]
fn a_release_without_a_commit_is_an_error() {
    let home = TestFolder::new();
    checkout(&home, "pod-affinity");
    let release = home.ship(&[&["release", "v1.2.3"], &ADDRESSES[..]].concat());
    let said = release.within(&home.path("other")).fails();
    assert!(said.contains("git cannot read the commit"), "{said}");
}

#[test]
fn another_folder_is_not_a_checkout() {
    let home = TestFolder::new();
    checkout(&home, "other");
    let build = home.ship(&["build", "--push=false"]).within(&home.path("other"));
    let said = build.fails();
    assert!(said.contains("has no package pod-affinity"), "{said}");
}
