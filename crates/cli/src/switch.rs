//! Patches that exclude a namespace, or all namespaces, from webhook configurations and admission policies.
//!
//! A patch changes only namespace selectors, so that `enable` can undo the patch without the manifests.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, TestOperation};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde::Deserialize;
use serde_json::Value;

/// The label that Kubernetes adds to every namespace.
const NAME: &str = "kubernetes.io/metadata.name";
const NOT_IN: &str = "NotIn";
const DOES_NOT_EXIST: &str = "DoesNotExist";

/// The change of the namespace selectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
    Exclude(String),
    Include(String),
    AllOff,
    AllOn,
}

/// The patch of a webhook configuration or of a policy; empty if the object is already switched. The patch fails if the
/// object's selectors have changed.
pub(crate) fn patch(object: &Value, switch: &Switch) -> Vec<PatchOperation> {
    let selectors = selectors(object).into_iter();
    selectors.flat_map(|it| it.operations(switch)).collect()
}

/// Whether the object applies to no namespace.
pub(crate) fn is_off(object: &Value) -> bool {
    let mut selectors = selectors(object).into_iter();
    selectors.any(|it| {
        it.before
            .match_expressions
            .iter()
            .flatten()
            .any(|it| *it == nowhere())
    })
}

/// Whether the object does not apply to the namespace, by its name.
pub(crate) fn excludes(object: &Value, namespace: &str) -> bool {
    let selectors = selectors(object).into_iter();
    let mut expressions = selectors.flat_map(|it| it.before.match_expressions.unwrap_or_default());
    expressions.any(|it| names(&it).iter().any(|name| name == namespace))
}

/// A namespace selector of an object.
struct Selector {
    path: PointerBuf,
    before: LabelSelector,
    /// The path and the name of the webhook, which a patch checks because the path has only the webhook's index.
    webhook: Option<(PointerBuf, Value)>,
}

/// A webhook configuration has a selector for each webhook, and a policy has one selector.
fn selectors(object: &Value) -> Vec<Selector> {
    let selector = |path: [&str; 3], parent: &Value, webhook| Selector {
        path: PointerBuf::from_tokens(path),
        before: LabelSelector::deserialize(&parent["namespaceSelector"]).unwrap_or_default(),
        webhook,
    };
    let Some(webhooks) = object["webhooks"].as_array() else {
        let constraints = &object["spec"]["matchConstraints"];
        return vec![selector(
            ["spec", "matchConstraints", "namespaceSelector"],
            constraints,
            None,
        )];
    };
    let selectors = webhooks.iter().enumerate().map(|(index, webhook)| {
        let index = index.to_string();
        let name = PointerBuf::from_tokens(["webhooks", &index, "name"]);
        let name = (name, webhook["name"].clone());
        selector(["webhooks", &index, "namespaceSelector"], webhook, Some(name))
    });
    selectors.collect()
}

impl Selector {
    fn operations(self, switch: &Switch) -> Vec<PatchOperation> {
        let after = switched(self.before.clone(), switch);
        if after == self.before {
            return Vec::new();
        }
        let json = |selector| serde_json::to_value(selector).unwrap_or_default();
        let test = |(path, value)| PatchOperation::Test(TestOperation { path, value });
        let tests = self
            .webhook
            .into_iter()
            .chain([(self.path.clone(), json(self.before))]);
        let add = AddOperation {
            path: self.path,
            value: json(after),
        };
        tests.map(test).chain([PatchOperation::Add(add)]).collect()
    }
}

fn switched(mut selector: LabelSelector, switch: &Switch) -> LabelSelector {
    let mut expressions = selector.match_expressions.take().unwrap_or_default();
    match switch {
        Switch::Exclude(namespace) => exclude(&mut expressions, namespace),
        Switch::Include(namespace) => include(&mut expressions, namespace),
        Switch::AllOff if !expressions.contains(&nowhere()) => expressions.push(nowhere()),
        Switch::AllOff => {}
        Switch::AllOn => expressions.retain(|it| *it != nowhere()),
    }
    LabelSelector {
        match_expressions: (!expressions.is_empty()).then_some(expressions),
        ..selector
    }
}

fn exclude(expressions: &mut Vec<LabelSelectorRequirement>, namespace: &str) {
    let is_excluded = |it: &LabelSelectorRequirement| names(it).iter().any(|name| name == namespace);
    if expressions.iter().any(is_excluded) {
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

fn include(expressions: &mut Vec<LabelSelectorRequirement>, namespace: &str) {
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

/// A requirement that no namespace meets.
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
    use serde_json::json;

    fn after(found: &Value, switch: &Switch) -> Value {
        let mut object = found.clone();
        json_patch::patch(&mut object, &patch(found, switch)).unwrap();
        object
    }

    fn webhooks() -> Vec<Value> {
        let webhooks = manifests::webhooks().into_iter();
        webhooks.map(|it| serde_json::to_value(it).unwrap()).collect()
    }

    fn policies() -> Vec<Value> {
        let all = manifests::policies(placement::keys::NAMESPACE).into_iter();
        let policies = all.filter(|it| !it.is_binding());
        let policies: Vec<_> = policies.map(|it| json!({"spec": it.spec})).collect();
        assert_eq!(policies.len(), 7);
        policies
    }

    /// The namespaces that each selector excludes.
    fn excluded(found: &Value) -> Vec<Vec<String>> {
        let selectors = selectors(found).into_iter();
        let expressions = selectors.map(|it| it.before.match_expressions.unwrap_or_default());
        expressions
            .map(|all| all.iter().flat_map(names).cloned().collect())
            .collect()
    }

    #[test]
    fn a_namespace_is_excluded_from_every_webhook_and_included_again() {
        for release in webhooks() {
            let off = after(&release, &Switch::Exclude("ci".into()));
            let names = excluded(&off);
            assert!(
                names
                    .iter()
                    .all(|it| it.contains(&"ci".to_owned()) && it.len() == 3),
                "{names:?}"
            );
            assert!(patch(&off, &Switch::Exclude("ci".into())).is_empty());
            assert_eq!(after(&off, &Switch::Include("ci".into())), release, "{release}");
        }
    }

    #[test]
    fn everything_is_switched_off_and_on_again() {
        for release in webhooks() {
            let off = after(&release, &Switch::AllOff);
            assert!(is_off(&off) && !is_off(&release));
            assert!(patch(&off, &Switch::AllOff).is_empty());
            assert_eq!(after(&off, &Switch::AllOn), release);
            assert!(patch(&release, &Switch::AllOn).is_empty());
        }
    }

    #[test]
    fn a_configuration_that_was_changed_meanwhile_is_not_touched() {
        let release = webhooks().remove(0);
        let off = patch(&release, &Switch::AllOff);
        let mut changed = after(&release, &Switch::Exclude("x".into()));
        json_patch::patch(&mut changed, &off).unwrap_err();
    }

    #[test]
    fn a_webhook_without_a_selector_gets_one() {
        let mut bare = webhooks().remove(1);
        bare["webhooks"][0]["namespaceSelector"] = json!({});
        let off = after(&bare, &Switch::Exclude("ci".into()));
        assert_eq!(excluded(&off), [["ci"]]);
        assert_eq!(after(&off, &Switch::Include("ci".into())), bare);
    }

    #[test]
    fn policies_exclude_a_namespace_or_all_and_are_then_as_before() {
        let one = Switch::Exclude("ci".into());
        for release in policies() {
            let off = after(&release, &one);
            assert_eq!(
                off.pointer("/spec/matchConstraints/namespaceSelector/matchExpressions/0/values"),
                Some(&json!(["kube-system", "tekton-pod-affinity", "ci"]))
            );
            assert!(patch(&off, &one).is_empty() && !is_off(&off));
            assert!(excludes(&off, "ci") && !excludes(&release, "ci"));
            assert_eq!(after(&off, &Switch::Include("ci".into())), release);

            let off = after(&release, &Switch::AllOff);
            assert!(patch(&off, &Switch::AllOff).is_empty() && is_off(&off));
            assert_eq!(after(&off, &Switch::AllOn), release);
        }
    }

    #[test]
    fn a_policy_that_was_changed_meanwhile_is_not_touched() {
        let release = policies().remove(0);
        let off = patch(&release, &Switch::AllOff);
        let mut changed = after(&release, &Switch::Exclude("x".into()));
        json_patch::patch(&mut changed, &off).unwrap_err();
    }
}
