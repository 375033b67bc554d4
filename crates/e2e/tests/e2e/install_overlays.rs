//! The overlays: the API server accepts each, and with that of cert-manager somebody else cares for the certificates.

use crate::beds::{SOON, nodes_after};
use crate::install_kubectl::{call, file, kubectl, printed, rendered, workspace};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use placement::keys;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    date_time_ymd,
};
use serde_json::{Value, json};
use std::path::PathBuf;
use testbed::product::{Installed, NAMESPACE};
use testbed::runs::RunSpec;
use testbed::{Definitions, Nodes, Options, Part, Testbed};

fn overlay(name: &str) -> PathBuf {
    workspace().join("overlays").join(name)
}

fn overlays() -> Vec<String> {
    let entries = std::fs::read_dir(workspace().join("overlays")).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_accepts_the_base_and_every_overlay() {
    let bed = Testbed::start(Options {
        tekton: false,
        ..Options::default()
    });
    let bed = bed.await.unwrap();
    bed.define(Definitions::CertManager).await.unwrap();
    bed.define(Definitions::PrometheusOperator).await.unwrap();
    // Nothing can be tried in a namespace that is not there.
    kubectl(&bed, &["apply", "-f", "config/100-namespace.yaml"]);
    let names = overlays();
    assert_eq!(names, ["cert-manager", "fail-open", "observability"]);
    for folder in names
        .iter()
        .map(|name| overlay(name))
        .chain([workspace().join("config")])
    {
        let objects = rendered(&bed, &folder);
        let file = file(&bed, "rendered", &objects);
        // Server-side apply refuses fields that the definitions do not know.
        let tried = kubectl(&bed, &["apply", "--server-side", "--dry-run=server", "-f", &file]);
        let accepted = tried.lines().filter(|line| line.ends_with(" (server dry run)"));
        assert_eq!(accepted.count(), objects.len(), "{}: {tried}", folder.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fail_open_lets_labelled_runs_pass_when_no_webhook_answers() {
    let bed = Testbed::start(Options::default()).await.unwrap();
    bed.add_nodes(&Nodes::new("node", 4)).await.unwrap();
    install(&bed, "fail-open").await;
    for replica in 0..2 {
        bed.kill(Part::Webhook(replica)).unwrap();
    }
    let run = RunSpec::diamond("default", "run").opted_in("true");
    let made = crate::beds::create(&bed, &run).await;
    assert!(made.data["spec"].get("status").is_none(), "nobody holds it");
    bed.until_succeeded(&run, SOON).await.unwrap();
}

/// As whoever installs does it, less the Deployments: the testbed runs the processes itself.
async fn install(bed: &Testbed, name: &str) -> Installed {
    let objects = rendered(bed, &overlay(name));
    bed.install(objects, &[], async |mut objects| {
        objects.retain(|object| object["kind"] != "Deployment");
        let file = file(bed, name, &objects);
        printed(&call(bed, "kubectl", &["apply", "-f", &file]));
        Ok(())
    })
    .await
    .unwrap()
}

/// Plays cert-manager and its cainjector as far as the overlay asks them for something: reads the Certificate and the
/// annotation, writes the Secret and `caBundle`.
struct CertManager<'a> {
    bed: &'a Testbed,
    client: Client,
    authority: CertifiedIssuer<'static, KeyPair>,
}

const CERTIFICATE: &str = "pod-affinity-webhook";
const PLAYED: &str = "played-cert-manager";

impl<'a> CertManager<'a> {
    async fn of(bed: &'a Testbed) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self {
            bed,
            client: bed.client().await.unwrap(),
            authority: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap(),
        }
    }

    /// What the Certificate asks for, once it is there.
    async fn asked(&self) -> Value {
        let object = json!({
            "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
            "metadata": {"namespace": NAMESPACE, "name": CERTIFICATE},
        });
        let (api, name) = testbed::apply::api_of(&self.client, &object).unwrap();
        let found = self.bed.until("the Certificate to be there", SOON, async || {
            api.get(&name).await.map_err(|error| error.to_string())
        });
        found.await.unwrap().data["spec"].clone()
    }

    async fn issue(&self, last_year: i32) {
        let asked = self.asked().await;
        let names: Vec<String> = serde_json::from_value(asked["dnsNames"].clone()).unwrap();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.not_after = date_time_ymd(last_year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &self.authority).unwrap();
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {"name": asked["secretName"]},
            "stringData": {"ca.crt": self.authority.pem(), "tls.crt": leaf.pem(), "tls.key": key.serialize_pem()},
        });
        let name = asked["secretName"].as_str().unwrap();
        let params = PatchParams::apply(PLAYED).force();
        secrets(&self.client)
            .patch(name, &params, &Patch::Apply(secret))
            .await
            .unwrap();
    }

    async fn inject(&self) {
        for name in [keys::PIPELINE_RUN_WEBHOOK, keys::POD_WEBHOOK] {
            let api = configurations(&self.client);
            let mut found = self
                .bed
                .until(format!("{name} to be there"), SOON, async || {
                    api.get(name).await.map_err(|error| error.to_string())
                })
                .await
                .unwrap();
            assert_eq!(
                found.annotations()["cert-manager.io/inject-ca-from"],
                format!("{NAMESPACE}/{CERTIFICATE}")
            );
            for webhook in found.webhooks.iter_mut().flatten() {
                webhook.client_config.ca_bundle = Some(ByteString(self.authority.pem().into_bytes()));
            }
            api.replace(name, &PostParams::default(), &found).await.unwrap();
        }
    }
}

fn secrets(client: &Client) -> Api<Secret> {
    Api::namespaced(client.clone(), NAMESPACE)
}

fn configurations(client: &Client) -> Api<MutatingWebhookConfiguration> {
    Api::all(client.clone())
}

/// All that the controller must not touch, by what changes with every write.
async fn versions(client: &Client) -> Vec<String> {
    let secret = secrets(client).get(keys::CERTIFICATE_SECRET).await.unwrap();
    let mut versions = vec![secret.resource_version().unwrap()];
    for name in [keys::PIPELINE_RUN_WEBHOOK, keys::POD_WEBHOOK] {
        versions.push(
            configurations(client)
                .get(name)
                .await
                .unwrap()
                .resource_version()
                .unwrap(),
        );
    }
    versions
}

async fn until_served_until(bed: &Testbed, installed: &Installed, year: i32) {
    let seconds = date_time_ymd(year, 1, 1).unix_timestamp();
    for admin in &installed.webhook_admin {
        bed.until(format!("a certificate that ends {year}"), SOON, async || {
            let metrics = testbed::probe::get(*admin, "/metrics").await?;
            let expiry = metrics
                .lines()
                .find_map(|line| line.strip_prefix("pod_affinity_certificate_expiry_timestamp_seconds "))
                .ok_or(metrics.clone())?;
            let expiry: f64 = expiry.parse().map_err(|_| expiry.to_owned())?;
            #[allow(clippy::cast_precision_loss, reason = "seconds of this century fit")]
            let served = (expiry - seconds as f64).abs() < 1.0;
            if served { Ok(()) } else { Err(expiry.to_string()) }
        })
        .await
        .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_cert_managers_overlay_its_certificates_serve_and_the_controller_leaves_them_alone() {
    let bed = Testbed::start(Options::default()).await.unwrap();
    bed.add_nodes(&Nodes::new("node", 6)).await.unwrap();
    bed.define(Definitions::CertManager).await.unwrap();
    let played = CertManager::of(&bed).await;
    // Neither replica gets ready before it has a certificate.
    let (installed, ()) = tokio::join!(install(&bed, "cert-manager"), async {
        played.issue(2100).await;
        played.inject().await;
    });
    let client = bed.client().await.unwrap();
    until_served_until(&bed, &installed, 2100).await;
    let before = versions(&client).await;
    let first = RunSpec::diamond("default", "first").opted_in("true");
    assert_eq!(nodes_after(&bed, &first).await.len(), 1);

    played.issue(2101).await;
    until_served_until(&bed, &installed, 2101).await;
    let renewed = versions(&client).await;
    assert_eq!(before[1..], renewed[1..], "the authority is the same");
    let second = RunSpec::diamond("default", "second").opted_in("true");
    assert_eq!(nodes_after(&bed, &second).await.len(), 1);

    // A leader looks at what it cares for as soon as it leads.
    for number in 0..2 {
        bed.stop(Part::Controller(number)).unwrap();
        bed.start_again(Part::Controller(number)).await.unwrap();
    }
    let third = RunSpec::diamond("default", "third").opted_in("true");
    assert_eq!(nodes_after(&bed, &third).await.len(), 1);
    assert_eq!(versions(&client).await, renewed);
}
