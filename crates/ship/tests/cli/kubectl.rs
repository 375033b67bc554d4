//! The input that kubectl gets, and the failures after which kubectl is not called.

use crate::fixture::{MANIFEST, TestFolder};

fn call(home: &TestFolder, verb: &str, files: &[&str], more: &[&str]) -> crate::fixture::Ship {
    let paths: Vec<_> = files
        .iter()
        .map(|file| home.path(file).into_os_string().into_string().unwrap())
        .collect();
    let files: Vec<_> = paths.iter().flat_map(|path| ["-f", path.as_str()]).collect();
    home.ship(&[&[verb], &files[..], more].concat())
}

#[test]
fn apply_passes_the_resolved_manifests_and_the_arguments() {
    let home = TestFolder::new().with_kubectl(0);
    let apply = call(
        &home,
        "apply",
        &["pod.yaml"],
        &["--push=false", "--", "--context", "a b"],
    );
    assert!(apply.output().status.success());
    let input = home.kubectl_input().unwrap();
    let (arguments, manifests) = input.split_once('\n').unwrap();
    assert_eq!(arguments, "apply -f - --context a b");
    assert!(
        manifests.contains("image: ko.local/pod-affinity@sha256:"),
        "{manifests}"
    );
}

#[test]
fn delete_needs_no_build_and_no_registry() {
    let home = TestFolder::new().with_kubectl(0);
    let delete = call(&home, "delete", &["pod.yaml"], &["--", "--wait=false"])
        .env("POD_AFFINITY_SHIP_BINARY", "/nowhere");
    assert!(delete.output().status.success());
    assert_eq!(
        home.kubectl_input().unwrap(),
        format!("delete --ignore-not-found -f - --wait=false\n{MANIFEST}")
    );
}

#[test]
fn a_kustomization_is_rendered_and_then_treated_as_any_manifest() {
    let home = TestFolder::new().with_kubectl(0);
    home.write("overlay/rendered", MANIFEST.as_bytes());
    let folder = home.path("overlay");
    let arguments = ["-k", folder.to_str().unwrap(), "--push=false"];
    let apply = call(&home, "apply", &[], &arguments);
    assert!(apply.output().status.success());
    let input = home.kubectl_input().unwrap();
    assert!(
        input.starts_with("apply -f -\n") && input.contains("image: ko.local/pod-affinity@sha256:"),
        "{input}"
    );
}

#[test]
fn a_kustomization_that_cannot_be_rendered_is_an_error_with_kubectls_message() {
    let home = TestFolder::new().with_kubectl(0);
    let said = call(&home, "apply", &[], &["-k", "/nowhere"]).fails();
    assert!(
        said.contains("the kustomization /nowhere cannot be rendered: kubectl kustomize failed: cat: ")
            && said.contains("rendered"),
        "{said}"
    );
    assert_eq!(home.kubectl_input(), None);
}

#[test]
fn kubectls_exit_code_is_passed_on() {
    let home = TestFolder::new().with_kubectl(7);
    let apply = call(&home, "apply", &["pod.yaml"], &["--push=false"]);
    assert_eq!(apply.output().status.code(), Some(7));
}

#[test]
fn after_one_bad_file_kubectl_is_not_called() {
    let home = TestFolder::new().with_kubectl(0);
    home.write("bad.yaml", b"kind: [\n");
    for verb in ["apply", "delete"] {
        let said = call(&home, verb, &["pod.yaml", "bad.yaml"], &[]).fails();
        assert!(said.contains("is not valid YAML"), "{said}");
    }
    assert_eq!(home.kubectl_input(), None);
}

#[test]
fn after_a_failed_build_kubectl_is_not_called() {
    let home = TestFolder::new().with_kubectl(0);
    let said = call(&home, "apply", &["pod.yaml"], &["--push=false"])
        .env("POD_AFFINITY_SHIP_BINARY", "/nowhere")
        .fails();
    assert!(said.contains("/nowhere cannot be read"), "{said}");
    assert_eq!(home.kubectl_input(), None);
}

#[test]
fn a_missing_kubectl_is_reported_before_the_build() {
    let home = TestFolder::new();
    let apply = call(&home, "apply", &["pod.yaml"], &[]).env("PATH", home.path("empty"));
    let said = apply.fails();
    assert!(
        said.contains("kubectl does not run") && said.contains("cargo ship resolve"),
        "{said}"
    );
}
