//! The manifests of this release, as they are in config/: what an installation is compared with.
//!
//! They are compiled in, so that there is no second list of rights or selectors that could be another.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde::Deserialize;
use serde::de::DeserializeOwned;

const WEBHOOKS: &str = include_str!("../../../../config/500-webhooks.yaml");
const ROLES: [&str; 2] = [
    include_str!("../../../../config/201-rbac-webhook.yaml"),
    include_str!("../../../../config/202-rbac-controller.yaml"),
];

/// One right of one of our accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Right {
    pub(crate) account: String,
    pub(crate) verb: String,
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) name: Option<String>,
    /// In the namespace of the installation only.
    pub(crate) namespaced: bool,
}

#[derive(Deserialize)]
struct Role {
    kind: String,
    metadata: Meta,
    #[serde(default)]
    rules: Vec<PolicyRule>,
}

#[derive(Deserialize)]
struct Meta {
    name: String,
}

/// The webhook configurations as they should be.
pub(crate) fn webhooks() -> Vec<MutatingWebhookConfiguration> {
    documents(WEBHOOKS)
}

/// Every right that our processes need. A role is named after the account that has it.
pub(crate) fn rights() -> Vec<Right> {
    ROLES
        .iter()
        .flat_map(|text| documents::<Role>(text))
        .flat_map(|role| rights_of(&role))
        .collect()
}

fn rights_of(role: &Role) -> Vec<Right> {
    let mut rights = Vec::new();
    for rule in &role.rules {
        for (group, resource, name) in objects(rule) {
            rights.extend(rule.verbs.iter().map(|verb| Right {
                account: role.metadata.name.clone(),
                verb: verb.clone(),
                group: group.clone(),
                resource: resource.clone(),
                name: name.clone(),
                namespaced: role.kind == "Role",
            }));
        }
    }
    rights
}

fn objects(rule: &PolicyRule) -> Vec<(String, String, Option<String>)> {
    let names: Vec<_> = match rule.resource_names.as_deref() {
        None | Some([]) => vec![None],
        Some(names) => names.iter().cloned().map(Some).collect(),
    };
    let mut objects = Vec::new();
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            let object = |name: &Option<String>| (group.clone(), resource.clone(), name.clone());
            objects.extend(names.iter().map(object));
        }
    }
    objects
}

/// Documents of another kind of shape are passed over; a test sees that none is.
fn documents<T: DeserializeOwned>(text: &str) -> Vec<T> {
    serde_yaml::Deserializer::from_str(text)
        .filter_map(|document| T::deserialize(document).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use placement::keys;

    #[test]
    fn both_webhook_configurations_are_there() {
        let names: Vec<_> = webhooks().into_iter().filter_map(|it| it.metadata.name).collect();
        assert_eq!(names, [keys::PIPELINE_RUN_WEBHOOK, keys::POD_WEBHOOK]);
    }

    #[test]
    fn every_rule_of_every_role_gives_rights() {
        let rights = rights();
        let has = |account: &str, verb: &str, resource: &str, namespaced: bool| {
            rights.iter().any(|it| {
                (
                    it.account.as_str(),
                    it.verb.as_str(),
                    it.resource.as_str(),
                    it.namespaced,
                ) == (account, verb, resource, namespaced)
            })
        };
        assert!(has("pod-affinity-webhook", "watch", "secrets", true));
        assert!(has("pod-affinity-controller", "patch", "pipelineruns", false));
        assert!(has("pod-affinity-controller", "update", "leases", true));
        let rules = ROLES
            .iter()
            .flat_map(|text| documents::<Role>(text))
            .map(|role| role.rules.len());
        assert!(rights.len() > rules.sum());
    }
}
