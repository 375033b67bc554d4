//! Whether the webhook configurations and the admission policies are as in this release.

use super::Snapshot;
use super::finding::{Check, Finding};
use super::installation::INSTALLATION;
use super::manifests;
use super::platform::{is_too_old_for_policies, obstacle_to_policies};
use crate::admission::{Compared, Mechanism, Policy};
use crate::switch::is_off;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use placement::supported::OLDEST_WITH_POLICIES;
use runtime::install;
use serde_json::Value;

pub(super) const POLICIES: Check = Check("policies");
const CONFIGURATION: Check = Check("webhook configuration");

const APPLY_POLICIES: &str =
    "`cargo ship apply -k overlays/policies`, or apply your own kustomization of this overlay again.";
const APPLY_WEBHOOKS: &str = "Apply the release's manifests again (500-webhooks.yaml).";
const ENABLE: &str = "Switch it on again: `kubectl pod-affinity enable -A`.";

const RUNS_START: &str = "labelled runs start at once, without waiting for their node";
const NO_AFFINITY: &str = "the pods of labelled runs get no affinity and land on any nodes";
const NAMESPACE_IGNORED: &str = "the label of a Namespace has no effect";

/// Fields of a webhook without which the API server sends the wrong objects, or to the wrong Service.
const REQUIRED: [(&str, &str); 7] = [
    ("objectSelector", "/objectSelector"),
    ("rules", "/rules"),
    ("matchConditions", "/matchConditions"),
    ("matchPolicy", "/matchPolicy"),
    ("service", "/clientConfig/service/name"),
    ("service", "/clientConfig/service/path"),
    ("service namespace", "/clientConfig/service/namespace"),
];
/// Fields of a webhook that an administrator may have good reasons to change.
const ADJUSTABLE: [(&str, &str); 3] = [
    ("failurePolicy", "/failurePolicy"),
    ("namespaceSelector", "/namespaceSelector"),
    ("reinvocationPolicy", "/reinvocationPolicy"),
];

pub(super) fn webhooks(snapshot: &Snapshot) -> Vec<Finding> {
    let by_policies = snapshot.mechanism() == Mechanism::Policies;
    let webhooks = snapshot.installation.admission.webhooks.iter();
    let findings = webhooks.filter_map(|(name, seen)| match seen {
        Err(error) => Some(CONFIGURATION.unread(error)),
        Ok(None) if by_policies => None,
        Ok(None) => {
            let sentence = format!("{name} is not there: {}.", without_webhook(name));
            Some(CONFIGURATION.bad(sentence, APPLY_WEBHOOKS))
        }
        Ok(Some(found)) if is_off(&json(found)) => {
            let sentence = format!("{name} is switched off: {}.", without_webhook(name));
            Some(CONFIGURATION.bad(sentence, ENABLE))
        }
        Ok(Some(found)) => Some(configuration(name, found, &snapshot.installation.namespace)),
    });
    findings.collect()
}

/// What does not happen without a webhook, or without a webhook configuration.
fn without_webhook(name: &str) -> &'static str {
    match name {
        name if name.contains("by-namespace.") => NAMESPACE_IGNORED,
        install::POD_WEBHOOK => NO_AFFINITY,
        _ => RUNS_START,
    }
}

fn configuration(name: &str, found: &MutatingWebhookConfiguration, namespace: &str) -> Finding {
    let release = manifests::webhooks().into_iter();
    let release = release.filter(|it| it.metadata.name.as_deref() == Some(name));
    let (mut changed, mut consequences, mut adjusted) = (Vec::new(), Vec::new(), Vec::new());
    for wanted in release.flat_map(|it| it.webhooks.unwrap_or_default()) {
        let found = found.webhooks.iter().flatten().find(|it| it.name == wanted.name);
        let before = changed.len();
        if let Some(found) = found {
            let (mut wanted, found) = (json(&wanted), json(found));
            wanted["clientConfig"]["service"]["namespace"] = namespace.into();
            changed.extend(changed_fields(&wanted, &found, &REQUIRED));
            adjusted.extend(changed_fields(&wanted, &found, &ADJUSTABLE));
        } else {
            changed.push(format!("{} is missing", wanted.name));
        }
        if changed.len() > before {
            consequences.push(without_webhook(&wanted.name));
        }
    }
    changed.dedup();
    consequences.dedup();
    adjusted.dedup();
    match (changed.as_slice(), adjusted.as_slice()) {
        ([], []) => CONFIGURATION.ok(format!("{name} is as in the release.")),
        ([], fields) => CONFIGURATION.warning(
            format!("{name} differs from the release in {}.", fields.join(", ")),
            "Nothing needs to be done if that is meant; else apply the release's manifests again.",
        ),
        (fields, _) => {
            let (fields, consequences) = (fields.join(", "), consequences.join("; "));
            CONFIGURATION.bad(
                format!("{name} was changed ({fields}): {consequences}."),
                APPLY_WEBHOOKS,
            )
        }
    }
}

fn changed_fields(wanted: &Value, found: &Value, fields: &[(&str, &str)]) -> Vec<String> {
    let changed = fields
        .iter()
        .filter(|(_, at)| wanted.pointer(at) != found.pointer(at));
    changed.map(|(field, _)| (*field).to_owned()).collect()
}

fn json(object: &impl serde::Serialize) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

pub(super) fn policies(snapshot: &Snapshot) -> Vec<Finding> {
    let admission = &snapshot.installation.admission;
    let is_old = is_too_old_for_policies(&snapshot.installation.platform);
    // An older API server does not serve the policies, so a policy that is not read is no finding there.
    let unread = admission.policy_gaps().filter(|_| !is_old).take(1);
    let unread = unread.map(|error| POLICIES.unread(error));
    let installed = "Admission policies are installed instead of the webhook (overlays/policies).";
    match admission.mechanism() {
        None => unread.collect(),
        Some(Mechanism::Webhook) => unread.chain(alternative(snapshot)).collect(),
        Some(Mechanism::Policies) if is_old => vec![INSTALLATION.ok(installed), too_old(snapshot)],
        Some(Mechanism::Policies) => {
            let policies = admission.policies.iter();
            let faults = POLICIES.or_ok(
                policies.filter_map(fault).chain(unread),
                "All policies and their bindings are as in the release.",
            );
            [INSTALLATION.ok(installed)].into_iter().chain(faults).collect()
        }
        Some(Mechanism::Both) => vec![INSTALLATION.warning(
            "Admission policies and the webhook are both installed: each object is handled twice, which is harmless.",
            "Delete the one that you do not want: see overlays/policies/README.md.",
        )],
    }
}

/// The webhook remains as good as before, so policies are a hint, and no warning.
fn alternative(snapshot: &Snapshot) -> Option<Finding> {
    obstacle_to_policies(&snapshot.installation.platform).is_none().then(|| {
        INSTALLATION
            .ok("The webhook is installed. This API server can evaluate admission policies instead.")
            .hint(format!(
                "With policies, no call can be lost, and there is no certificate. If all API servers of the cluster are of \
                 1.{OLDEST_WITH_POLICIES} or newer: see overlays/policies/README.md."
            ))
    })
}

fn too_old(snapshot: &Snapshot) -> Finding {
    let version = snapshot
        .installation
        .platform
        .kubernetes
        .as_deref()
        .unwrap_or_default();
    POLICIES.bad(
        format!(
            "Kubernetes {version} is older than 1.{OLDEST_WITH_POLICIES} and evaluates no MutatingAdmissionPolicy: labelled \
             runs start at once, and their pods get no affinity."
        ),
        format!(
            "Upgrade all API servers to 1.{OLDEST_WITH_POLICIES} or newer, or install the webhook instead: see docs/install.md."
        ),
    )
}

fn fault(compared: &Compared) -> Option<Finding> {
    let Policy { kind, metadata, spec } = &compared.release;
    let name = &metadata.name;
    let consequence = without_policy(name);
    match compared.found.as_ref().ok()? {
        None => Some(POLICIES.bad(
            format!("{kind} {name} is not there: {consequence}."),
            APPLY_POLICIES,
        )),
        Some(found) if is_off(found) => {
            Some(POLICIES.bad(format!("{kind} {name} is switched off: {consequence}."), ENABLE))
        }
        Some(found) => {
            let fields = differing(spec, &found["spec"]);
            let sentence = format!("{kind} {name} differs from the release in {}.", fields.join(", "));
            let remedy = format!("Nothing needs to be done if that is meant. Otherwise: {APPLY_POLICIES}");
            (!fields.is_empty()).then(|| POLICIES.warning(sentence, remedy))
        }
    }
}

/// What does not happen without the policy, or without its binding.
fn without_policy(name: &str) -> &'static str {
    match name.split('.').next() {
        Some("hold") => RUNS_START,
        Some("hold-by-namespace") => NAMESPACE_IGNORED,
        Some("warn") => "an unknown value of the label of a Namespace goes unnoticed",
        Some("stray") => "a run without the label can get keys of the run that it was copied from",
        Some("release") => "a labelled run that another holder releases starts without waiting for its node",
        Some("terms") => NO_AFFINITY,
        Some(_) | None => "bad labels, reserves and podTemplates of labelled runs are not rejected",
    }
}

/// The paths of the fields of the release's spec that have another value in the cluster.
fn differing(release: &Value, found: &Value) -> Vec<String> {
    let fields = release.as_object().into_iter().flatten();
    let changed = fields.filter(|(key, value)| !covers(value, &found[key.as_str()]));
    changed
        .flat_map(|(key, value)| match differing(value, &found[key.as_str()]) {
            inner if inner.is_empty() => vec![key.clone()],
            inner => inner.iter().map(|field| format!("{key}.{field}")).collect(),
        })
        .collect()
}

/// Compares only the fields that the release names, because the API server adds defaults. Line breaks in expressions are ignored,
/// because kustomize changes them.
fn covers(release: &Value, found: &Value) -> bool {
    match (release, found) {
        (Value::Object(release), Value::Object(found)) => {
            let mut fields = release.iter();
            fields.all(|(key, value)| found.get(key).is_some_and(|found| covers(value, found)))
        }
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
mod tests;
