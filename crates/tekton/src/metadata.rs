//! Object metadata without unused fields.
//!
//! `managedFields` alone may be a third of an object, and building its tree of values takes longer than decoding the rest of the
//! object. Skipping `managedFields` while decoding costs almost nothing.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta, OwnerReference, Time};
use placement::bounded::{BYTES, ENTRIES, Fields, STRING};
use placement::keys;
use placement::names::RunKey;
use placement::text::shortened;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;

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
    #[serde(deserialize_with = "strings")]
    labels: Option<BTreeMap<String, String>>,
    #[serde(deserialize_with = "strings")]
    annotations: Option<BTreeMap<String, String>>,
    #[serde(deserialize_with = "controller")]
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

/// The labels of a node that are kept. Administrators write them, and programs that detect features write hundreds.
const NODE_LABELS: usize = 1000;

/// The metadata of a node.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ReadNode {
    name: Option<String>,
    /// A watch needs it.
    resource_version: Option<String>,
    #[serde(deserialize_with = "labels_of_node")]
    labels: Option<BTreeMap<String, String>>,
}

/// Decodes the name, the version and the labels of a node.
///
/// # Errors
/// A field has the wrong type.
pub fn read_node<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    let ReadNode {
        name,
        resource_version,
        labels,
    } = ReadNode::deserialize(from)?;
    Ok(ObjectMeta {
        name,
        resource_version,
        labels,
        ..ObjectMeta::default()
    })
}

fn labels_of_node<'de, D: Deserializer<'de>>(from: D) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    from.deserialize_option(Strings { others: NODE_LABELS })
}

/// Decodes the metadata of a read-only object, without managed fields, finalizers and other unused fields. Of the owner references,
/// only the controller is kept. Of labels and annotations, at most a hundred keys that pod-affinity reads and a hundred other keys are
/// kept. A long value is cut.
///
/// # Errors
/// A field that is read has the wrong type.
pub fn read<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    Read::deserialize(from)
}

static OWNERS: Fields = Fields::Matching(
    &Fields::Object(&[
        ("apiVersion", Fields::Scalar),
        ("kind", Fields::Scalar),
        ("name", Fields::Scalar),
        ("uid", Fields::Scalar),
        ("controller", Fields::Scalar),
        ("blockOwnerDeletion", Fields::Scalar),
    ]),
    |owner| owner["controller"] == true,
);

fn controller<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<OwnerReference>>, D::Error> {
    let owners: Vec<_> = OWNERS.decode_as(BYTES, from)?;
    Ok((!owners.is_empty()).then_some(owners))
}

fn strings<'de, D: Deserializer<'de>>(from: D) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    from.deserialize_option(Strings { others: ENTRIES })
}

/// A map of strings, with the most entries that are kept of keys that pod-affinity does not read.
struct Strings {
    others: usize,
}

impl<'de> Visitor<'de> for Strings {
    type Value = Option<BTreeMap<String, String>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of strings")
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut entries, mut read, mut others) = (BTreeMap::new(), 0, 0);
        while let Some(key) = map.next_key::<String>()? {
            let (count, most) = if is_read(&key) {
                (&mut read, ENTRIES)
            } else {
                (&mut others, self.others)
            };
            *count += 1;
            if *count <= most {
                let mut value: String = map.next_value()?;
                if value.len() > STRING {
                    value = shortened(&value, STRING).into_owned();
                }
                entries.insert(key, value);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Some(entries))
    }
}

/// Whether pod-affinity reads the label or annotation.
fn is_read(key: &str) -> bool {
    const KEYS: [&str; 8] = [
        keys::OPT_IN,
        keys::KUEUE_QUEUE_NAME,
        keys::TEKTON_PIPELINE_RUN,
        keys::TEKTON_PIPELINE_RUN_UID,
        keys::TEKTON_TASK_RUN,
        keys::APP,
        keys::COMPONENT,
        keys::HOSTNAME,
    ];
    key.starts_with(keys::OWN_PREFIX) || KEYS.contains(&key)
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
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "c1", "controller": true}],
        })
    }

    #[test]
    fn the_decoded_fields_are_the_same_as_in_the_type_of_kubernetes() {
        let whole: ObjectMeta = serde_json::from_value(metadata()).unwrap();
        assert_eq!(read(metadata()).unwrap(), whole);
        assert_eq!(read(json!({})).unwrap(), ObjectMeta::default());
    }

    #[test]
    fn the_controller_and_the_keys_of_pod_affinity_are_kept_among_thousands_of_entries() {
        let mut more = metadata();
        let others = |n: usize| (0..n).map(|n| (format!("a-{n}"), json!("v")));
        more["labels"] = others(10_000).collect();
        more["labels"][keys::GROUP] = json!("u1");
        more["ownerReferences"] = json!(vec![json!({"kind": "ConfigMap"}); 10_000]);
        let owner = metadata()["ownerReferences"][0].take();
        more["ownerReferences"].as_array_mut().unwrap().push(owner);
        let read = read(more).unwrap();
        let labels = read.labels.unwrap();
        assert_eq!((labels.len(), labels[keys::GROUP].as_str()), (ENTRIES + 1, "u1"));
        assert_eq!(read.owner_references.unwrap()[0].uid, "c1");
    }

    #[test]
    fn a_value_of_any_length_takes_little_memory() {
        let mut more = metadata();
        more["annotations"][keys::PINNED] = json!("n".repeat(200_000));
        let annotations = read(more).unwrap().annotations.unwrap();
        assert_eq!(
            (annotations[keys::PINNED].len(), annotations["c"].as_str()),
            (STRING, "d")
        );
    }

    #[test]
    fn hundreds_of_labels_of_a_node_are_kept() {
        let labels = (0..500).map(|n| (format!("feature.example.com/{n}"), json!("true")));
        let mut node = json!({"name": "n1", "resourceVersion": "7", "labels": labels.collect::<Value>()});
        node["labels"]["topology.kubernetes.io/zone"] = json!("east");
        let read = read_node(node).unwrap();
        let version = read.resource_version.as_deref();
        assert_eq!((read.name.as_deref(), version), (Some("n1"), Some("7")));
        assert_eq!(read.labels.unwrap()["topology.kubernetes.io/zone"], "east");
    }

    #[test]
    fn other_fields_are_skipped_with_any_content() {
        let mut more = metadata();
        more["managedFields"] = json!([{"manager": "m", "fieldsV1": {"f:spec": {}}}]);
        more["finalizers"] = json!(["chains.tekton.dev/pipelinerun"]);
        more["generateName"] = json!(["not", "a", "name"]);
        assert_eq!(read(more).unwrap(), read(metadata()).unwrap());
    }
}
