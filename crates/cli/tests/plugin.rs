//! The names and the archive of the plugin meet the rules of kubectl, krew and tkn.

#![allow(clippy::unwrap_used, reason = "all of this is tests")]

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const KUBECTL: &str = env!("CARGO_BIN_EXE_kubectl-pod_affinity");
const TKN: &str = env!("CARGO_BIN_EXE_tkn-pod-affinity");
const VARIABLES: [&str; 4] = ["VERSION", "HOMEPAGE", "DOWNLOADS", "SHA256"];

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn manifest() -> Value {
    serde_yaml::from_str(&fs::read_to_string(here("krew.yaml")).unwrap()).unwrap()
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap()
}

fn file_name(path: &str) -> &str {
    Path::new(path).file_name().unwrap().to_str().unwrap()
}

#[test]
fn the_file_names_are_those_that_kubectl_and_tkn_look_for() {
    let name = text(&manifest(), "/metadata/name").to_owned();
    assert_eq!(file_name(KUBECTL), format!("kubectl-{}", name.replace('-', "_")));
    assert_eq!(file_name(TKN), format!("tkn-{name}"));
    for (program, called) in [(KUBECTL, "kubectl pod-affinity"), (TKN, "tkn pod-affinity")] {
        let output = Command::new(program).args(["list", "-h"]).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(help.contains(&format!("Usage: {called} list")), "{help}");
    }
}

#[test]
fn krews_manifest_meets_krews_rules() {
    let manifest = manifest();
    assert_eq!(
        text(&manifest, "/apiVersion"),
        "krew.googlecontainertools.github.com/v1alpha2"
    );
    assert_eq!(text(&manifest, "/kind"), "Plugin");
    let short = text(&manifest, "/spec/shortDescription");
    assert!(
        short.len() <= 50 && !short.ends_with('.') && !short.contains("kubectl"),
        "{short}"
    );
    for platform in manifest["spec"]["platforms"].as_array().unwrap() {
        assert_eq!(text(platform, "/bin"), file_name(KUBECTL));
        let files: Vec<_> = platform["files"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| text(it, "/from"))
            .collect();
        assert_eq!(
            files,
            [file_name(KUBECTL), "LICENSE"],
            "krew wants the licence in the archive"
        );
        assert!(here("../..").join("LICENSE").is_file());
        assert_eq!(text(platform, "/selector/matchLabels/os"), "linux");
    }
}

#[test]
fn the_documentation_fills_in_every_variable_of_krews_manifest() {
    let manifest = fs::read_to_string(here("krew.yaml")).unwrap();
    let documentation = fs::read_to_string(here("../../docs/releasing.md")).unwrap();
    let used: Vec<_> = manifest
        .match_indices("${")
        .map(|(at, _)| &manifest[at + 2..])
        .collect();
    let mut used: Vec<_> = used.iter().filter_map(|rest| rest.split('}').next()).collect();
    used.sort_unstable();
    let mut known = VARIABLES;
    known.sort_unstable();
    assert_eq!(used, known);
    for variable in VARIABLES {
        assert!(documentation.contains(&format!("{variable}=")), "{variable}");
    }
}
