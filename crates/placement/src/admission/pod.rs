//! The verdict of the pod webhook: the affinity terms of its group are added to a pod of an enrolled run.
//!
//! The verdict is a function of the pod alone: Tekton copies the labels for group, strategy and isolation from the run.
//! Terms of the user and of other webhooks stay, and a term that the pod already has is not added again.
//!
//! One term is removed: Tekton's term that keeps the pods that mount a PVC with an affinity assistant. The assistant is
//! in the group, so the group's term has the same effect. With Tekton's term, a task could never be the first pod of
//! its group on another node. An assistant itself is never the first pod: an assistant that is recreated while its run
//! has no node waits.
//!
//! A required podAffinity of another author becomes a preferred one. For the required terms of a pod, the scheduler
//! counts only pods that match all of them, so with the group's term beside it the pod would fit on no node. The
//! PipelineRun webhook rejects such terms where it sees them. Tekton's `default-pod-template` and other webhooks add
//! theirs later, and the rejection of a pod would be a failed task.

use crate::admission::{Outcome, Verdict};
use crate::bounded::Fields;
use crate::keys;
use crate::names::Group;
use crate::opt_in::OptIn;
use crate::raw::{self, Malformed};
use crate::terms::{Terms, terms};
use json_patch::{Patch, PatchOperation};
use k8s_openapi::api::core::v1::PodAffinityTerm;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::str::FromStr;

pub(crate) const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
/// The highest weight of a preferred term.
const WEIGHT: u8 = 100;

/// The fields of a pod that this rule reads. The patches change only members of these fields.
pub const FIELDS: Fields = Fields::Object(&[
    (
        "metadata",
        Fields::Object(&[
            (
                "labels",
                Fields::Object(&[
                    (keys::GROUP, Fields::Scalar),
                    (keys::OPT_IN, Fields::Scalar),
                    (keys::STRATEGY, Fields::Scalar),
                    (keys::ISOLATION, Fields::Scalar),
                    (keys::COMPONENT, Fields::Scalar),
                ]),
            ),
            ("annotations", Fields::Object(&[])),
        ]),
    ),
    (
        "spec",
        Fields::Object(&[(
            "affinity",
            Fields::Object(&[("podAffinity", Fields::Any), ("podAntiAffinity", Fields::Any)]),
        )]),
    ),
]);

/// The verdict on the creation of a pod.
pub fn admit(pod: &Value) -> Verdict {
    match pod.as_object().ok_or(Malformed).and_then(decide) {
        Ok(verdict) => verdict,
        Err(Malformed) => Verdict::unpatched(Outcome::WrongType),
    }
}

fn decide(pod: &Map<String, Value>) -> Result<Verdict, Malformed> {
    let metadata = raw::object(pod, "metadata")?;
    let labels = metadata.map_or(Ok(None), |metadata| raw::object(metadata, "labels"))?;
    let label = |key| labels?.get(key)?.as_str().filter(|value| !value.is_empty());
    let Some(group) = label(keys::GROUP) else {
        return Ok(Verdict::unpatched(Outcome::NotEnrolled));
    };
    if OptIn::parse(label(keys::OPT_IN)) == Ok(OptIn::Declined) {
        return Ok(Verdict::unpatched(Outcome::Declined));
    }
    let (strategy, isolation) = (
        parse_or_default(label(keys::STRATEGY)),
        parse_or_default(label(keys::ISOLATION)),
    );
    let terms = terms(&Group::of(group), strategy, isolation);
    let is_assistant = label(keys::COMPONENT) == Some(keys::ASSISTANT);
    let terms = if is_assistant {
        terms.for_assistant()
    } else {
        terms
    };
    let (operations, outcome) = operations(pod, &terms)?;
    if operations.is_empty() {
        return Ok(Verdict::unpatched(Outcome::AlreadyThere));
    }
    let patch = Patch(operations);
    Ok(Verdict::Allow { patch, outcome })
}

/// A pod without the strategy or isolation label, or with an unknown value, gets the default of an unchanged
/// configuration: it is isolated from every run in the cluster. One node too many is a smaller harm than a shared node.
fn parse_or_default<T: FromStr + Default>(label: Option<&str>) -> T {
    label.and_then(|value| value.parse().ok()).unwrap_or_default()
}

fn operations(pod: &Map<String, Value>, terms: &Terms) -> Result<(Vec<PatchOperation>, Outcome), Malformed> {
    let spec = raw::object(pod, "spec")?.ok_or(Malformed)?;
    let anti_affinity = terms.anti_affinity.as_ref().map(|term| ("podAntiAffinity", term));
    let wanted = [("podAffinity", &terms.affinity)]
        .into_iter()
        .chain(anti_affinity);
    let Some(affinity) = raw::object(spec, "affinity")? else {
        let all = raw::add(&["spec", "affinity"], new_affinity(wanted)?);
        return Ok((vec![all], Outcome::Injected));
    };
    if let Some(operations) = relax(pod, affinity, &terms.affinity)? {
        let missing = anti_affinity.map(|(kind, term)| add_missing(affinity, kind, term));
        let missing = missing.transpose()?.flatten();
        return Ok((operations.into_iter().chain(missing).collect(), Outcome::Relaxed));
    }
    let additions = wanted.filter_map(|(kind, term)| add_missing(affinity, kind, term).transpose());
    let operations: Result<_, _> = remove_assistant_terms(affinity)?
        .into_iter()
        .map(Ok)
        .chain(additions)
        .collect();
    Ok((operations?, Outcome::Injected))
}

/// Only the group's term is required. The required terms of other authors become preferred with the highest weight, and
/// the pod gets an annotation by which the controller reports the change on the run.
fn relax(
    pod: &Map<String, Value>,
    affinity: &Map<String, Value>,
    own: &PodAffinityTerm,
) -> raw::Member<Vec<PatchOperation>> {
    let Some(present) = raw::object(affinity, "podAffinity")? else {
        return Ok(None);
    };
    let required = raw::list(present, REQUIRED)?.unwrap_or_default();
    let mut others = required
        .iter()
        .filter(|term| !is_assistant_term(term) && !is_same(term, own))
        .peekable();
    if others.peek().is_none() {
        return Ok(None);
    }
    let weighed = others.map(|term| json!({"weight": WEIGHT, "podAffinityTerm": term}));
    let preferred = raw::list(present, PREFERRED)?.unwrap_or_default();
    let preferred: Vec<_> = preferred.iter().cloned().chain(weighed).collect();
    let mut wanted = present.clone();
    wanted.insert(REQUIRED.to_owned(), Value::Array(vec![value(own)?]));
    wanted.insert(PREFERRED.to_owned(), Value::Array(preferred));
    Ok(Some(vec![
        raw::replace(&["spec", "affinity", "podAffinity"], wanted),
        relaxed_mark(pod)?,
    ]))
}

fn relaxed_mark(pod: &Map<String, Value>) -> Result<PatchOperation, Malformed> {
    let metadata = raw::object(pod, "metadata")?.ok_or(Malformed)?;
    Ok(match raw::object(metadata, "annotations")? {
        Some(_) => raw::add(&["metadata", "annotations", keys::RELAXED], "true"),
        None => raw::add(&["metadata", "annotations"], json!({ keys::RELAXED: "true" })),
    })
}

/// Removes Tekton's terms for assistants. The last term is removed first, because each removal changes the index of the
/// terms after it.
fn remove_assistant_terms(affinity: &Map<String, Value>) -> Result<Vec<PatchOperation>, Malformed> {
    let Some(present) = raw::object(affinity, "podAffinity")? else {
        return Ok(Vec::new());
    };
    let terms = raw::list(present, REQUIRED)?.unwrap_or_default();
    let assistant_terms = terms
        .iter()
        .enumerate()
        .rev()
        .filter(|(_, term)| is_assistant_term(term));
    let remove = |(index, _): (usize, _)| {
        let index = index.to_string();
        raw::remove(&["spec", "affinity", "podAffinity", REQUIRED, &index])
    };
    Ok(assistant_terms.map(remove).collect())
}

fn is_assistant_term(term: &Value) -> bool {
    term["labelSelector"]["matchLabels"][keys::COMPONENT] == keys::ASSISTANT
}

fn new_affinity<'a>(
    wanted: impl Iterator<Item = (&'static str, &'a PodAffinityTerm)>,
) -> Result<Value, Malformed> {
    let kinds: Result<Map<_, _>, _> = wanted
        .map(|(kind, term)| Ok((kind.to_owned(), required(term)?)))
        .collect();
    kinds.map(Value::Object)
}

/// Adds the term to an existing affinity, at the deepest parent that exists; `None` if the affinity has the term.
fn add_missing(
    affinity: &Map<String, Value>,
    kind: &str,
    term: &PodAffinityTerm,
) -> raw::Member<PatchOperation> {
    let Some(present) = raw::object(affinity, kind)? else {
        return Ok(Some(raw::add(&["spec", "affinity", kind], required(term)?)));
    };
    Ok(match raw::list(present, REQUIRED)? {
        None => Some(raw::add(
            &["spec", "affinity", kind, REQUIRED],
            vec![value(term)?],
        )),
        Some(list) if list.iter().any(|other| is_same(other, term)) => None,
        Some(_) => Some(raw::add(&["spec", "affinity", kind, REQUIRED, "-"], value(term)?)),
    })
}

fn required(term: &PodAffinityTerm) -> Result<Value, Malformed> {
    let list = Value::Array(vec![value(term)?]);
    Ok(Value::Object(Map::from_iter([(REQUIRED.to_owned(), list)])))
}

/// Compares whole terms, because other authors use the hostname as topology key as well. The topology key is compared
/// first: this is cheap and excludes most other terms.
fn is_same(other: &Value, term: &PodAffinityTerm) -> bool {
    other["topologyKey"] == term.topology_key
        && PodAffinityTerm::deserialize(other).is_ok_and(|other| other == *term)
}

/// Serialising a term cannot fail. If it failed, the pod would be left unchanged.
fn value(term: &PodAffinityTerm) -> Result<Value, Malformed> {
    serde_json::to_value(term).map_err(|_| Malformed)
}

#[cfg(test)]
mod tests;
