//! The input that kubectl gets, and the failures after which kubectl is not called.

use crate::fixture::{Home, MANIFEST, nobody};

fn call(home: &Home, verb: &str, files: &[&str], more: &[&str]) -> crate::fixture::Ship {
    let paths: Vec<_> = files
        .iter()
        .map(|file| home.path(file).into_os_string().into_string().unwrap())
        .collect();
    let files: Vec<_> = paths.iter().flat_map(|path| ["-f", path.as_str()]).collect();
    home.ship(&[&[verb], &files[..], more].concat())
}

#[test]
fn apply_hands_over_the_resolved_manifests_and_the_arguments() {
    let home = Home::new().with_kubectl(0);
    let apply = call(
        &home,
        "apply",
        &["pod.yaml"],
        &["--push=false", "--sbom=none", "--", "--context", "a b"],
    );
    assert!(apply.output().status.success());
    let heard = home.kubectl_heard().unwrap();
    let (arguments, manifests) = heard.split_once('\n').unwrap();
    assert_eq!(arguments, "apply -f - --context a b");
    assert!(
        manifests.contains("image: ko.local/pod-affinity@sha256:"),
        "{manifests}"
    );
}

#[test]
fn delete_needs_no_build_and_no_registry() {
    let home = Home::new().with_kubectl(0);
    let delete = call(&home, "delete", &["pod.yaml"], &["--", "--wait=false"])
        .env("POD_AFFINITY_SHIP_BINARY", "/nowhere");
    assert!(delete.output().status.success());
    assert_eq!(
        home.kubectl_heard().unwrap(),
        format!("delete --ignore-not-found -f - --wait=false\n{MANIFEST}")
    );
}

#[test]
fn a_kustomization_is_rendered_and_then_treated_as_any_manifest() {
    let home = Home::new().with_kubectl(0);
    home.write("overlay/rendered", MANIFEST.as_bytes());
    let folder = home.path("overlay");
    let arguments = ["-k", folder.to_str().unwrap(), "--push=false", "--sbom=none"];
    let apply = call(&home, "apply", &[], &arguments);
    assert!(apply.output().status.success());
    let heard = home.kubectl_heard().unwrap();
    assert!(
        heard.starts_with("apply -f -\n") && heard.contains("image: ko.local/pod-affinity@sha256:"),
        "{heard}"
    );
}

#[test]
fn a_kustomization_that_cannot_be_rendered_is_told_in_kubectls_words() {
    let home = Home::new().with_kubectl(0);
    let said = call(&home, "apply", &[], &["-k", "/nowhere"]).refuses();
    assert!(
        said.contains("cannot render the kustomization /nowhere: cat: ") && said.contains("rendered"),
        "{said}"
    );
    assert_eq!(home.kubectl_heard(), None);
}

#[test]
fn kubectls_exit_code_is_passed_on() {
    let home = Home::new().with_kubectl(7);
    let apply = call(&home, "apply", &["pod.yaml"], &["--push=false", "--sbom=none"]);
    assert_eq!(apply.output().status.code(), Some(7));
}

#[test]
fn one_bad_file_and_kubectl_hears_nothing() {
    let home = Home::new().with_kubectl(0);
    home.write("bad.yaml", b"kind: [\n");
    for verb in ["apply", "delete"] {
        let said = call(&home, verb, &["pod.yaml", "bad.yaml"], &[]).refuses();
        assert!(said.contains("is no YAML"), "{said}");
    }
    assert_eq!(home.kubectl_heard(), None);
}

#[test]
fn a_push_that_fails_and_kubectl_hears_nothing() {
    let home = Home::new().with_kubectl(0);
    let said = call(&home, "apply", &["pod.yaml"], &[])
        .env("KO_DOCKER_REPO", nobody())
        .refuses();
    assert!(said.contains("cannot be reached"), "{said}");
    assert_eq!(home.kubectl_heard(), None);
}

#[test]
fn a_missing_kubectl_is_told_before_anything_is_built() {
    let home = Home::new();
    let apply = call(&home, "apply", &["pod.yaml"], &[]).env("PATH", home.path("empty"));
    let said = apply.refuses();
    assert!(
        said.contains("kubectl does not run") && said.contains("cargo ship resolve"),
        "{said}"
    );
}
