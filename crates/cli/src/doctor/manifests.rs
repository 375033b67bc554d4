//! The manifests of this release, with which an installation is compared.
//!
//! The files of config/ are compiled in, so that each right and each selector is written down once.

use crate::admission::{Mechanism, Meta, Policy};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::rbac::v1::{PolicyRule, RoleRef, Subject};
use kube::core::{ApiResource, GroupVersionKind};
use placement::keys;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;

const WEBHOOKS: &str = include_str!("../../../../config/500-webhooks.yaml");
const ROLES: [&str; 2] = [
    include_str!("../../../../config/201-rbac-webhook.yaml"),
    include_str!("../../../../config/202-rbac-controller.yaml"),
];

/// All manifests of config/, in the order in which they are applied.
const ALL: [&str; 11] = [
    include_str!("../../../../config/100-namespace.yaml"),
    include_str!("../../../../config/200-serviceaccounts.yaml"),
    ROLES[0],
    ROLES[1],
    include_str!("../../../../config/203-priorityclass.yaml"),
    include_str!("../../../../config/300-config-pod-affinity.yaml"),
    include_str!("../../../../config/400-secret.yaml"),
    WEBHOOKS,
    include_str!("../../../../config/600-services.yaml"),
    include_str!("../../../../config/700-webhook.yaml"),
    include_str!("../../../../config/701-controller.yaml"),
];
/// The policies of config/components/policies, each with its binding.
const POLICIES: [&str; 7] = [
    include_str!("../../../../config/components/policies/admission/hold.yaml"),
    include_str!("../../../../config/components/policies/admission/hold-by-namespace.yaml"),
    include_str!("../../../../config/components/policies/admission/stray.yaml"),
    include_str!("../../../../config/components/policies/admission/release.yaml"),
    include_str!("../../../../config/components/policies/admission/terms.yaml"),
    include_str!("../../../../config/components/policies/admission/refuse.yaml"),
    include_str!("../../../../config/components/policies/admission/warn.yaml"),
];
/// The namespace that manifests name.
const NAMESPACE: &str = "tekton-pod-affinity";
pub(crate) const CONTROLLER: &str = "pod-affinity-controller";
/// Resources that the controller needs only for the webhook: the certificates, the objects with the CA, and the owner of these objects.
const FOR_WEBHOOK: [&str; 3] = ["secrets", "mutatingwebhookconfigurations", "namespaces"];
/// The verbs that `kubectl apply` uses.
const APPLIED: [&str; 3] = ["get", "create", "patch"];

/// A right of a ServiceAccount of pod-affinity, or of the user who installs pod-affinity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Right {
    pub(crate) account: String,
    pub(crate) verb: String,
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) name: Option<String>,
    /// The right is limited to the namespace of the installation.
    pub(crate) namespaced: bool,
}

#[derive(Deserialize)]
struct Role {
    kind: String,
    metadata: Meta,
    #[serde(default)]
    rules: Vec<PolicyRule>,
}

/// Binds a role to accounts, in one namespace or in all.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Binding {
    role_ref: RoleRef,
    subjects: Vec<Subject>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    api_version: String,
    kind: String,
    metadata: Meta,
}

impl Right {
    /// Whether the right is needed only with the webhook, so that the installation with policies lacks the right.
    pub(crate) fn is_for_webhook(&self) -> bool {
        self.account != CONTROLLER || FOR_WEBHOOK.contains(&self.resource.as_str())
    }
}

impl Object {
    fn is_of_webhook(&self) -> bool {
        let component = self.metadata.labels.get(keys::COMPONENT);
        component.is_some_and(|component| component == "webhook")
    }
}

/// The webhook configurations.
pub(crate) fn webhooks() -> Vec<MutatingWebhookConfiguration> {
    documents(WEBHOOKS)
}

/// The admission policies and their bindings, for an installation in this namespace.
pub(crate) fn policies(namespace: &str) -> Vec<Policy> {
    POLICIES
        .iter()
        .flat_map(|text| documents(&text.replace(NAMESPACE, namespace)))
        .collect()
}

/// Every right that our processes need with the webhook.
pub(crate) fn rights() -> Vec<Right> {
    let bindings: Vec<Binding> = ROLES.iter().flat_map(|text| documents(text)).collect();
    let roles = ROLES.iter().flat_map(|text| documents::<Role>(text));
    roles.flat_map(|role| rights_of(&role, &bindings)).collect()
}

/// Every right that a user needs to apply the manifests.
pub(crate) fn installing(mechanism: Mechanism) -> Vec<Right> {
    let objects = ALL.iter().flat_map(|text| documents::<Object>(text));
    let objects = objects.filter(|object| mechanism != Mechanism::Policies || !object.is_of_webhook());
    let policies = POLICIES.iter().filter(|_| mechanism != Mechanism::Webhook);
    let objects = objects.chain(policies.flat_map(|text| documents(text)));
    let rights = objects.flat_map(|object| APPLIED.map(|verb| on(&object, verb)));
    let mut seen = BTreeSet::new();
    rights.filter(|right| seen.insert(right.clone())).collect()
}

/// The rights that let a user grant rights that the user does not have.
pub(crate) fn granting(mechanism: Mechanism) -> Vec<Right> {
    let roles = ROLES.iter().flat_map(|text| documents::<Object>(text));
    let roles = roles.filter(|object| object.kind.ends_with("Role"));
    let roles: Vec<_> = roles
        .filter(|role| mechanism != Mechanism::Policies || !role.is_of_webhook())
        .collect();
    let rights = roles
        .iter()
        .flat_map(|role| ["escalate", "bind"].map(|verb| on(role, verb)));
    let rights: BTreeSet<_> = rights.collect();
    rights.into_iter().collect()
}

fn on(object: &Object, verb: &str) -> Right {
    let (group, version) = object
        .api_version
        .split_once('/')
        .unwrap_or(("", &object.api_version));
    let kind = GroupVersionKind::gvk(group, version, &object.kind);
    Right {
        account: String::new(),
        verb: verb.to_owned(),
        group: group.to_owned(),
        resource: ApiResource::from_gvk(&kind).plural,
        name: None,
        namespaced: object.metadata.namespace.is_some(),
    }
}

/// The rights of the accounts to which the role is bound.
fn rights_of(role: &Role, bindings: &[Binding]) -> Vec<Right> {
    let is_of_role = |it: &&Binding| it.role_ref.kind == role.kind && it.role_ref.name == role.metadata.name;
    let subjects = bindings.iter().filter(is_of_role).flat_map(|it| &it.subjects);
    subjects
        .flat_map(|subject| rights_of_account(role, &subject.name))
        .collect()
}

fn rights_of_account(role: &Role, account: &str) -> Vec<Right> {
    let mut rights = Vec::new();
    for rule in &role.rules {
        for (group, resource, name) in objects(rule) {
            rights.extend(rule.verbs.iter().map(|verb| Right {
                account: account.to_owned(),
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

/// The documents of this shape. Other documents are skipped, and a test checks that no role is skipped.
fn documents<T: DeserializeOwned>(text: &str) -> Vec<T> {
    serde_yaml::Deserializer::from_str(text)
        .filter_map(|document| T::deserialize(document).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::install;

    #[test]
    fn both_webhook_configurations_are_there() {
        let names: Vec<_> = webhooks().into_iter().filter_map(|it| it.metadata.name).collect();
        assert_eq!(names, [install::PIPELINE_RUN_WEBHOOK, install::POD_WEBHOOK]);
    }

    #[test]
    fn every_manifest_of_the_release_is_known() {
        let manifests = |folder: &str| {
            let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
            let files = std::fs::read_dir(format!("{root}/{folder}")).unwrap();
            let files = files.map(|entry| entry.unwrap().path());
            files
                .filter(|file| file.extension() == Some("yaml".as_ref()))
                .count()
        };
        assert_eq!(manifests("config"), ALL.len());
        assert_eq!(manifests("config/components/policies/admission"), POLICIES.len());
    }

    #[test]
    fn every_policy_has_a_binding_of_its_name() {
        let policies = policies(NAMESPACE);
        let of = |is_binding: bool| -> Vec<_> {
            let found = policies.iter().filter(|it| it.is_binding() == is_binding);
            found.map(|it| it.metadata.name.as_str()).collect()
        };
        assert_eq!(of(true).len(), POLICIES.len());
        assert_eq!(of(true), of(false));
    }

    #[test]
    fn a_user_who_installs_needs_rights_to_each_kind_of_object() {
        let rights = installing(Mechanism::Webhook);
        let of = |resource: &str| -> Vec<_> {
            let found = rights.iter().filter(|it| it.resource == resource);
            found
                .map(|it| (it.verb.as_str(), it.group.as_str(), it.namespaced))
                .collect()
        };
        assert_eq!(of("poddisruptionbudgets")[1], ("create", "policy", true));
        assert_eq!(of("mutatingwebhookconfigurations").len(), APPLIED.len());
        assert_eq!(of("namespaces")[2], ("patch", "", false));
        assert_eq!(
            granting(Mechanism::Webhook).len(),
            2 * 2,
            "two verbs for ClusterRoles and Roles"
        );
    }

    #[test]
    fn a_user_who_installs_policies_needs_rights_to_them_and_to_nothing_of_the_webhook() {
        let resources = |mechanism: Mechanism| -> BTreeSet<String> {
            let rights = installing(mechanism).into_iter().chain(granting(mechanism));
            rights.map(|right| right.resource).collect()
        };
        let (webhook, policies) = (resources(Mechanism::Webhook), resources(Mechanism::Policies));
        let only = |one: &BTreeSet<String>, other| one.difference(other).cloned().collect::<Vec<_>>();
        assert_eq!(
            only(&webhook, &policies),
            ["mutatingwebhookconfigurations", "poddisruptionbudgets", "secrets"]
        );
        let of_policies = [
            "mutatingadmissionpolicies",
            "mutatingadmissionpolicybindings",
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
        ];
        assert_eq!(only(&policies, &webhook), of_policies);
        assert!(
            resources(Mechanism::Both).is_superset(&webhook)
                && resources(Mechanism::Both).is_superset(&policies)
        );
        assert_eq!(granting(Mechanism::Policies).len(), 2 * 2);
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
