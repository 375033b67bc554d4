//! Writes the `caBundle` of both webhook configurations, and our namespace as their owner. JSON patches write one field at a
//! time. The manifests do not contain these fields, so `kubectl apply`, client-side or server-side, keeps them.

use crate::api;
use crate::install;
use json_patch::{Patch, PatchOperation};
use k8s_openapi::{
    ByteString,
    api::{admissionregistration::v1::MutatingWebhookConfiguration, core::v1::Namespace},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{Api, Client, ResourceExt, api::Patch as ApiPatch};
use serde_json::{Value, json};
use thiserror::Error;

/// The two configurations that trust our CA.
pub const CONFIGURATIONS: [&str; 2] = [install::PIPELINE_RUN_WEBHOOK, install::POD_WEBHOOK];

const NAMESPACE: &str = "Namespace";

/// The annotation of objects that Argo CD applied.
const ARGO_CD: &str = "argocd.argoproj.io/tracking-id";

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
        api::error_text(source)
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
        api::error_text(source)
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
pub struct WebhookConfigurations {
    api: Api<MutatingWebhookConfiguration>,
    found: Vec<MutatingWebhookConfiguration>,
    owner: Option<OwnerReference>,
}

impl WebhookConfigurations {
    /// Reads both configurations, and the namespace that becomes their owner.
    pub async fn read(client: Client, namespace: &str) -> Result<Self, Error> {
        let owner = owner(client.clone(), namespace).await;
        let api = Api::all(client);
        let mut found = Vec::new();
        for name in CONFIGURATIONS {
            let failed = |error| Error::Read {
                name,
                source: Box::new(error),
            };
            found.extend(api.get_opt(name).await.map_err(failed)?);
        }
        Ok(Self { api, found, owner })
    }

    /// The annotation with which another controller manages the certificates, if present.
    pub fn injector(&self) -> Option<&'static str> {
        self.found.iter().find_map(injector)
    }

    /// All CAs in the current `caBundle` fields, as PEM.
    pub fn trusted(&self) -> String {
        let webhooks = self
            .found
            .iter()
            .flat_map(|configuration| configuration.webhooks.iter().flatten());
        webhooks
            .filter_map(|webhook| webhook.client_config.ca_bundle.as_ref())
            .filter_map(|bundle| String::from_utf8(bundle.0.clone()).ok())
            .collect()
    }

    /// Writes `bundle` to both configurations. Returns whether a `caBundle` changed.
    pub async fn publish(&mut self, bundle: &str) -> Result<bool, Error> {
        let mut written = false;
        for configuration in &mut self.found {
            let patch = patch_of_bundle(configuration, bundle)?;
            if !patch.0.is_empty() {
                *configuration = write(&self.api, &configuration.name_any(), patch).await?;
                written = true;
            }
        }
        Ok(written)
    }

    /// Makes the namespace the owner of both configurations.
    pub async fn set_owner(&mut self) -> Result<(), Error> {
        for configuration in &mut self.found {
            let owner = self.owner.as_ref();
            if let Some(operation) = owner.and_then(|owner| patch_of_owner(configuration, owner)) {
                *configuration = write(&self.api, &configuration.name_any(), Patch(vec![operation])).await?;
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

/// Adds the owner to a configuration, and removes an earlier owner of the same name. Argo CD deletes no object that has an owner, so
/// its objects get none.
fn patch_of_owner(
    configuration: &MutatingWebhookConfiguration,
    owner: &OwnerReference,
) -> Option<PatchOperation> {
    let owners = configuration.owner_references();
    if owners.contains(owner) || configuration.annotations().contains_key(ARGO_CD) {
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
pub fn patch_of_bundle(
    configuration: &MutatingWebhookConfiguration,
    bundle: &str,
) -> Result<Patch, serde_json::Error> {
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
    api.patch(name, &api::patch_params(), &ApiPatch::Json::<()>(patch))
        .await
        .map_err(failed)
}

#[cfg(test)]
mod tests;
