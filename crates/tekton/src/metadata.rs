//! Object metadata without unused fields.
//!
//! `managedFields` alone may be a third of an object, and building its tree of values takes longer than decoding the rest of the
//! object. Skipping `managedFields` while decoding costs almost nothing.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta, OwnerReference, Time};
use placement::names::RunKey;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

#[derive(Default, Deserialize)]
#[serde(remote = "ObjectMeta", default, rename_all = "camelCase")]
struct Read {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
    #[serde(skip)]
    deletion_grace_period_seconds: Option<i64>,
    #[serde(skip)]
    finalizers: Option<Vec<String>>,
    #[serde(deserialize_with = "crate::facts::lenient")]
    generate_name: Option<String>,
    #[serde(skip)]
    managed_fields: Option<Vec<ManagedFieldsEntry>>,
    #[serde(skip)]
    self_link: Option<String>,
}

/// Decodes the metadata of a read-only object, without managed fields, finalizers and other unused fields.
///
/// # Errors
/// A field that is read has the wrong type.
pub fn read<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    Read::deserialize(from)
}

/// The key of the run with this metadata; `None` without namespace, name or UID. Objects from the API server have all three.
pub fn key(run: &ObjectMeta) -> Option<RunKey> {
    Some(RunKey {
        namespace: run.namespace.clone()?,
        name: run.name.clone()?,
        uid: run.uid.clone()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn metadata() -> Value {
        json!({
            "name": "build", "namespace": "ns", "uid": "u1", "resourceVersion": "7", "generation": 2,
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-01T00:00:01Z",
            "labels": {"a": "b"}, "annotations": {"c": "d"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "c1"}],
        })
    }

    #[test]
    fn what_is_read_is_as_kubernetes_own_type_reads_it() {
        let whole: ObjectMeta = serde_json::from_value(metadata()).unwrap();
        assert_eq!(read(metadata()).unwrap(), whole);
        assert_eq!(read(json!({})).unwrap(), ObjectMeta::default());
    }

    #[test]
    fn what_nobody_reads_is_skipped_whatever_it_is() {
        let mut more = metadata();
        more["managedFields"] = json!([{"manager": "m", "fieldsV1": {"f:spec": {}}}]);
        more["finalizers"] = json!(["chains.tekton.dev/pipelinerun"]);
        more["generateName"] = json!(["not", "a", "name"]);
        assert_eq!(read(more).unwrap(), read(metadata()).unwrap());
    }
}
