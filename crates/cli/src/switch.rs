//! Webhook configurations and admission policies that leave out a namespace, or all of them. Pure.
//!
//! Only their namespace selectors change, so that what was switched off can be switched on again without the manifests.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, TestOperation};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The label that Kubernetes puts on every namespace.
const NAME: &str = "kubernetes.io/metadata.name";
const NOT_IN: &str = "NotIn";
const DOES_NOT_EXIST: &str = "DoesNotExist";

/// Where a policy has its selector.
const OF_POLICY: [&str; 3] = ["spec", "matchConstraints", "namespaceSelector"];

/// What is done to the namespaces whose objects are changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
    LeaveOut(String),
    TakeIn(String),
    AllOff,
    AllOn,
}

/// The operations that make a configuration so; none if it is so already. They rely on the selectors that were seen.
pub(crate) fn configuration(found: &MutatingWebhookConfiguration, switch: &Switch) -> Vec<PatchOperation> {
    let webhooks = found.webhooks.iter().flatten().enumerate();
    webhooks
        .flat_map(|(index, webhook)| operations_of(index, webhook, switch))
        .collect()
}

/// The same for a policy.
pub(crate) fn policy(spec: &Value, switch: &Switch) -> Vec<PatchOperation> {
    operations(&PointerBuf::from_tokens(OF_POLICY), &selector(spec), switch)
}

/// Whether no namespace is left in.
pub(crate) fn is_off(found: &MutatingWebhookConfiguration) -> bool {
    let mut selectors = found
        .webhooks
        .iter()
        .flatten()
        .filter_map(|it| it.namespace_selector.as_ref());
    selectors.any(matches_nothing)
}

/// The same of a policy.
pub(crate) fn is_policy_off(spec: &Value) -> bool {
    matches_nothing(&selector(spec))
}

fn selector(spec: &Value) -> LabelSelector {
    let [_, constraints, selector] = OF_POLICY;
    LabelSelector::deserialize(&spec[constraints][selector]).unwrap_or_default()
}

fn matches_nothing(selector: &LabelSelector) -> bool {
    let mut expressions = selector.match_expressions.iter().flatten();
    expressions.any(|it| *it == nowhere())
}

/// For one webhook of a configuration: by its place, where it must still be.
fn operations_of(index: usize, webhook: &MutatingWebhook, switch: &Switch) -> Vec<PatchOperation> {
    let path = |field: &str| PointerBuf::from_tokens(["webhooks", &index.to_string(), field]);
    let before = webhook.namespace_selector.clone().unwrap_or_default();
    let mut operations = operations(&path("namespaceSelector"), &before, switch);
    if !operations.is_empty() {
        operations.insert(0, test(path("name"), Value::from(webhook.name.as_str())));
    }
    operations
}

fn operations(path: &PointerBuf, before: &LabelSelector, switch: &Switch) -> Vec<PatchOperation> {
    let after = switched(before.clone(), switch);
    if after == *before {
        return Vec::new();
    }
    let add = AddOperation {
        path: path.clone(),
        value: json(&after),
    };
    vec![test(path.clone(), json(before)), PatchOperation::Add(add)]
}

fn test(path: PointerBuf, value: Value) -> PatchOperation {
    PatchOperation::Test(TestOperation { path, value })
}

fn json(selector: &impl Serialize) -> Value {
    serde_json::to_value(selector).unwrap_or_default()
}

fn switched(mut selector: LabelSelector, switch: &Switch) -> LabelSelector {
    let mut expressions = selector.match_expressions.take().unwrap_or_default();
    match switch {
        Switch::LeaveOut(namespace) => leave_out(&mut expressions, namespace),
        Switch::TakeIn(namespace) => take_in(&mut expressions, namespace),
        Switch::AllOff if !expressions.contains(&nowhere()) => expressions.push(nowhere()),
        Switch::AllOff => {}
        Switch::AllOn => expressions.retain(|it| *it != nowhere()),
    }
    LabelSelector {
        match_expressions: (!expressions.is_empty()).then_some(expressions),
        ..selector
    }
}

fn leave_out(expressions: &mut Vec<LabelSelectorRequirement>, namespace: &str) {
    let is_left_out = |it: &LabelSelectorRequirement| names(it).iter().any(|name| name == namespace);
    if expressions.iter().any(is_left_out) {
        return;
    }
    match expressions.iter_mut().find(|it| is_exclusion(it)) {
        Some(exclusion) => exclusion
            .values
            .get_or_insert_default()
            .push(namespace.to_owned()),
        None => expressions.push(LabelSelectorRequirement {
            key: NAME.to_owned(),
            operator: NOT_IN.to_owned(),
            values: Some(vec![namespace.to_owned()]),
        }),
    }
}

fn take_in(expressions: &mut Vec<LabelSelectorRequirement>, namespace: &str) {
    for exclusion in expressions.iter_mut().filter(|it| is_exclusion(it)) {
        exclusion
            .values
            .get_or_insert_default()
            .retain(|name| name != namespace);
    }
    expressions.retain(|it| !is_exclusion(it) || !names(it).is_empty());
}

fn is_exclusion(requirement: &LabelSelectorRequirement) -> bool {
    requirement.key == NAME && requirement.operator == NOT_IN
}

fn names(requirement: &LabelSelectorRequirement) -> &[String] {
    let values = requirement.values.as_deref().unwrap_or_default();
    if is_exclusion(requirement) { values } else { &[] }
}

/// Matches no namespace.
fn nowhere() -> LabelSelectorRequirement {
    LabelSelectorRequirement {
        key: NAME.to_owned(),
        operator: DOES_NOT_EXIST.to_owned(),
        values: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::manifests;
    use kube::ResourceExt;
    use serde_json::json;

    fn after(found: &MutatingWebhookConfiguration, switch: &Switch) -> MutatingWebhookConfiguration {
        let mut object = serde_json::to_value(found).unwrap();
        json_patch::patch(&mut object, &configuration(found, switch)).unwrap();
        serde_json::from_value(object).unwrap()
    }

    fn policies() -> Vec<Value> {
        let all = manifests::policies(placement::keys::NAMESPACE).into_iter();
        let policies: Vec<_> = all.filter(|it| !it.is_binding()).map(|it| it.spec).collect();
        assert_eq!(policies.len(), 7);
        policies
    }

    fn policy_after(spec: &Value, switch: &Switch) -> Value {
        let mut object = json!({"spec": spec});
        json_patch::patch(&mut object, &policy(spec, switch)).unwrap();
        object["spec"].take()
    }

    fn left_out(found: &MutatingWebhookConfiguration) -> Vec<Vec<String>> {
        let selectors = found.webhooks.iter().flatten();
        selectors
            .map(|it| it.namespace_selector.clone().unwrap_or_default())
            .map(|it| {
                it.match_expressions
                    .unwrap_or_default()
                    .iter()
                    .flat_map(names)
                    .cloned()
                    .collect()
            })
            .collect()
    }

    #[test]
    fn a_namespace_is_left_out_of_every_webhook_and_taken_in_again() {
        for release in manifests::webhooks() {
            let off = after(&release, &Switch::LeaveOut("ci".into()));
            let names = left_out(&off);
            assert!(
                names
                    .iter()
                    .all(|it| it.contains(&"ci".to_owned()) && it.len() == 3),
                "{names:?}"
            );
            assert!(configuration(&off, &Switch::LeaveOut("ci".into())).is_empty());
            assert_eq!(
                after(&off, &Switch::TakeIn("ci".into())),
                release,
                "{}",
                release.name_any()
            );
        }
    }

    #[test]
    fn everything_is_switched_off_and_on_again() {
        for release in manifests::webhooks() {
            let off = after(&release, &Switch::AllOff);
            assert!(is_off(&off) && !is_off(&release));
            assert!(configuration(&off, &Switch::AllOff).is_empty());
            assert_eq!(after(&off, &Switch::AllOn), release);
            assert!(configuration(&release, &Switch::AllOn).is_empty());
        }
    }

    #[test]
    fn a_configuration_that_was_changed_meanwhile_is_not_touched() {
        let release = manifests::webhooks().remove(0);
        let off = configuration(&release, &Switch::AllOff);
        let mut changed = serde_json::to_value(after(&release, &Switch::LeaveOut("x".into()))).unwrap();
        json_patch::patch(&mut changed, &off).unwrap_err();
    }

    #[test]
    fn a_webhook_without_a_selector_gets_one() {
        let mut bare = manifests::webhooks().remove(1);
        bare.webhooks.as_mut().unwrap()[0].namespace_selector = Some(LabelSelector::default());
        let off = after(&bare, &Switch::LeaveOut("ci".into()));
        assert_eq!(left_out(&off), [["ci"]]);
        assert_eq!(after(&off, &Switch::TakeIn("ci".into())), bare);
    }

    #[test]
    fn policies_leave_out_a_namespace_or_all_and_are_then_as_before() {
        let one = Switch::LeaveOut("ci".into());
        for release in policies() {
            let off = policy_after(&release, &one);
            assert_eq!(
                off.pointer("/matchConstraints/namespaceSelector/matchExpressions/0/values"),
                Some(&json!(["kube-system", "tekton-pod-affinity", "ci"]))
            );
            assert!(policy(&off, &one).is_empty() && !is_policy_off(&off));
            assert_eq!(policy_after(&off, &Switch::TakeIn("ci".into())), release);

            let off = policy_after(&release, &Switch::AllOff);
            assert!(policy(&off, &Switch::AllOff).is_empty() && is_policy_off(&off));
            assert_eq!(policy_after(&off, &Switch::AllOn), release);
        }
    }

    #[test]
    fn a_policy_that_was_changed_meanwhile_is_not_touched() {
        let release = policies().remove(0);
        let off = policy(&release, &Switch::AllOff);
        let mut changed = json!({"spec": policy_after(&release, &Switch::LeaveOut("x".into()))});
        json_patch::patch(&mut changed, &off).unwrap_err();
    }
}
