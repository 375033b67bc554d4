//! Parts of other projects that tests need: custom resource definitions, a registry and its client, Helm, Flux, Prometheus and promtool, and
//! Tekton's examples.

use crate::apply;
use crate::binaries;
use crate::error::{Result, write};
use crate::part::{Launch, Part};
use crate::probe;
use crate::recipe::{
    CERT_MANAGER, CRANE, FLUX, HELM_3, HELM_4, PROMETHEUS, PROMETHEUS_OPERATOR, PROMTOOL, REGISTRY,
    TEKTONS_EXAMPLES,
};
use crate::testbed::{READY, Testbed, built};
use crate::versions::Versions;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionCondition,
};
use kube::api::Api;
use serde_json::{Value, json};
use std::path::PathBuf;

/// The project of the custom resource definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Definitions {
    /// cert-manager.
    CertManager,
    /// The Prometheus operator.
    PrometheusOperator,
}

/// Path of crane.
pub async fn crane() -> Result<PathBuf> {
    let [built] = built(|| binaries::ensure([&CRANE])).await?;
    Ok(built.program("crane"))
}

/// A major version of Helm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Helm {
    /// Helm 3.
    V3,
    /// Helm 4.
    V4,
}

impl Helm {
    /// Path of helm.
    pub async fn path(self) -> Result<PathBuf> {
        let recipe = match self {
            Self::V3 => &HELM_3,
            Self::V4 => &HELM_4,
        };
        let [built] = built(move || binaries::ensure([recipe])).await?;
        Ok(built.program("helm"))
    }
}

/// Path of the program that applies objects as Flux does.
pub async fn flux() -> Result<PathBuf> {
    let [built] = built(|| binaries::ensure([&FLUX])).await?;
    Ok(built.program("flux"))
}

/// Path of promtool.
pub async fn promtool() -> Result<PathBuf> {
    let [built] = built(|| binaries::ensure([&PROMTOOL])).await?;
    Ok(built.program("promtool"))
}

/// Folder of Tekton's example PipelineRuns.
pub async fn tektons_examples(versions: Versions) -> Result<PathBuf> {
    let recipe = versions.tekton.recipe();
    let [built] = built(move || binaries::ensure([recipe])).await?;
    Ok(built.asset(TEKTONS_EXAMPLES))
}

impl Testbed {
    /// Starts an OCI registry, with its content in the testbed's folder, and returns its address, such as `127.0.0.1:20012`.
    pub async fn start_registry(&self) -> Result<String> {
        let [built] = built(|| binaries::ensure([&REGISTRY])).await?;
        let port = self.port()?;
        let address = format!("127.0.0.1:{port}");
        let config = self.folder.join("registry.yaml");
        let content = json!({
            "version": "0.1",
            "storage": {
                "filesystem": {"rootdirectory": self.folder.join("registry")},
                "delete": {"enabled": true},
            },
            "http": {"addr": address},
        });
        write(&config, &content.to_string())?;
        let launch = Launch::new(built.program("registry"))
            .arg("serve")
            .arg(config.display().to_string());
        self.launch(Part::Registry, launch.env("OTEL_TRACES_EXPORTER", "none"))?;
        self.until("the registry to answer", READY, async || {
            probe::get(port, "/v2/").await
        })
        .await?;
        Ok(address)
    }

    /// Starts Prometheus with a configuration, with its data in the testbed's folder, and returns its port. Paths in the
    /// configuration are relative to the folder of the testbed.
    pub async fn start_prometheus(&self, configuration: &Value) -> Result<u16> {
        let [built] = built(|| binaries::ensure([&PROMETHEUS])).await?;
        let port = self.port()?;
        let file = self.folder.join("prometheus.yaml");
        write(&file, &configuration.to_string())?;
        let launch = Launch::new(built.program("prometheus"))
            .path("--config.file", &file)
            .path("--storage.tsdb.path", &self.folder.join("prometheus"))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"));
        self.launch(Part::Prometheus, launch)?;
        self.until("Prometheus to be ready", READY, async || {
            probe::get(port, "/-/ready").await
        })
        .await?;
        Ok(port)
    }

    /// Applies the definitions that our manifests use, from the project's own module, and waits until the API server serves them.
    pub async fn define(&self, definitions: Definitions) -> Result<()> {
        let (recipe, kinds) = match definitions {
            Definitions::CertManager => (
                &CERT_MANAGER,
                ["cert-manager.io_certificates", "cert-manager.io_issuers"],
            ),
            Definitions::PrometheusOperator => (
                &PROMETHEUS_OPERATOR,
                [
                    "monitoring.coreos.com_prometheusrules",
                    "monitoring.coreos.com_servicemonitors",
                ],
            ),
        };
        let [built] = built(|| binaries::ensure([recipe])).await?;
        let api: Api<CustomResourceDefinition> = Api::all(self.client().await?);
        for (_, folder) in recipe.assets {
            for kind in kinds {
                let file = built.asset(folder).join(format!("{kind}.yaml"));
                for object in apply::documents(&file)? {
                    let applied = apply::apply(&self.client().await?, &object).await?;
                    self.established(&api, &applied.metadata.name.unwrap_or_default())
                        .await?;
                }
            }
        }
        Ok(())
    }

    async fn established(&self, api: &Api<CustomResourceDefinition>, name: &str) -> Result<()> {
        self.until(format!("{name} to be served"), READY, async || {
            let found = api.get(name).await.map_err(|error| error.to_string())?;
            let conditions = found
                .status
                .and_then(|status| status.conditions)
                .unwrap_or_default();
            conditions
                .iter()
                .any(is_established)
                .then_some(())
                .ok_or_else(|| format!("{conditions:?}"))
        })
        .await
    }
}

fn is_established(condition: &CustomResourceDefinitionCondition) -> bool {
    condition.type_ == "Established" && condition.status == "True"
}
