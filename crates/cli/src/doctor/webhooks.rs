//! Are the webhook configurations those of this release?

use super::{Exam, Finding, manifests};
use crate::switch::is_off;
use crate::way::Way;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use process::install;

const CHECK: &str = "webhook configuration";
/// In the names of the webhooks for runs that get the label of their Namespace.
const BY_NAMESPACE: &str = "by-namespace.";
const APPLY: &str = "Apply the release's manifests again (500-webhooks.yaml).";

pub(super) fn findings(exam: &Exam) -> Vec<Finding> {
    let way = exam.way();
    exam.admission
        .webhooks
        .iter()
        .filter_map(|(name, seen)| match seen {
            Err(gap) => Some(Finding::unseen(CHECK, gap)),
            Ok(None) if way == Way::Policies => None,
            Ok(None) => Some(Finding::bad(
                CHECK,
                format!("{name} is not there: {}.", consequence(name)),
                APPLY,
            )),
            Ok(Some(found)) if is_off(found) => Some(Finding::bad(
                CHECK,
                format!("{name} is switched off: {}.", consequence(name)),
                "Switch it on again: `kubectl pod-affinity enable -A`.",
            )),
            Ok(Some(found)) => Some(compared(exam, name, found)),
        })
        .collect()
}

/// What does not happen without a webhook, or without a configuration.
fn consequence(name: &str) -> &'static str {
    if name.contains(BY_NAMESPACE) {
        "the label of a Namespace opts no run in"
    } else if name == install::POD_WEBHOOK {
        "the pods of labelled runs get no affinity and land on any nodes"
    } else {
        "labelled runs start at once, without waiting for their node"
    }
}

fn compared(exam: &Exam, name: &str, found: &MutatingWebhookConfiguration) -> Finding {
    let release = manifests::webhooks();
    let release = release
        .iter()
        .find(|it| it.metadata.name.as_deref() == Some(name));
    let (mut wrong, mut other) = (Vec::new(), Vec::new());
    for wanted in release.into_iter().flat_map(|it| it.webhooks.iter().flatten()) {
        let consequence = consequence(&wanted.name);
        match found.webhooks.iter().flatten().find(|it| it.name == wanted.name) {
            None => wrong.push((format!("{} is missing", wanted.name), consequence)),
            Some(found) => {
                let broken = broken(exam, wanted, found);
                wrong.extend(broken.into_iter().map(|what| (what.to_owned(), consequence)));
                other.extend(bent(wanted, found));
            }
        }
    }
    wrong.dedup();
    other.dedup();
    judged(name, &wrong, &other)
}

/// What is wrong, each with its consequence.
fn judged(name: &str, wrong: &[(String, &str)], other: &[&str]) -> Finding {
    match (wrong, other) {
        ([], []) => Finding::ok(CHECK, format!("{name} is as in the release.")),
        ([], other) => Finding::warning(
            CHECK,
            format!("{name} differs from the release in {}.", other.join(", ")),
            "Nothing needs to be done if that is meant; else apply the release's manifests again.",
        ),
        (wrong, _) => {
            let mut what: Vec<_> = wrong.iter().map(|(what, _)| what.as_str()).collect();
            what.dedup();
            let mut consequences: Vec<_> = wrong.iter().map(|(_, consequence)| *consequence).collect();
            consequences.dedup();
            let consequences = consequences.join("; ");
            let sentence = format!("{name} was changed ({}): {consequences}.", what.join(", "));
            Finding::bad(CHECK, sentence, APPLY)
        }
    }
}

/// What must not differ: without it the wrong objects are sent, or to the wrong place.
fn broken(exam: &Exam, wanted: &MutatingWebhook, found: &MutatingWebhook) -> Vec<&'static str> {
    let service = |it: &MutatingWebhook| {
        let service = it.client_config.service.clone();
        service.map(|it| (it.name, it.path))
    };
    let namespace = found
        .client_config
        .service
        .as_ref()
        .map(|it| it.namespace.as_str());
    let differs = [
        ("objectSelector", wanted.object_selector != found.object_selector),
        ("rules", wanted.rules != found.rules),
        (
            "matchConditions",
            wanted.match_conditions != found.match_conditions,
        ),
        ("matchPolicy", wanted.match_policy != found.match_policy),
        ("service", service(wanted) != service(found)),
        (
            "service namespace",
            namespace != Some(exam.scope.namespace.as_str()),
        ),
    ];
    differs
        .into_iter()
        .filter(|(_, differs)| *differs)
        .map(|(what, _)| what)
        .collect()
}

/// What an administrator may have good reasons to change.
fn bent(wanted: &MutatingWebhook, found: &MutatingWebhook) -> Vec<&'static str> {
    let differs = [
        ("failurePolicy", wanted.failure_policy != found.failure_policy),
        (
            "namespaceSelector",
            wanted.namespace_selector != found.namespace_selector,
        ),
        (
            "reinvocationPolicy",
            wanted.reinvocation_policy != found.reinvocation_policy,
        ),
    ];
    differs
        .into_iter()
        .filter(|(_, differs)| *differs)
        .map(|(what, _)| what)
        .collect()
}
