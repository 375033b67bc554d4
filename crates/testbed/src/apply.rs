//! Applies manifests like `kubectl apply --server-side`, in the given order.

use crate::error::{Error, Result};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt};
use serde::Deserialize;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const MISSING: Error = Error::MissingTool {
    tool: "kubectl",
    remedy: "install kubectl and put it on the PATH; it renders the manifests",
};

/// All documents of a YAML file, or of all YAML files of a folder in the order of their names.
pub fn documents(path: &Path) -> Result<Vec<Value>> {
    let mut documents = Vec::new();
    for file in yaml_files(path)? {
        let text = std::fs::read_to_string(&file).map_err(Error::io("reading", &file))?;
        documents.extend(parse(&text).map_err(|problem| Error::Manifest {
            file: file.clone(),
            problem,
        })?);
    }
    Ok(documents)
}

/// The output of `kubectl kustomize` for a folder.
pub fn rendered(folder: &Path) -> Result<Vec<Value>> {
    let mut kustomize = Command::new("kubectl");
    kustomize.arg("kustomize").arg(folder).stdin(Stdio::null());
    let output = kustomize.output().map_err(|_| MISSING)?;
    let objects = if output.status.success() {
        parse(&String::from_utf8_lossy(&output.stdout))
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    };
    objects.map_err(|problem| Error::Manifest {
        file: folder.to_owned(),
        problem,
    })
}

fn parse(text: &str) -> std::result::Result<Vec<Value>, String> {
    let documents = serde_yaml::Deserializer::from_str(text).map(|document| {
        Value::deserialize(document).map_err(|error| format!("it is not valid YAML: {error}"))
    });
    // A file that ends with a separator or has only comments contains an empty document.
    documents
        .filter(|document| !matches!(document, Ok(Value::Null)))
        .collect()
}

fn yaml_files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = std::fs::read_dir(path).map_err(Error::io("reading", path))?;
    let mut files: Vec<_> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|file| file.extension().is_some_and(|ending| ending == "yaml"))
        .collect();
    files.sort();
    Ok(files)
}

/// The dynamic API of an object, from its apiVersion, kind and metadata, and the object's name.
pub fn api_of(client: &Client, object: &Value) -> Option<(Api<DynamicObject>, String)> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let (group, version) = text("/apiVersion")?
        .rsplit_once('/')
        .unwrap_or(("", text("/apiVersion")?));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("/kind")?));
    let api = match text("/metadata/namespace") {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    Some((api, text("/metadata/name")?.to_owned()))
}

/// Applies one object.
pub async fn apply(client: &Client, object: &Value) -> Result<DynamicObject> {
    let (api, name) = api_of(client, object).ok_or_else(|| Error::Manifest {
        file: PathBuf::from("(an object)"),
        problem: format!("it lacks apiVersion, kind or metadata.name: {object}"),
    })?;
    let what = format!("applying {} {name}", object["kind"].as_str().unwrap_or_default());
    let params = PatchParams::apply("testbed").force();
    let applied = api
        .patch(&name, &params, &Patch::Apply(object))
        .await
        .map_err(Error::api(what))?;
    tracing::debug!(kind = %object["kind"], name = %applied.name_any(), "applied");
    Ok(applied)
}

/// Applies objects in this order.
pub async fn apply_all(client: &Client, objects: &[Value]) -> Result<()> {
    for object in objects {
        apply(client, object).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_documents_are_skipped() {
        let documents = parse("# only a comment\n---\nkind: A\n---\n---\nkind: B\n---\n").unwrap();
        assert_eq!(documents.len(), 2);
    }

    #[test]
    fn invalid_yaml_is_an_error_with_its_position() {
        let problem = parse("kind: [").unwrap_err();
        assert!(
            problem.contains("not valid YAML") && problem.contains("line"),
            "{problem}"
        );
    }
}
