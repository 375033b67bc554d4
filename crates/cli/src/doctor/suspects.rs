//! What else changes pods that are created: webhooks and policies of others, one of which can undo what pod-affinity did.

use super::Finding;
use crate::ask::{Gap, Seen};
use crate::words::list;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, RuleWithOperations};
use kube::ResourceExt;
use kube::api::DynamicObject;
use placement::keys;
use serde::Deserialize;

const NAMED: usize = 10;
/// How the names of our own end.
const OURS: &str = "pod-affinity.tekton.dev";

/// Kind and name of each, and what could not be listed.
#[derive(Clone, Debug)]
pub(crate) struct Suspects {
    names: Vec<String>,
    gaps: Vec<Gap>,
}

impl Suspects {
    /// Those of others whose rules match the creation of pods. Their selectors and conditions are not evaluated.
    pub(crate) fn of(
        webhooks: Seen<Vec<MutatingWebhookConfiguration>>,
        policies: Seen<Vec<DynamicObject>>,
    ) -> Self {
        let (webhooks, one) = split(webhooks);
        let (policies, other) = split(policies);
        let webhooks = webhooks.iter().filter(|it| changes_pods(rules_of(it)));
        let policies = policies.iter().filter(|it| changes_pods(rules_of_policy(it)));
        let webhooks = webhooks.map(|it| ("MutatingWebhookConfiguration", it.name_any()));
        let policies = policies.map(|it| ("MutatingAdmissionPolicy", it.name_any()));
        let others = webhooks.chain(policies).filter(|(_, name)| !name.ends_with(OURS));
        Self {
            names: others.map(|(kind, name)| format!("{kind} {name}")).collect(),
            gaps: one.into_iter().chain(other).collect(),
        }
    }

    pub(super) fn finding(&self, check: &'static str, namespace: &str) -> Finding {
        let gaps: Vec<_> = self.gaps.iter().map(|gap| format!(" Not read: {gap}.")).collect();
        let who = match self.names.as_slice() {
            [] => "No other MutatingWebhookConfiguration and no MutatingAdmissionPolicy that was read matches pods: check the admission \
                   plugins of the API server."
                .to_owned(),
            names => format!("These change pods when they are created: {}.", list(names, NAMED)),
        };
        Finding::bad(
            check,
            format!(
                "The affinity of a pod of a labelled run is not the one that pod-affinity gave it (dry run in namespace {namespace}): \
                 something changes it after pod-affinity."
            ),
            format!(
                "Exempt pods with the label {} from it, or have it leave spec.affinity as it is. {who}{}",
                keys::GROUP,
                gaps.concat()
            ),
        )
    }
}

/// An API server that has no such policies has none that changes anything.
fn split<T>(seen: Seen<Vec<T>>) -> (Vec<T>, Option<Gap>) {
    match seen {
        Ok(found) => (found, None),
        Err(Gap::NotServed(_)) => (Vec::new(), None),
        Err(gap) => (Vec::new(), Some(gap)),
    }
}

fn rules_of(configuration: &MutatingWebhookConfiguration) -> Vec<RuleWithOperations> {
    let webhooks = configuration.webhooks.iter().flatten();
    webhooks
        .flat_map(|it| it.rules.clone().unwrap_or_default())
        .collect()
}

fn rules_of_policy(policy: &DynamicObject) -> Vec<RuleWithOperations> {
    let rules = &policy.data["spec"]["matchConstraints"]["resourceRules"];
    Vec::deserialize(rules).unwrap_or_default()
}

fn changes_pods(rules: Vec<RuleWithOperations>) -> bool {
    let has_one = |list: Option<Vec<String>>, wanted: &[&str]| {
        let mut list = list.into_iter().flatten();
        list.any(|it| wanted.contains(&it.as_str()))
    };
    rules.into_iter().any(|rule| {
        has_one(rule.api_groups, &["", "*"])
            && has_one(rule.resources, &["pods", "*", "*/*"])
            && has_one(rule.operations, &["CREATE", "*"])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::{healthy, ill};
    use crate::fixture::{forbidden, not_served, object};
    use process::install;
    use serde_json::{Value, json};

    fn rule(group: &str, resource: &str, operation: &str) -> Value {
        json!([{"apiGroups": [group], "apiVersions": ["*"], "resources": [resource], "operations": [operation]}])
    }

    fn webhook(name: &str, rules: &Value) -> MutatingWebhookConfiguration {
        let hook = json!({"name": name, "rules": rules, "admissionReviewVersions": ["v1"], "clientConfig": {}, "sideEffects": "None"});
        object(
            json!({"metadata": {"name": name}, "webhooks": [hook]}),
            &json!({}),
        )
    }

    fn policy(name: &str, rules: &Value) -> DynamicObject {
        let policy =
            json!({"metadata": {"name": name}, "spec": {"matchConstraints": {"resourceRules": rules}}});
        object(policy, &json!({}))
    }

    fn told(suspects: Suspects) -> String {
        let mut exam = healthy();
        exam.suspects = Some(suspects);
        ill(&exam)
    }

    #[test]
    fn whoever_else_changes_pods_is_named_when_an_affinity_is_undone() {
        let webhooks = vec![
            webhook("sidecars", &rule("", "pods", "CREATE")),
            webhook("all", &rule("*", "*/*", "*")),
            webhook("evictions", &rule("", "pods/eviction", "CREATE")),
            webhook("jobs", &rule("batch", "jobs", "CREATE")),
            webhook("removals", &rule("", "pods", "DELETE")),
            webhook(install::POD_WEBHOOK, &rule("", "pods", "CREATE")),
        ];
        let policies = vec![
            policy("placement", &rule("", "pods", "CREATE")),
            policy("terms.pod.pod-affinity.tekton.dev", &rule("", "pods", "CREATE")),
            policy("odd", &json!("none")),
        ];
        insta::assert_snapshot!(told(Suspects::of(Ok(webhooks), Ok(policies))));
    }

    #[test]
    fn where_nobody_else_changes_pods_the_api_server_itself_is_suspected() {
        let none = Suspects::of(Ok(Vec::new()), Err(not_served("mutatingadmissionpolicies")));
        insta::assert_snapshot!(told(none));
    }

    #[test]
    fn what_could_not_be_listed_is_named_beside_those_that_were() {
        let one = vec![webhook("sidecars", &rule("", "pods", "CREATE"))];
        let gap = forbidden("list", "mutatingadmissionpolicies.admissionregistration.k8s.io");
        let told = told(Suspects::of(Ok(one), Err(gap)));
        let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            told.contains("MutatingWebhookConfiguration sidecars. Not read: you lack the right to list"),
            "{told}"
        );
    }
}
