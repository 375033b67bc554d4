use super::*;
use serde_yaml::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn source(name: &str) -> String {
    fs::read_to_string(root().join("chart").join(name)).unwrap()
}

/// The rows of the table: each value with its default and the comment above it.
fn table(values: &str) -> String {
    let (mut parent, mut comment, mut rows) = (String::new(), Vec::new(), Vec::new());
    for line in values.lines() {
        if let Some(words) = line.trim().strip_prefix("# ") {
            comment.push(words);
        } else if let Some((key, value)) = line.trim().split_once(':') {
            if !line.starts_with(' ') {
                parent.clear();
            }
            match value.trim() {
                "" => parent = format!("{key}."),
                default => {
                    rows.push(format!(
                        "| `{parent}{key}` | `{default}` | {} |\n",
                        comment.join(" ")
                    ));
                }
            }
            comment.clear();
        }
    }
    rows.concat()
}

#[test]
fn the_readme_has_the_comments_of_the_values() {
    let rows = table(&source("values.yaml"));
    assert!(rows.lines().count() > 20 && !rows.contains("|  |"), "{rows}");
    assert!(
        source("README.md").contains(&rows),
        "the table of chart/README.md should be:\n{rows}"
    );
}

/// The documented keys of a ConfigMap: those of its data, or of its example.
fn keys(manifest: &str) -> BTreeSet<String> {
    let manifest: Value = serde_yaml::from_str(&fs::read_to_string(root().join(manifest)).unwrap()).unwrap();
    let example = manifest["data"]["_example"].as_str();
    let data = example.map_or_else(
        || manifest["data"].clone(),
        |text| serde_yaml::from_str(text).unwrap(),
    );
    names(&data)
}

fn names(mapping: &Value) -> BTreeSet<String> {
    let keys = mapping.as_mapping().unwrap().keys();
    keys.map(|key| key.as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_schema_has_each_value_and_each_key_of_the_configuration() {
    let schema: Value = serde_yaml::from_str(&source("values.schema.json")).unwrap();
    let values: Value = serde_yaml::from_str(&source("values.yaml")).unwrap();
    let mut known = names(&schema["properties"]);
    known.remove("global");
    assert_eq!(known, names(&values));
    let config = |of: &Value| names(&of["properties"]["config"]["properties"]);
    assert_eq!(config(&schema), keys("config/300-config-pod-affinity.yaml"));
    for (value, manifest) in [
        (
            "guardrails",
            "config/components/guardrails/config-guardrails.yaml",
        ),
        (
            "reservedLabel",
            "config/components/reserved-label/config-reserved-label.yaml",
        ),
    ] {
        assert_eq!(config(&schema["properties"][value]), keys(manifest));
    }
}

#[test]
fn a_chart_has_the_version_and_the_image_and_the_objects_of_each_variant() {
    let version = Version::parse("v1.2.3").unwrap();
    let mut chart = Chart::new(&root(), &version, "ghcr.io/me/pod-affinity@sha256:0").unwrap();
    chart.describe("home: https://example.com\n");
    let file = |name: &str| serde_yaml::from_str::<Value>(&chart.0[name]).unwrap();
    let described = file("Chart.yaml");
    for (key, value) in [
        ("version", "1.2.3"),
        ("appVersion", "1.2.3"),
        ("home", "https://example.com"),
    ] {
        assert_eq!(described[key], value);
    }
    assert_eq!(file("values.yaml")["image"], "ghcr.io/me/pod-affinity@sha256:0");
    for file in ["README.md", "templates/_check.tpl", "templates/NOTES.txt"] {
        assert!(chart.0.contains_key(file), "{file}");
    }
    for (name, _) in OBJECTS {
        let objects = &chart.0[&format!("objects/{name}.yaml")];
        assert!(objects.contains("app.kubernetes.io/version: v1.2.3"), "{name}");
    }
}

#[test]
fn the_name_of_the_archive_has_the_version() {
    let name = file_name(&Version::parse("v1.2.3-rc.1").unwrap());
    assert_eq!(name, "pod-affinity-1.2.3-rc.1.tgz");
    assert_eq!(version_of(&name), Some("1.2.3-rc.1"));
    assert_eq!(version_of("pod-affinity-image.tar"), None);
}
