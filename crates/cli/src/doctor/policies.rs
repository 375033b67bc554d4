//! Are the admission policies those of this release, where they replace the webhook (overlays/policies)?

use super::manifests::Policy;
use super::{Exam, Finding, Platform, versions};
use crate::admission::Compared;
use crate::switch::is_policy_off;
use crate::way::Way;
use placement::supported::OLDEST_WITH_POLICIES;
use serde_json::Value;

const CHECK: &str = "policies";
const INSTALLATION: &str = "installation";
const APPLY: &str =
    "`cargo ship apply -k overlays/policies`, or apply your own kustomization of this overlay again.";

/// Why the API server cannot do without the webhook, or why that is not known.
fn obstacle(platform: &Platform) -> Option<String> {
    match (&platform.kubernetes, &platform.serves_policies) {
        (Ok(version), _) if is_old(platform) => Some(format!(
            "Kubernetes {version} is older than 1.{OLDEST_WITH_POLICIES} and evaluates no MutatingAdmissionPolicy"
        )),
        (Err(gap), _) | (Ok(_), Err(gap)) => Some(gap.to_string()),
        (Ok(_), Ok(())) => None,
    }
}

/// The way to install pod-affinity where it is not installed.
pub(super) fn choice(platform: &Platform) -> Way {
    match obstacle(platform) {
        Some(_) => Way::Webhook,
        None => Way::Policies,
    }
}

/// And why.
pub(super) fn advice(platform: &Platform) -> Finding {
    match obstacle(platform) {
        Some(obstacle) => Finding::ok(INSTALLATION, format!("Install the webhook: {obstacle}."))
            .hint("`cargo ship apply -f config/`, or release.yaml of a release."),
        None => Finding::ok(
            INSTALLATION,
            "Install admission policies instead of the webhook: this API server evaluates them.",
        )
        .hint(format!(
            "`cargo ship apply -k overlays/policies`, or release-policies.yaml of a release. All API servers of the cluster \
             must be of 1.{OLDEST_WITH_POLICIES} or newer."
        )),
    }
}

pub(super) fn findings(exam: &Exam) -> Vec<Finding> {
    match exam.way() {
        Way::Webhook => unseen(exam).into_iter().chain(recommended(exam)).collect(),
        Way::Policies => installed(exam),
        Way::Both => vec![Finding::warning(
            INSTALLATION,
            "Admission policies and the webhook are both installed: each object is handled twice, which is harmless.",
            "Delete the one that you do not want: see overlays/policies/README.md.",
        )],
    }
}

/// No warning: the webhook is as good as before. Where it is not installed at all, there is something else to report.
fn recommended(exam: &Exam) -> Option<Finding> {
    let is_there = exam.admission.way().is_some();
    (is_there && obstacle(&exam.platform).is_none()).then(|| {
        Finding::ok(
            INSTALLATION,
            "The webhook is installed. This API server can evaluate admission policies instead.",
        )
        .hint(format!(
            "With policies, no call can be lost, and there is no certificate. If all API servers of the cluster are of \
             1.{OLDEST_WITH_POLICIES} or newer: see overlays/policies/README.md."
        ))
    })
}

/// An older API server serves no policies, so that there is nothing to see.
fn unseen(exam: &Exam) -> Option<Finding> {
    if is_old(&exam.platform) {
        return None;
    }
    let gap = exam
        .admission
        .policies
        .iter()
        .find_map(|it| it.found.as_ref().err())?;
    Some(Finding::unseen(CHECK, gap))
}

fn is_old(platform: &Platform) -> bool {
    versions::is_older(&platform.kubernetes, OLDEST_WITH_POLICIES)
}

fn installed(exam: &Exam) -> Vec<Finding> {
    let way = Finding::ok(
        INSTALLATION,
        "Admission policies are installed instead of the webhook (overlays/policies).",
    );
    if is_old(&exam.platform) {
        return vec![way, old(exam)];
    }
    let faults: Vec<_> = exam
        .admission
        .policies
        .iter()
        .filter_map(fault)
        .chain(unseen(exam))
        .collect();
    let whole = faults
        .is_empty()
        .then(|| Finding::ok(CHECK, "All policies and their bindings are as in the release."));
    std::iter::once(way).chain(faults).chain(whole).collect()
}

fn old(exam: &Exam) -> Finding {
    let version = exam.platform.kubernetes.as_deref().unwrap_or_default();
    Finding::bad(
        CHECK,
        format!(
            "Kubernetes {version} is older than 1.{OLDEST_WITH_POLICIES} and evaluates no MutatingAdmissionPolicy: labelled runs start \
             at once, and their pods get no affinity."
        ),
        format!(
            "Upgrade all API servers to 1.{OLDEST_WITH_POLICIES} or newer, or install the webhook instead: see docs/install.md."
        ),
    )
}

fn fault(compared: &Compared) -> Option<Finding> {
    let Policy { kind, metadata, spec } = &compared.release;
    let name = &metadata.name;
    match compared.found.as_ref().ok()? {
        None => Some(Finding::bad(
            CHECK,
            format!("{kind} {name} is not there: {}.", consequence(name)),
            APPLY,
        )),
        Some(found) if is_policy_off(found) => Some(Finding::bad(
            CHECK,
            format!("{kind} {name} is switched off: {}.", consequence(name)),
            "Switch it on again: `kubectl pod-affinity enable -A`.",
        )),
        Some(found) => changed(&format!("{kind} {name}"), &differing(spec, found)),
    }
}

fn changed(which: &str, fields: &[String]) -> Option<Finding> {
    (!fields.is_empty()).then(|| {
        Finding::warning(
            CHECK,
            format!("{which} differs from the release in {}.", fields.join(", ")),
            format!("Nothing needs to be done if that is meant. Otherwise: {APPLY}"),
        )
    })
}

/// What does not happen without the policy, or without its binding.
fn consequence(name: &str) -> &'static str {
    match name.split('.').next() {
        Some("hold") => "labelled runs start at once, without waiting for their node",
        Some("hold-by-namespace") => "the label of a Namespace opts no run in",
        Some("warn") => "an unknown value of the label of a Namespace goes unnoticed",
        Some("stray") => "a run without the label can get keys of the run that it was copied from",
        Some("release") => "a labelled run that another holder releases starts without waiting for its node",
        Some("terms") => "the pods of labelled runs get no affinity and land on any nodes",
        Some(_) | None => "bad labels, reserves and podTemplates of labelled runs are not rejected",
    }
}

/// The fields of the release's spec that are others in the cluster, by their paths.
fn differing(release: &Value, found: &Value) -> Vec<String> {
    let fields = release.as_object().into_iter().flatten();
    fields
        .filter(|(key, value)| !covers(value, &found[key.as_str()]))
        .flat_map(|(key, value)| match differing(value, &found[key.as_str()]) {
            inner if inner.is_empty() => vec![key.clone()],
            inner => inner.iter().map(|field| format!("{key}.{field}")).collect(),
        })
        .collect()
}

/// The API server adds defaults to what it is given: only what the release names is compared. kustomize breaks the lines of
/// expressions in other places, which means nothing.
fn covers(release: &Value, found: &Value) -> bool {
    match (release, found) {
        (Value::Object(release), Value::Object(found)) => release
            .iter()
            .all(|(key, value)| found.get(key).is_some_and(|found| covers(value, found))),
        (Value::Array(release), Value::Array(found)) => {
            release.len() == found.len() && release.iter().zip(found).all(|(one, other)| covers(one, other))
        }
        (Value::String(release), Value::String(found)) => {
            release.split_whitespace().eq(found.split_whitespace())
        }
        (release, found) => release == found,
    }
}

#[cfg(test)]
#[path = "policies_tests.rs"]
mod tests;
