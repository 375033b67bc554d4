//! Acts as cert-manager and its cainjector, for the objects of the overlay.

use crate::support::SOON;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    date_time_ymd,
};
use runtime::install;
use serde_json::{Value, json};
use testbed::Testbed;
use testbed::product::NAMESPACE;

/// Reads the Certificate and the annotation, writes the Secret and `caBundle`.
pub(crate) struct CertManager<'a> {
    bed: &'a Testbed,
    client: Client,
    authority: CertifiedIssuer<'static, KeyPair>,
}

const CERTIFICATE: &str = "pod-affinity-webhook";
const PLAYED: &str = "played-cert-manager";

impl<'a> CertManager<'a> {
    pub(crate) async fn start(bed: &'a Testbed) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self {
            bed,
            client: bed.client().await.unwrap(),
            authority: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap(),
        }
    }

    /// The Certificate, after it was created.
    async fn certificate(&self) -> Value {
        let object = json!({
            "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
            "metadata": {"namespace": NAMESPACE, "name": CERTIFICATE},
        });
        let (api, name) = testbed::apply::api_of(&self.client, &object).unwrap();
        let found = self.bed.until("the Certificate to exist", SOON, async || {
            api.get(&name).await.map_err(|error| error.to_string())
        });
        found.await.unwrap().data["spec"].clone()
    }

    /// The CA's certificate.
    pub(crate) fn ca(&self) -> String {
        self.authority.pem()
    }

    pub(crate) async fn issue(&self, last_year: i32) {
        let certificate = self.certificate().await;
        let names = serde_json::from_value(certificate["dnsNames"].clone()).unwrap();
        self.write(certificate["secretName"].as_str().unwrap(), names, last_year)
            .await;
    }

    /// Writes a Secret with a certificate for these names.
    pub(crate) async fn write(&self, name: &str, names: Vec<String>, last_year: i32) {
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.not_after = date_time_ymd(last_year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &self.authority).unwrap();
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {"name": name},
            "stringData": {"ca.crt": self.ca(), "tls.crt": leaf.pem(), "tls.key": key.serialize_pem()},
        });
        let params = PatchParams::apply(PLAYED).force();
        secrets(&self.client)
            .patch(name, &params, &Patch::Apply(secret))
            .await
            .unwrap();
    }

    pub(crate) async fn inject(&self) {
        for name in [install::PIPELINE_RUN_WEBHOOK, install::POD_WEBHOOK] {
            let api = configurations(&self.client);
            // The controllers change the object as well when they start.
            let injected = self.bed.until(format!("{name} to be injected"), SOON, async || {
                let mut found = api.get(name).await?;
                assert_eq!(
                    found.annotations()["cert-manager.io/inject-ca-from"],
                    format!("{NAMESPACE}/{CERTIFICATE}")
                );
                for webhook in found.webhooks.iter_mut().flatten() {
                    webhook.client_config.ca_bundle = Some(ByteString(self.authority.pem().into_bytes()));
                }
                api.replace(name, &PostParams::default(), &found).await
            });
            injected.await.unwrap();
        }
    }
}

pub(crate) fn secrets(client: &Client) -> Api<Secret> {
    Api::namespaced(client.clone(), NAMESPACE)
}

pub(crate) fn configurations(client: &Client) -> Api<MutatingWebhookConfiguration> {
    Api::all(client.clone())
}
