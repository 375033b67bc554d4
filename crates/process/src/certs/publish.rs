//! The `caBundle` of both webhook configurations. Written by JSON patch, one field at a time: the manifests do not hold
//! that field, so neither form of `kubectl apply` ever takes it back.

use crate::words;
use json_patch::Patch;
use k8s_openapi::{ByteString, api::admissionregistration::v1::MutatingWebhookConfiguration};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch as ApiPatch, PatchParams},
};
use placement::keys;
use serde_json::{Value, json};
use thiserror::Error;

/// The two configurations that trust our authority.
pub const CONFIGURATIONS: [&str; 2] = [keys::PIPELINE_RUN_WEBHOOK, keys::POD_WEBHOOK];

/// Annotations by which somebody else says that `caBundle` is his.
const INJECTORS: [&str; 4] = [
    "cert-manager.io/inject-ca-from",
    "cert-manager.io/inject-ca-from-secret",
    "cert-manager.io/inject-apiserver-ca",
    "service.beta.openshift.io/inject-cabundle",
];

/// Why the API server does not trust the current bundle.
#[derive(Debug, Error)]
pub enum Error {
    /// Not readable.
    #[error(
        "cannot read MutatingWebhookConfiguration {name}: {}; check the controller's ClusterRole",
        words::of(source)
    )]
    Read {
        /// Its name.
        name: &'static str,
        /// What the API server said.
        source: Box<kube::Error>,
    },
    /// Not writable.
    #[error(
        "cannot write caBundle of MutatingWebhookConfiguration {name}: {}; check the controller's ClusterRole",
        words::of(source)
    )]
    Write {
        /// Its name.
        name: String,
        /// What the API server said.
        source: Box<kube::Error>,
    },
    /// The patch could not be built.
    #[error("cannot build the patch of caBundle: {0}; this is a fault in pod-affinity, please report it")]
    Build(#[from] serde_json::Error),
}

/// Both configurations as they were last seen; one that does not exist is left out.
#[derive(Clone)]
pub struct Configurations {
    api: Api<MutatingWebhookConfiguration>,
    seen: Vec<MutatingWebhookConfiguration>,
}

impl Configurations {
    /// Reads both.
    pub async fn read(client: Client) -> Result<Self, Error> {
        let api = Api::all(client);
        let mut seen = Vec::new();
        for name in CONFIGURATIONS {
            let failed = |error| Error::Read {
                name,
                source: Box::new(error),
            };
            seen.extend(api.get_opt(name).await.map_err(failed)?);
        }
        Ok(Self { api, seen })
    }

    /// The annotation, if there is one, by which somebody else cares for the certificates.
    pub fn injector(&self) -> Option<&'static str> {
        self.seen.iter().find_map(injector)
    }

    /// Every authority that is trusted now, as PEM.
    pub fn trusted(&self) -> String {
        let webhooks = self.seen.iter().flat_map(|one| one.webhooks.iter().flatten());
        webhooks
            .filter_map(|webhook| webhook.client_config.ca_bundle.as_ref())
            .filter_map(|bundle| String::from_utf8(bundle.0.clone()).ok())
            .collect()
    }

    /// Makes both trust `bundle`; `true` when something had to be written.
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
}

/// The annotation, if there is one, by which somebody else cares for a configuration's `caBundle`.
pub fn injector(configuration: &MutatingWebhookConfiguration) -> Option<&'static str> {
    let annotations = configuration.annotations();
    INJECTORS.into_iter().find(|key| annotations.contains_key(*key))
}

/// The patch that makes every webhook of a configuration trust `bundle`; empty when all do. Each write is guarded by the
/// webhook's name, since the list may have been reordered since it was read.
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
    let params = PatchParams {
        field_manager: Some(keys::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let failed = |error| Error::Write {
        name: name.to_owned(),
        source: Box::new(error),
    };
    api.patch(name, &params, &ApiPatch::Json::<()>(patch))
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
    fn a_list_reordered_since_it_was_read_refuses_the_patch() {
        let patch = trust(&configuration(&[None, Some("bundle")]), "bundle").unwrap();
        let mut reordered = serde_json::to_value(configuration(&[None, None])).unwrap();
        reordered["webhooks"].as_array_mut().unwrap().reverse();
        assert!(json_patch::patch(&mut reordered, &patch).is_err());
    }
}
