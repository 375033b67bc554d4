//! Decoders that reduce fields to facts, and accept a field of the wrong type.
//!
//! One object that cannot be decoded would fail the whole list, so every object that Tekton admits must decode here.

use k8s_openapi::api::core::v1::{Affinity, PodAffinity};
use placement::run::PodTemplate;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// How a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// The run has not ended.
    #[default]
    Open,
    /// The run succeeded.
    Succeeded,
    /// The run failed or was cancelled.
    Failed,
}

pub(crate) fn lenient<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    Ok(T::deserialize(Value::deserialize(from)?).unwrap_or_default())
}

/// Reads the status of the condition Succeeded, as Tekton itself does. Reasons are many, and change between versions.
pub(crate) fn outcome<'de, D: Deserializer<'de>>(from: D) -> Result<Outcome, D::Error> {
    let conditions = Value::deserialize(from)?;
    let verdicts = items(&conditions).iter().map(verdict);
    Ok(verdicts
        .into_iter()
        .find(|verdict| *verdict != Outcome::Open)
        .unwrap_or_default())
}

fn verdict(condition: &Value) -> Outcome {
    match condition["status"].as_str() {
        _ if condition["type"] != "Succeeded" => Outcome::Open,
        Some("True") => Outcome::Succeeded,
        Some("False") => Outcome::Failed,
        Some(_) | None => Outcome::Open,
    }
}

/// A hash of the Pipeline's name, or of the resolver and its parameters without `revision`: revisions of a Pipeline are equal.
pub(crate) fn pipeline<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let named = Value::deserialize(from)?;
    let resolver = named["resolver"].as_str();
    let params = items(&named["params"])
        .iter()
        .filter(|it| it["name"] != "revision");
    let params = params.map(|it| (it["name"].to_string(), it["value"].to_string()));
    Ok(match named["name"].as_str() {
        Some(name) if !name.is_empty() => Some(number(&name)),
        Some(_) | None => resolver.map(|resolver| number(&(resolver, params.collect::<BTreeSet<_>>()))),
    })
}

/// A hash for comparisons within this process.
pub(crate) fn number(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// The PVCs of a run's workspaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volumes {
    /// Names of the PVCs that workspaces refer to, in order, without duplicates.
    pub claims: Vec<String>,
    /// How many PVCs Tekton creates from templates.
    pub templates: usize,
}

pub(crate) fn volumes<'de, D: Deserializer<'de>>(from: D) -> Result<Volumes, D::Error> {
    let workspaces = Value::deserialize(from)?;
    let workspaces = items(&workspaces);
    let is_made = |workspace: &&Value| workspace["volumeClaimTemplate"].is_object();
    let mut volumes = Volumes {
        claims: Vec::new(),
        templates: workspaces.iter().filter(is_made).count(),
    };
    for name in workspaces.iter().filter_map(claim) {
        if !volumes.claims.iter().any(|known| known == name) {
            volumes.claims.push(name.to_owned());
        }
    }
    Ok(volumes)
}

fn claim(workspace: &Value) -> Option<&str> {
    let name = &workspace["persistentVolumeClaim"]["claimName"];
    name.as_str().filter(|text| !text.is_empty() && is_known(name))
}

/// Decodes `taskRunTemplate`, and keeps the fields that decide on which nodes, and as which service account, pods may run.
pub(crate) fn pod_template<'de, D>(from: D) -> Result<Option<Box<PodTemplate>>, D::Error>
where
    D: Deserializer<'de>,
{
    let tasks = Value::deserialize(from)?;
    let template = PodTemplate {
        service_account: field(&tasks, "serviceAccountName"),
        ..placing_part(&tasks["podTemplate"])
    };
    Ok(some(template).map(Box::new))
}

fn placing_part(template: &Value) -> PodTemplate {
    PodTemplate {
        node_selector: field(template, "nodeSelector"),
        tolerations: field(template, "tolerations"),
        affinity: affinity(&template["affinity"]),
        scheduler_name: field(template, "schedulerName"),
        priority_class_name: field(template, "priorityClassName"),
        runtime_class_name: field(template, "runtimeClassName"),
        image_pull_secrets: field(template, "imagePullSecrets"),
        service_account: None,
    }
}

/// Drops required podAffinity terms: no labelled run may have such terms.
fn affinity(of: &Value) -> Option<Affinity> {
    let near: PodAffinity = field(of, "podAffinity");
    let preferred = near.preferred_during_scheduling_ignored_during_execution;
    let read = Affinity {
        node_affinity: some(field(of, "nodeAffinity")),
        pod_affinity: preferred.map(|preferred| PodAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(preferred),
            required_during_scheduling_ignored_during_execution: None,
        }),
        pod_anti_affinity: some(field(of, "podAntiAffinity")),
    };
    some(read)
}

fn some<T: Default + PartialEq>(read: T) -> Option<T> {
    (read != T::default()).then_some(read)
}

fn field<T: DeserializeOwned + Default>(of: &Value, name: &str) -> T {
    of.get(name)
        .and_then(|value| T::deserialize(known_part(value)).ok())
        .unwrap_or_default()
}

/// Drops entries with variables: Tekton substitutes variables when it creates a pod, and the API server would reject a placeholder
/// with unsubstituted variables. Drops an entry as a whole, because half a toleration would tolerate every taint.
fn known_part(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().filter(|item| is_known(item)).cloned().collect(),
        Value::Object(entries) => {
            let known = entries.iter().filter(|(_, entry)| is_known(entry));
            Value::Object(known.map(|(key, entry)| (key.clone(), entry.clone())).collect())
        }
        scalar if is_known(scalar) => scalar.clone(),
        _ => Value::Null,
    }
}

fn is_known(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.contains("$("),
        Value::Array(items) => items.iter().all(is_known),
        Value::Object(entries) => entries.values().all(is_known),
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}
