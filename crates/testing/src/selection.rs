//! The objects that the path and the selectors of a list or a watch select.

use serde_json::Value;
use std::collections::BTreeMap;

/// The path and the parameters of a list or a watch.
#[derive(Clone)]
pub(crate) struct Selection {
    collection: String,
    parameters: BTreeMap<String, String>,
}

impl Selection {
    pub(crate) fn new(path: &str, query: &str) -> Self {
        Self {
            collection: path.to_owned(),
            parameters: form_urlencoded::parse(query.as_bytes()).into_owned().collect(),
        }
    }

    pub(crate) fn parameter(&self, name: &str) -> &str {
        self.parameters.get(name).map_or("", String::as_str)
    }

    /// Whether the object at this path is selected.
    pub(crate) fn contains(&self, path: &str, object: &Value) -> bool {
        let Some((collection, name)) = path.rsplit_once('/') else {
            return false;
        };
        let named = self.parameter("fieldSelector").strip_prefix("metadata.name=");
        let is_here = collection == self.collection || without_namespace(collection) == self.collection;
        is_here && named.is_none_or(|wanted| wanted == name) && self.has_labels(object)
    }

    fn has_labels(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        let selector = self.parameter("labelSelector");
        let mut terms = selector.split(',').filter(|term| !term.is_empty());
        terms.all(|term| match term.split_once('=') {
            Some((key, value)) => labels[key] == value,
            None => labels.get(term).is_some(),
        })
    }
}

/// The last part of a path.
pub(crate) fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether the path is of a collection, in one namespace or in all.
pub(crate) fn is_collection(path: &str) -> bool {
    let parts: Vec<_> = path.trim_start_matches('/').split('/').collect();
    let prefix = if parts[0] == "api" { 2 } else { 3 };
    matches!(parts.get(prefix..), Some([_] | ["namespaces", _, _]))
}

/// The path of the same collection in all namespaces.
fn without_namespace(collection: &str) -> String {
    let mut parts: Vec<_> = collection.split('/').collect();
    if let Some(at) = parts.iter().position(|part| *part == "namespaces") {
        parts.drain(at..(at + 2).min(parts.len()));
    }
    parts.join("/")
}
