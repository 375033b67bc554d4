//! Tekton Pipelines: the manifests from Tekton's module, and two host processes with the tokens of their own ServiceAccounts.
//!
//! The webhook keeps its `clientConfig.service`: the Service becomes an `ExternalName` of localhost, and only the port is added, so
//! the API server still checks the certificate for the Service.

use crate::apply;
use crate::binaries::{self, Built};
use crate::error::{Error, Result};
use crate::options::{Limits, Settings};
use crate::part::{Launch, Part};
use crate::recipe;
use crate::testbed::{READY, Testbed, built};
use crate::versions;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Tekton's namespace.
pub const NAMESPACE: &str = "tekton-pipelines";
const WEBHOOK_SERVICE: &str = "tekton-pipelines-webhook";
const WEBHOOK_PORT: &str = "WEBHOOK_PORT";
/// The name of an image that no node pulls.
const ENTRYPOINT: &str = "testbed.invalid/entrypoint";
/// Kinds that are not applied, because the testbed runs the processes itself.
const WORKLOADS: [&str; 4] = [
    "Deployment",
    "HorizontalPodAutoscaler",
    "PodDisruptionBudget",
    "Pod",
];

pub(crate) async fn start(bed: &Testbed, built: &Built) -> Result<()> {
    let webhook_port = bed.port()?;
    apply_manifests(bed, built, webhook_port).await?;
    start_processes(bed, built, webhook_port).await
}

/// Replaces the running Tekton. The old webhook runs while the ConfigMaps are applied, because it admits them. The controller
/// runs only while a webhook is ready, as in a cluster, where the old webhook stays until the new webhook is ready.
pub(crate) async fn replace(bed: &Testbed, built: &Built) -> Result<()> {
    let webhook_port = bed.parts.setting(Part::TektonWebhook, WEBHOOK_PORT);
    let webhook_port = webhook_port.and_then(|port| port.parse().ok());
    let webhook_port = webhook_port.ok_or_else(|| Error::NotRunning(Part::TektonWebhook.to_string()))?;
    apply_manifests(bed, built, webhook_port).await?;
    bed.stop(Part::TektonController)?;
    bed.stop(Part::TektonWebhook)?;
    start_processes(bed, built, webhook_port).await
}

async fn start_processes(bed: &Testbed, built: &Built, webhook_port: u16) -> Result<()> {
    start_webhook(bed, built, webhook_port).await?;
    start_controller(bed, built, ENTRYPOINT).await?;
    answers(bed).await?;
    converts(bed).await
}

async fn apply_manifests(bed: &Testbed, built: &Built, webhook_port: u16) -> Result<()> {
    let client = bed.client().await?;
    let mut manifests = manifests(built, webhook_port)?;
    if bed.options.settings == Settings::Reduced {
        manifests.iter_mut().for_each(reduce);
    }
    // Custom resource definitions are applied first, so that the API server serves them when the processes start.
    let (definitions, others): (Vec<_>, Vec<_>) = manifests
        .into_iter()
        .partition(|object| object["kind"] == "CustomResourceDefinition");
    apply::apply_all(&client, &definitions).await?;
    apply::apply_all(&client, &others).await
}

fn manifests(built: &Built, webhook_port: u16) -> Result<Vec<Value>> {
    let config = built.asset("config");
    let mut objects = apply::documents(&config.join("100-namespace"))?;
    objects.extend(apply::documents(&config.join("300-crds"))?);
    objects.extend(apply::documents(&config)?);
    objects.retain(|object| !WORKLOADS.iter().any(|kind| object["kind"] == *kind));
    for object in &mut objects {
        redirect(object, webhook_port);
    }
    Ok(objects)
}

/// Turns off Tekton's webhook for status updates, which are half of its webhook calls, and the support of sidecars that other
/// webhooks inject, which is a patch of each pod.
fn reduce(object: &mut Value) {
    match object["kind"].as_str() {
        Some("MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => {
            for webhook in object["webhooks"].as_array_mut().into_iter().flatten() {
                webhook["matchConditions"] = json!([{"name": "no-status", "expression": "!has(request.subResource) || request.subResource != 'status'"}]);
            }
        }
        Some("ConfigMap") if object["metadata"]["name"] == "feature-flags" => {
            object["data"]["running-in-environment-with-injected-sidecars"] = json!("false");
        }
        _ => {}
    }
}

/// Redirects calls of the webhook's Service to a port of localhost.
pub(crate) fn redirect(object: &mut Value, port: u16) {
    match object["kind"].as_str() {
        Some("Service") => object["spec"] = json!({"type": "ExternalName", "externalName": "localhost"}),
        Some("CustomResourceDefinition") => {
            set_port(
                object.pointer_mut("/spec/conversion/webhook/clientConfig/service"),
                port,
            );
        }
        Some("MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => {
            for webhook in object["webhooks"].as_array_mut().into_iter().flatten() {
                set_port(webhook.pointer_mut("/clientConfig/service"), port);
            }
        }
        _ => {}
    }
}

fn set_port(service: Option<&mut Value>, port: u16) {
    if let Some(service) = service {
        service["port"] = json!(port);
    }
}

async fn start_webhook(bed: &Testbed, built: &Built, port: u16) -> Result<()> {
    let probes = bed.port()?;
    let launch = common(bed, built, "webhook", probes)
        .await?
        .env("CONFIG_LEADERELECTION_NAME", "config-leader-election-webhook")
        .env(WEBHOOK_PORT, port.to_string())
        .env("WEBHOOK_SERVICE_NAME", WEBHOOK_SERVICE)
        .env("WEBHOOK_SECRET_NAME", "webhook-certs")
        .env("WEBHOOK_ADMISSION_CONTROLLER_NAME", "webhook.pipeline.tekton.dev");
    bed.launch(Part::TektonWebhook, launch)?;
    bed.listens(Part::TektonWebhook, probes).await
}

async fn start_controller(bed: &Testbed, built: &Built, entrypoint: &str) -> Result<()> {
    let probes = bed.port()?;
    let mut launch = common(bed, built, "controller", probes)
        .await?
        .env("CONFIG_LEADERELECTION_NAME", "config-leader-election-controller")
        .env("CONFIG_DEFAULTS_NAME", "config-defaults")
        .env("CONFIG_SPIRE", "config-spire")
        .arg(format!("-entrypoint-image={entrypoint}"));
    if bed.options.limits != Limits::AsShipped {
        launch = launch
            .arg("-kube-api-qps=300")
            .arg("-kube-api-burst=600")
            .arg(format!(
                "-threads-per-controller={}",
                threads(bed.options.settings)
            ));
    }
    for image in [
        "nop",
        "sidecarlogresults",
        "workingdirinit",
        "shell",
        "shell-image-win",
    ] {
        let flag = if image.contains('-') {
            image.to_owned()
        } else {
            format!("{image}-image")
        };
        // No node pulls these images; Tekton only needs the names.
        launch = launch
            .arg(format!("-{flag}"))
            .arg(format!("testbed.invalid/{image}"));
    }
    bed.launch(Part::TektonController, launch)?;
    bed.listens(Part::TektonController, probes).await
}

/// Number of worker threads. With more threads, concurrent reconciles of a run conflict more often, and each conflict costs three
/// requests.
fn threads(settings: Settings) -> u8 {
    match settings {
        Settings::Shipped => 32,
        Settings::Reduced => 4,
    }
}

async fn common(bed: &Testbed, built: &Built, program: &str, probes: u16) -> Result<Launch> {
    let kubeconfig = bed
        .kubeconfig_of(NAMESPACE, &format!("tekton-pipelines-{program}"))
        .await?;
    Ok(Launch::new(built.program(program))
        .arg("-disable-ha")
        .env("KUBECONFIG", kubeconfig.display().to_string())
        .env("SYSTEM_NAMESPACE", NAMESPACE)
        .env("KUBERNETES_MIN_VERSION", "v1.28.0")
        .env("CONFIG_LOGGING_NAME", "config-logging")
        .env("CONFIG_OBSERVABILITY_NAME", "config-observability")
        .env("CONFIG_FEATURE_FLAGS_NAME", "feature-flags")
        .env("METRICS_DOMAIN", "tekton.dev/pipeline")
        .env("METRICS_PROMETHEUS_PORT", bed.port()?.to_string())
        .env("PROBES_PORT", probes.to_string()))
}

/// Waits until Tekton's webhook has written its CA into all custom resource definitions. With an earlier baseline, each reset would
/// remove the CA, and the webhook would write the CA again.
async fn converts(bed: &Testbed) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(bed.client().await?);
    bed.until("Tekton's webhook to convert objects", READY, async || {
        let listed = definitions.list(&ListParams::default()).await;
        let listed = listed.map_err(|error| error.to_string())?;
        let lacks = listed.iter().find(|definition| lacks_ca(definition));
        lacks.map_or(Ok(()), |definition| Err(definition.name_any()))
    })
    .await
}

fn lacks_ca(definition: &CustomResourceDefinition) -> bool {
    let conversion = definition.spec.conversion.as_ref();
    let webhook = conversion.and_then(|conversion| conversion.webhook.as_ref());
    let client = webhook.and_then(|webhook| webhook.client_config.as_ref());
    definition.spec.group.ends_with("tekton.dev") && client.is_some_and(|client| client.ca_bundle.is_none())
}

/// Waits until the API server would accept a run: definitions are served, the webhook is reachable, its certificate is trusted.
pub(crate) async fn answers(bed: &Testbed) -> Result<()> {
    let client = bed.client().await?;
    let run = json!({
        "apiVersion": "tekton.dev/v1",
        "kind": "PipelineRun",
        "metadata": {"name": "testbed-readiness", "namespace": "default"},
        "spec": {"pipelineRef": {"name": "none"}},
    });
    let (runs, _) = apply::api_of(&client, &run).ok_or_else(|| Error::NotRunning("tekton".into()))?;
    let run: DynamicObject = serde_json::from_value(run).map_err(|error| Error::Manifest {
        file: "(readiness run)".into(),
        problem: error.to_string(),
    })?;
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    bed.until("Tekton to accept a run (dry run)", READY, async || {
        let accepted = runs
            .create(&dry_run, &run)
            .await
            .map_err(|error| error.to_string())?;
        // Tekton's webhook sets this field. Without the field, the webhook was not called.
        accepted
            .data
            .pointer("/spec/timeouts")
            .map(drop)
            .ok_or_else(|| "not defaulted".to_owned())
    })
    .await
}

impl Testbed {
    /// Tekton's program that runs each step of a task; its path in an image is `/ko-app/entrypoint`.
    pub async fn tekton_entrypoint(&self) -> Result<PathBuf> {
        let [built] = built(|| binaries::ensure([&recipe::TEKTON_ENTRYPOINT])).await?;
        Ok(built.program("entrypoint"))
    }

    /// Restarts Tekton's controller with an image of the entrypoint, for pods that really run.
    pub async fn tekton_entrypoint_image(&self, image: &str) -> Result<()> {
        let tekton = self.versions.tekton.recipe();
        let [built] = built(|| binaries::ensure([tekton])).await?;
        self.kill(Part::TektonController)?;
        start_controller(self, &built, image).await
    }

    /// Sets feature flags of Tekton, such as `coschedule`.
    pub async fn feature_flags(&self, flags: &[(&str, &str)]) -> Result<()> {
        self.tekton_config("feature-flags", flags).await
    }

    /// Sets keys of one of Tekton's ConfigMaps and restarts Tekton, so that the keys take effect. Without a restart Tekton also
    /// reads the keys, but does not report when.
    pub async fn tekton_config(&self, name: &str, data: &[(&str, &str)]) -> Result<()> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client().await?, NAMESPACE);
        let data: serde_json::Map<_, _> = data
            .iter()
            .map(|(key, value)| ((*key).into(), json!(value)))
            .collect();
        let patch = Patch::Merge(json!({"data": data}));
        let what = format!("setting {name}");
        maps.patch(name, &PatchParams::default(), &patch)
            .await
            .map_err(Error::api(what))?;
        self.restart_tekton().await
    }

    pub(crate) async fn restart_tekton(&self) -> Result<()> {
        for part in [Part::TektonController, Part::TektonWebhook] {
            self.kill(part)?;
            self.start_again(part).await?;
        }
        Ok(())
    }

    /// Applies the manifests of another Tekton and replaces its processes. The webhook is down during its replacement.
    pub async fn upgrade_tekton(&self, to: versions::Tekton) -> Result<()> {
        let [tekton] = built(move || binaries::ensure([to.recipe()])).await?;
        replace(self, &tekton).await
    }
}
