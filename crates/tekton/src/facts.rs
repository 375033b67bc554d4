//! Decoders that reduce fields to facts, and accept a field of the wrong type.
//!
//! One object that cannot be decoded would fail the whole list, so every object that Tekton admits must decode here. The decoders
//! keep only fields that are read, within the limits of `placement::bounded`.

use k8s_openapi::api::core::v1::{Affinity, PodAffinity};
use placement::bounded::{Fields, STRING};
use placement::keys;
use placement::names::is_object_name;
use placement::opt_in::DECLINED;
use placement::run::PodTemplate;
use serde::Deserializer;
use serde::de::DeserializeOwned;
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

static SCALAR: Fields = Fields::Scalar;

/// Decodes a scalar. A value of another type counts as absent.
pub(crate) fn lenient<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    SCALAR.decode_as(STRING, from)
}

static CONDITIONS: Fields = Fields::Matching(
    &Fields::Object(&[("type", Fields::Scalar), ("status", Fields::Scalar)]),
    |condition| condition["type"] == "Succeeded",
);

/// Reads the status of the condition Succeeded, as Tekton itself does. Reasons are many, and change between versions.
pub(crate) fn outcome<'de, D: Deserializer<'de>>(from: D) -> Result<Outcome, D::Error> {
    let conditions = CONDITIONS.decode(from)?.value;
    let verdicts = items(&conditions).iter().map(verdict);
    Ok(verdicts
        .into_iter()
        .find(|verdict| *verdict != Outcome::Open)
        .unwrap_or_default())
}

fn verdict(condition: &Value) -> Outcome {
    match condition["status"].as_str() {
        Some("True") => Outcome::Succeeded,
        Some("False") => Outcome::Failed,
        Some(_) | None => Outcome::Open,
    }
}

static PIPELINE: Fields = Fields::Object(&[
    ("name", Fields::Scalar),
    ("resolver", Fields::Scalar),
    (
        "params",
        Fields::Matching(
            &Fields::Object(&[("name", Fields::Scalar), ("value", Fields::Any)]),
            |param| param["name"] != "revision",
        ),
    ),
]);

/// A hash of the Pipeline's name, or of the resolver and its parameters without `revision`: revisions of a Pipeline are equal. A run
/// whose parameters are over a limit has no hash.
pub(crate) fn pipeline<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let named = PIPELINE.decode(from)?;
    if named.over_limit.is_some() {
        return Ok(None);
    }
    let named = named.value;
    let resolver = named["resolver"].as_str();
    let params = items(&named["params"]).iter();
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
    /// How many further names of PVCs workspaces have that no PVC can have: Tekton replaces the parameters in a name.
    pub other_claims: usize,
    /// How many PVCs Tekton creates from templates.
    pub templates: usize,
    /// The name of a field that is ignored, because the field is over a limit.
    pub over_limit: Option<&'static str>,
}

static WORKSPACES: Fields = Fields::Matching(
    &Fields::Object(&[
        (
            "persistentVolumeClaim",
            Fields::Object(&[("claimName", Fields::Scalar)]),
        ),
        ("volumeClaimTemplate", Fields::Object(&[])),
    ]),
    |workspace| is_made(workspace) || claim(workspace).is_some(),
);

pub(crate) fn volumes<'de, D: Deserializer<'de>>(from: D) -> Result<Volumes, D::Error> {
    let decoded = WORKSPACES.decode(from)?;
    let workspaces = items(&decoded.value).iter();
    let mut names = Vec::new();
    for name in workspaces.clone().filter_map(claim) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    // The pods of the tasks are invalid with another name, and a request for another name addresses another resource.
    let (claims, others): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| is_object_name(name));
    Ok(Volumes {
        claims: claims.into_iter().map(str::to_owned).collect(),
        other_claims: others.len(),
        templates: workspaces.filter(|it| is_made(it)).count(),
        over_limit: decoded.over_limit.map(|_| "workspaces"),
    })
}

fn is_made(workspace: &Value) -> bool {
    workspace["volumeClaimTemplate"].is_object()
}

fn claim(workspace: &Value) -> Option<&str> {
    workspace["persistentVolumeClaim"]["claimName"].as_str()
}

static OPTED_OUT: Fields = Fields::Matching(
    &Fields::Object(&[(
        "metadata",
        Fields::Object(&[("labels", Fields::Object(&[(keys::OPT_IN, Fields::Scalar)]))]),
    )]),
    |task| task["metadata"]["labels"][keys::OPT_IN] == DECLINED,
);

/// Whether a task has the opt-in label with the value `false`. A list over a limit has such tasks.
pub(crate) fn opted_out<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    let tasks = OPTED_OUT.decode(from)?;
    Ok(tasks.over_limit.is_some() || !items(&tasks.value).is_empty())
}

/// The fields of `taskRunTemplate` that decide on which nodes, and as which service account, pods may run.
///
/// The fields are kept as JSON: typed values may take forty times as much memory, and few decisions read them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    /// The fields as JSON; `None` for a template without these fields.
    pub json: Option<Box<str>>,
    /// The name of a field that is ignored, because the field is over a limit.
    pub over_limit: Option<&'static str>,
}

const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

static TEMPLATE: Fields = Fields::Object(&[
    ("serviceAccountName", Fields::Scalar),
    (
        "podTemplate",
        Fields::Object(&[
            ("nodeSelector", Fields::Any),
            ("tolerations", Fields::Any),
            (
                "affinity",
                Fields::Object(&[
                    ("nodeAffinity", Fields::Any),
                    ("podAffinity", Fields::Object(&[(PREFERRED, Fields::Any)])),
                    ("podAntiAffinity", Fields::Any),
                ]),
            ),
            ("schedulerName", Fields::Scalar),
            ("priorityClassName", Fields::Scalar),
            ("runtimeClassName", Fields::Scalar),
            ("imagePullSecrets", Fields::Any),
        ]),
    ),
]);

pub(crate) fn template<'de, D: Deserializer<'de>>(from: D) -> Result<Template, D::Error> {
    let decoded = TEMPLATE.decode(from)?;
    let is_empty = pod_template(&decoded.value) == PodTemplate::default();
    Ok(Template {
        json: (!is_empty).then(|| decoded.value.to_string().into()),
        over_limit: decoded.over_limit,
    })
}

impl Template {
    /// The typed fields.
    pub(crate) fn typed(&self) -> PodTemplate {
        let tasks = self.json.as_ref().map(|json| serde_json::from_str(json));
        pod_template(&tasks.and_then(Result::ok).unwrap_or_default())
    }
}

fn pod_template(tasks: &Value) -> PodTemplate {
    let template = &tasks["podTemplate"];
    PodTemplate {
        node_selector: field(template, "nodeSelector"),
        tolerations: field(template, "tolerations"),
        affinity: affinity(&template["affinity"]),
        scheduler_name: field(template, "schedulerName"),
        priority_class_name: field(template, "priorityClassName"),
        runtime_class_name: field(template, "runtimeClassName"),
        image_pull_secrets: field(template, "imagePullSecrets"),
        service_account: field(tasks, "serviceAccountName"),
    }
}

/// Only preferred podAffinity terms: no labelled run may have required podAffinity terms.
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
