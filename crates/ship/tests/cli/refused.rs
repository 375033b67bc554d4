//! Every failure is reported with its remedy, and nothing is printed to standard output.

use crate::fixture::{FORBIDDEN, Home, OPEN, READ_ONLY, Stub, WHO, nobody};

fn pushed(home: &Home, repository: &str) -> String {
    home.ship(&["build", "--sbom=none"])
        .env("KO_DOCKER_REPO", repository)
        .refuses()
}

fn resolved(home: &Home, file: &str) -> String {
    let path = home.path(file);
    home.ship(&["resolve", "-f", path.to_str().unwrap()]).refuses()
}

#[test]
fn without_a_repository_there_is_nowhere_to_push() {
    let said = Home::new().ship(&["build"]).refuses();
    assert!(
        said.contains("KO_DOCKER_REPO is not set") && said.contains("--push=false"),
        "{said}"
    );
}

#[test]
fn an_unreachable_registry_is_told_before_anything_is_built() {
    let home = Home::new();
    let build = home
        .ship(&["build"])
        .env("KO_DOCKER_REPO", nobody())
        .env("POD_AFFINITY_SHIP_BINARY", "/nowhere");
    let said = build.refuses();
    assert!(said.contains("cannot be reached (Connection refused"), "{said}");
}

#[test]
fn a_registry_that_wants_to_know_who_we_are_sends_us_to_docker_login() {
    let stub = Stub {
        version: WHO,
        rest: WHO,
    };
    let said = pushed(&Home::new(), &stub.start());
    assert!(
        said.contains("requires authentication") && said.contains("docker login 127.0.0.1:"),
        "{said}"
    );
}

#[test]
fn a_wrong_password_is_told_from_none() {
    let (home, address) = (
        Home::new(),
        Stub {
            version: WHO,
            rest: WHO,
        }
        .start(),
    );
    let config = format!(r#"{{"auths": {{"{address}": {{"auth": "bWU6c2VjcmV0"}}}}}}"#);
    home.write("docker/config.json", config.as_bytes());
    let said = pushed(&home, &address);
    assert!(
        said.contains("does not accept the credentials in") && !said.contains("secret"),
        "{said}"
    );
}

#[test]
fn a_push_without_the_right_to_is_refused_with_the_registrys_words() {
    let (home, address) = (
        Home::new(),
        Stub {
            version: WHO,
            rest: FORBIDDEN,
        }
        .start(),
    );
    let config = format!(r#"{{"auths": {{"{address}": {{"auth": "bWU6c2VjcmV0"}}}}}}"#);
    home.write("docker/config.json", config.as_bytes());
    let said = pushed(&home, &address);
    assert!(
        said.contains("does not let you push there (403: not your branch)"),
        "{said}"
    );
}

#[test]
fn a_read_only_registry_is_told() {
    let said = pushed(
        &Home::new(),
        &Stub {
            version: OPEN,
            rest: READ_ONLY,
        }
        .start(),
    );
    assert!(said.contains("takes no pushes at all (405)"), "{said}");
}

#[test]
fn plain_http_to_another_machine_must_be_asked_for() {
    // 0.0.0.0 connects to this machine, but it is not a loopback address.
    let address = Stub {
        version: OPEN,
        rest: READ_ONLY,
    }
    .start()
    .replace("127.0.0.1", "0.0.0.0");
    let home = Home::new();
    let said = pushed(&home, &address);
    assert!(
        said.contains("cannot be reached") && said.contains("add --insecure-registry"),
        "{said}"
    );
    let insecure = home
        .ship(&["build", "--sbom=none", "--insecure-registry"])
        .env("KO_DOCKER_REPO", &address);
    let said = insecure.refuses();
    assert!(said.contains("takes no pushes at all (405)"), "{said}");
}

#[test]
fn a_file_that_is_no_yaml_is_refused_with_its_line() {
    let home = Home::new();
    home.write("bad.yaml", b"kind: [\n");
    let said = resolved(&home, "bad.yaml");
    assert!(said.contains("bad.yaml is no YAML (line "), "{said}");
}

#[test]
fn a_text_is_no_manifest() {
    let home = Home::new();
    home.write("README.md", b"# Title\n\nWords.\n");
    let said = resolved(&home, "README.md");
    assert!(
        said.contains("holds something else than Kubernetes objects"),
        "{said}"
    );
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let said = resolved(&Home::new(), "nowhere.yaml");
    assert!(
        said.contains("there is no ") && said.contains("nowhere.yaml"),
        "{said}"
    );
}

#[test]
fn an_unknown_image_is_refused_with_the_known_one() {
    let home = Home::new();
    home.write(
        "other.yaml",
        b"apiVersion: v1\nkind: Pod\nspec: {image: ko://other}\n",
    );
    let said = resolved(&home, "other.yaml");
    assert!(
        said.contains("nothing here builds ko://other; known is ko://pod-affinity"),
        "{said}"
    );
}

#[test]
fn a_dynamic_binary_is_refused_since_nothing_else_is_in_the_image() {
    let build = Home::new()
        .ship(&["build", "--push=false"])
        .env("POD_AFFINITY_SHIP_BINARY", env!("CARGO_BIN_EXE_ship"));
    let said = build.refuses();
    assert!(
        said.contains("linked dynamically") && said.contains("crt-static"),
        "{said}"
    );
}

#[test]
fn a_platform_that_this_machine_cannot_build_for_is_refused_with_what_is_missing() {
    let flags = ["build", "--push=false", "--platform=linux/arm64", "--libc=musl"];
    // On a machine with this toolchain, the build would succeed, and the test would fail.
    let said = Home::new()
        .ship(&flags)
        .without("POD_AFFINITY_SHIP_BINARY")
        .refuses();
    assert!(said.contains("aarch64-unknown-linux-musl"), "{said}");
}

#[test]
fn a_version_that_is_none_is_refused() {
    let said = Home::new().ship(&["release", "1.2.3"]).output();
    assert_eq!(said.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&said.stderr).contains("write it as v1.2.3"));
}

fn checkout(home: &Home, package: &str) {
    let manifest =
        format!("[package]\nname = \"{package}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n");
    home.write("other/Cargo.toml", manifest.as_bytes());
    home.write("other/src/lib.rs", b"");
}

#[test]
fn a_release_of_what_differs_from_its_commit_is_refused() {
    let home = Home::new();
    checkout(&home, "pod-affinity");
    let git = std::process::Command::new("git")
        .args(["init", "--quiet"])
        .current_dir(home.path("other"))
        .status();
    assert!(git.unwrap().success());
    let said = home
        .ship(&["release", "v1.2.3", "--push=false"])
        .within(&home.path("other"))
        .refuses();
    assert!(said.contains("commit or stash the changes"), "{said}");
}

#[test]
fn a_foreign_folder_is_no_checkout() {
    let home = Home::new();
    checkout(&home, "other");
    let build = home.ship(&["build", "--push=false"]).within(&home.path("other"));
    let said = build.refuses();
    assert!(said.contains("has no package pod-affinity"), "{said}");
}
