//! etcd, API server, controller manager and scheduler: each has its own binary and listens on loopback.

use crate::audit;
use crate::binaries::{self, Built};
use crate::error::{Result, write};
use crate::part::{Launch, Part};
use crate::probe;
use crate::testbed::{READY, Testbed, built};
use crate::versions::Kubernetes;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::Api;
use serde_json::{Value, json};

impl Testbed {
    pub(crate) async fn start_control_plane(&self, base: &Built, kubernetes: &Built) -> Result<()> {
        self.launch(Part::Etcd, self.plane.etcd(base, &self.folder))?;
        let [api_server, manager, scheduler] = self.launches_of(kubernetes, self.versions.kubernetes)?;
        self.launch(Part::ApiServer, api_server)?;
        self.answers(Part::ApiServer).await?;
        self.launch(Part::ControllerManager, manager)?;
        self.launch(Part::Scheduler, scheduler)?;
        self.answers(Part::Scheduler).await?;
        self.answers(Part::ControllerManager).await
    }

    /// The launches of API server, controller manager and scheduler for this version of Kubernetes.
    pub(crate) fn launches_of(&self, built: &Built, version: Kubernetes) -> Result<[Launch; 3]> {
        Ok([
            self.api_server(built)?,
            self.plane.manager(built, &self.folder, version, &self.options),
            self.scheduler(built),
        ])
    }

    fn api_server(&self, built: &Built) -> Result<Launch> {
        let launch = self.plane.api_server(built, &self.folder, self.options.settings);
        let mut launch = audit::switched_on(self.options.audit, launch, &self.folder)?;
        if !self.options.taint_new_nodes {
            launch = launch.arg("--disable-admission-plugins=TaintNodesByCondition");
        }
        if self.options.require_quota_of_terms {
            let file = self.folder.join("admission.json");
            write(&file, &quota_of_terms_required().to_string())?;
            launch = launch.path("--admission-control-config-file", &file);
        }
        Ok(launch)
    }

    /// Waits until a part works.
    pub(crate) async fn answers(&self, part: Part) -> Result<()> {
        match part {
            Part::Etcd => self.listens(part, self.plane.etcd_port).await,
            Part::ApiServer => self.api_server_answers().await,
            Part::ControllerManager => self.controllers_work().await,
            Part::Scheduler => self.listens(part, self.plane.scheduler_port).await,
            Part::TektonController | Part::TektonWebhook => crate::tekton::answers(self).await,
            Part::Kwok
            | Part::ClusterAutoscaler
            | Part::Karpenter
            | Part::Kueue
            | Part::Registry
            | Part::Prometheus
            | Part::RealNode
            | Part::Webhook(_)
            | Part::Controller(_) => self.check(),
        }
    }

    pub(crate) async fn listens(&self, part: Part, port: u16) -> Result<()> {
        self.until(format!("{part} to listen on port {port}"), READY, async || {
            probe::connect(port).await
        })
        .await
    }

    async fn api_server_answers(&self) -> Result<()> {
        self.listens(Part::ApiServer, self.plane.api_port).await?;
        let client = self.client().await?;
        self.until("kube-apiserver to be ready", READY, async || {
            let request = http::Request::get("/readyz")
                .body(Vec::new())
                .map_err(|error| error.to_string())?;
            client
                .request_text(request)
                .await
                .map_err(|error| error.to_string())
        })
        .await
        .map(drop)
    }

    // The controller manager creates the default ServiceAccount, and no pod is admitted without this account.
    async fn controllers_work(&self) -> Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, "default");
        self.until(
            "kube-controller-manager to create the default ServiceAccount",
            READY,
            async || accounts.get("default").await.map_err(|error| error.to_string()),
        )
        .await
        .map(drop)
    }

    /// Replaces API server, controller manager and scheduler, the API server first. The API server is down during its replacement.
    pub async fn upgrade_kubernetes(&self, to: Kubernetes) -> Result<()> {
        let [kubernetes] = built(move || binaries::ensure([to.recipe()])).await?;
        let launches = self.launches_of(&kubernetes, to)?;
        let parts = [Part::ApiServer, Part::ControllerManager, Part::Scheduler];
        for (part, launch) in parts.into_iter().zip(launches) {
            self.stop(part)?;
            self.launch(part, launch)?;
            self.answers(part).await?;
        }
        Ok(())
    }
}

/// The configuration of admission that <https://kubernetes.io/docs/concepts/policy/resource-quotas/> describes.
fn quota_of_terms_required() -> Value {
    let scope = json!({"scopeName": "CrossNamespacePodAffinity", "operator": "Exists"});
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "ResourceQuotaConfiguration",
        "limitedResources": [{"resource": "pods", "matchScopes": [scope]}],
    });
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [{"name": "ResourceQuota", "configuration": configuration}],
    })
}
