//! Writes the `caBundle` of both webhook configurations, and our namespace as their owner. JSON patches write one field at a
//! time. The manifests do not contain these fields, so `kubectl apply`, client-side or server-side, keeps them.

use crate::{params, words};
use json_patch::{Patch, PatchOperation};
use k8s_openapi::{
    ByteString,
    api::{admissionregistration::v1::MutatingWebhookConfiguration, core::v1::Namespace},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{Api, Client, ResourceExt, api::Patch as ApiPatch};
use placement::keys;
use serde_json::{Value, json};
use thiserror::Error;

/// The two configurations that trust our CA.
pub const CONFIGURATIONS: [&str; 2] = [keys::PIPELINE_RUN_WEBHOOK, keys::POD_WEBHOOK];

const NAMESPACE: &str = "Namespace";

/// With one of these annotations, another controller writes `caBundle`.
const INJECTORS: [&str; 4] = [
    "cert-manager.io/inject-ca-from",
    "cert-manager.io/inject-ca-from-secret",
    "cert-manager.io/inject-apiserver-ca",
    "service.beta.openshift.io/inject-cabundle",
];

/// The reason why API servers do not trust the current bundle.
#[derive(Debug, Error)]
pub enum Error {
    /// A configuration cannot be read.
    #[error(
        "cannot read MutatingWebhookConfiguration {name}: {}; check the controller's ClusterRole",
        words::of(source)
    )]
    Read {
        /// Name of the configuration.
        name: &'static str,
        /// The error of the request.
        source: Box<kube::Error>,
    },
    /// A configuration cannot be patched.
    #[error(
        "cannot patch MutatingWebhookConfiguration {name}: {}; check the controller's ClusterRole",
        words::of(source)
    )]
    Write {
        /// Name of the configuration.
        name: String,
        /// The error of the request.
        source: Box<kube::Error>,
    },
    /// The patch could not be built.
    #[error("cannot build the patch of caBundle: {0}; this is a fault in pod-affinity, please report it")]
    Build(#[from] serde_json::Error),
}

/// Both configurations as last read; a missing configuration is left out.
#[derive(Clone)]
pub struct Configurations {
    api: Api<MutatingWebhookConfiguration>,
    seen: Vec<MutatingWebhookConfiguration>,
    owner: Option<OwnerReference>,
}

impl Configurations {
    /// Reads both configurations, and the namespace that becomes their owner.
    pub async fn read(client: Client, namespace: &str) -> Result<Self, Error> {
        let owner = owner(client.clone(), namespace).await;
        let api = Api::all(client);
        let mut seen = Vec::new();
        for name in CONFIGURATIONS {
            let failed = |error| Error::Read {
                name,
                source: Box::new(error),
            };
            seen.extend(api.get_opt(name).await.map_err(failed)?);
        }
        Ok(Self { api, seen, owner })
    }

    /// The annotation with which another controller manages the certificates, if present.
    pub fn injector(&self) -> Option<&'static str> {
        self.seen.iter().find_map(injector)
    }

    /// All CAs in the current `caBundle` fields, as PEM.
    pub fn trusted(&self) -> String {
        let webhooks = self.seen.iter().flat_map(|one| one.webhooks.iter().flatten());
        webhooks
            .filter_map(|webhook| webhook.client_config.ca_bundle.as_ref())
            .filter_map(|bundle| String::from_utf8(bundle.0.clone()).ok())
            .collect()
    }

    /// Writes `bundle` to both configurations. Returns whether a `caBundle` changed.
    pub async fn publish(&mut self, bundle: &str) -> Result<bool, Error> {
        let mut written = false;
        for one in &mut self.seen {
            let patch = trust(one, bundle)?;
            if !patch.0.is_empty() {
                *one = write(&self.api, &one.name_any(), patch).await?;
                written = true;
            }
        }
        Ok(written)
    }

    /// Makes the namespace the owner of both configurations.
    pub async fn belong(&mut self) -> Result<(), Error> {
        for one in &mut self.seen {
            let owner = self.owner.as_ref();
            if let Some(operation) = owner.and_then(|owner| belong(one, owner)) {
                *one = write(&self.api, &one.name_any(), Patch(vec![operation])).await?;
            }
        }
        Ok(())
    }
}

/// The namespace as owner of the configurations. Without an owner, the configurations would outlive the namespace, and API
/// servers would call a missing webhook for each labelled run. If the namespace cannot be read, the owner is left out.
async fn owner(client: Client, name: &str) -> Option<OwnerReference> {
    let namespace = Api::<Namespace>::all(client).get_metadata_opt(name).await;
    let uid = namespace.ok().flatten()?.metadata.uid?;
    Some(OwnerReference {
        api_version: "v1".to_owned(),
        kind: NAMESPACE.to_owned(),
        name: name.to_owned(),
        uid,
        ..OwnerReference::default()
    })
}

/// Adds the owner to a configuration, and removes an earlier owner of the same name.
fn belong(configuration: &MutatingWebhookConfiguration, owner: &OwnerReference) -> Option<PatchOperation> {
    let owners = configuration.owner_references();
    if owners.contains(owner) {
        return None;
    }
    let is_other = |other: &&OwnerReference| (&other.kind, &other.name) != (&owner.kind, &owner.name);
    let owners: Vec<_> = owners.iter().filter(is_other).chain([owner]).collect();
    serde_json::from_value(json!({"op": "add", "path": "/metadata/ownerReferences", "value": owners})).ok()
}

/// The annotation with which another controller writes this configuration's `caBundle`, if present.
pub fn injector(configuration: &MutatingWebhookConfiguration) -> Option<&'static str> {
    let annotations = configuration.annotations();
    INJECTORS.into_iter().find(|key| annotations.contains_key(*key))
}

/// The patch that sets `bundle` in every webhook of a configuration; empty if all have it. A test of the webhook's name guards
/// each write, because another client may have reordered the list since the read.
pub fn trust(configuration: &MutatingWebhookConfiguration, bundle: &str) -> Result<Patch, serde_json::Error> {
    let wanted = ByteString(bundle.as_bytes().to_vec());
    let webhooks = configuration.webhooks.iter().flatten().enumerate();
    let operations: Vec<Value> = webhooks
        .filter(|(_, webhook)| webhook.client_config.ca_bundle.as_ref() != Some(&wanted))
        .flat_map(|(index, webhook)| {
            let webhook_path = format!("/webhooks/{index}");
            [
                json!({"op": "test", "path": format!("{webhook_path}/name"), "value": webhook.name}),
                json!({"op": "add", "path": format!("{webhook_path}/clientConfig/caBundle"), "value": wanted}),
            ]
        })
        .collect();
    serde_json::from_value(Value::Array(operations))
}

async fn write(
    api: &Api<MutatingWebhookConfiguration>,
    name: &str,
    patch: Patch,
) -> Result<MutatingWebhookConfiguration, Error> {
    let failed = |error| Error::Write {
        name: name.to_owned(),
        source: Box::new(error),
    };
    api.patch(name, &params::patch(), &ApiPatch::Json::<()>(patch))
        .await
        .map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(bundles: &[Option<&str>]) -> MutatingWebhookConfiguration {
        let encoded = |text: &str| json!(ByteString(text.as_bytes().to_vec()));
        let webhook = |(index, bundle): (usize, Option<&str>)| {
            json!({
                "name": format!("webhook-{index}"),
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "clientConfig": bundle.map_or(json!({}), |text| json!({"caBundle": encoded(text)})),
            })
        };
        let webhooks: Vec<Value> = bundles.iter().copied().enumerate().map(webhook).collect();
        serde_json::from_value(json!({"metadata": {"name": "x"}, "webhooks": webhooks})).unwrap()
    }

    #[test]
    fn a_webhook_that_trusts_the_bundle_is_left_alone() {
        assert!(
            trust(&configuration(&[Some("bundle")]), "bundle")
                .unwrap()
                .0
                .is_empty()
        );
        assert!(trust(&configuration(&[]), "bundle").unwrap().0.is_empty());
    }

    #[test]
    fn a_missing_and_an_outdated_bundle_are_written_and_nothing_else_changes() {
        let before = configuration(&[None, Some("bundle"), Some("old")]);
        let mut document = serde_json::to_value(&before).unwrap();
        json_patch::patch(&mut document, &trust(&before, "bundle").unwrap()).unwrap();
        let after = serde_json::to_value(configuration(&[Some("bundle"); 3])).unwrap();
        assert_eq!(document, after);
    }

    #[test]
    fn a_configuration_goes_with_its_namespace_and_with_none_that_was_there_before() {
        let namespace = |uid: &str| OwnerReference {
            api_version: "v1".into(),
            kind: NAMESPACE.into(),
            name: "ns".into(),
            uid: uid.into(),
            ..OwnerReference::default()
        };
        let other = OwnerReference {
            kind: "Other".into(),
            ..namespace("u9")
        };
        let table = [
            (vec![], Some(vec![namespace("u2")])),
            (vec![namespace("u2")], None),
            (
                vec![namespace("u1"), other.clone()],
                Some(vec![other, namespace("u2")]),
            ),
        ];
        for (before, after) in table {
            let mut one = configuration(&[]);
            one.metadata.owner_references = Some(before);
            let value =
                belong(&one, &namespace("u2")).map(|operation| serde_json::to_value(operation).unwrap());
            let expected = after.map(|owners| serde_json::to_value(owners).unwrap());
            assert_eq!(value.map(|value| value["value"].clone()), expected);
        }
    }

    #[test]
    fn a_list_reordered_since_it_was_read_refuses_the_patch() {
        let patch = trust(&configuration(&[None, Some("bundle")]), "bundle").unwrap();
        let mut reordered = serde_json::to_value(configuration(&[None, None])).unwrap();
        reordered["webhooks"].as_array_mut().unwrap().reverse();
        assert!(json_patch::patch(&mut reordered, &patch).is_err());
    }
}
