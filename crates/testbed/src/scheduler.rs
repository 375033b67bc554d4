//! The rate limits and metrics of the scheduler.

use crate::apply::apply_all;
use crate::binaries::Built;
use crate::error::{Error, Result};
use crate::options::Limits;
use crate::part::{Launch, Part};
use crate::probe;
use crate::testbed::Testbed;
use kube::Client;
use serde_json::json;

/// Raised rate limits of the scheduler: requests per second and burst.
const RAISED: (u32, u32) = (5000, 10_000);

/// The namespace of the scheduler's ServiceAccount.
const SYSTEM: &str = "kube-system";

/// A ServiceAccount with the `ClusterRole`s that Kubernetes binds to the user `system:kube-scheduler`.
fn account_with_rights(account: &str) -> Vec<serde_json::Value> {
    let subject = json!({"kind": "ServiceAccount", "name": account, "namespace": SYSTEM});
    let binding = |role: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": format!("testbed:{role}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [subject],
        })
    };
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": SYSTEM}});
    vec![
        account,
        binding("system:kube-scheduler"),
        binding("system:volume-scheduler"),
    ]
}

impl Testbed {
    pub(crate) fn scheduler(&self, built: &Built) -> Launch {
        let launch = self.plane.scheduler(built, &self.folder);
        let (qps, burst) = RAISED;
        match self.options.limits {
            Limits::Raised => launch
                .arg(format!("--kube-api-qps={qps}"))
                .arg(format!("--kube-api-burst={burst}")),
            Limits::AsShipped | Limits::TektonRaised => launch,
        }
    }

    /// Starts the killed scheduler with a connection through the proxy of the faults. The proxy forwards tokens, but no client
    /// certificates, so the scheduler uses a ServiceAccount with its permissions.
    pub async fn start_scheduler_behind_faults(&self) -> Result<()> {
        let account = "kube-scheduler";
        apply_all(&self.client().await?, &account_with_rights(account)).await?;
        let port = self.faults()?.port();
        let kubeconfig = self.kubeconfig_at(port, SYSTEM, account).await?;
        let connection = format!("--kubeconfig={}", kubeconfig.display());
        self.start_again_with(Part::Scheduler, &[&connection]).await
    }

    /// The metrics of the scheduler in Prometheus' text format.
    pub async fn scheduler_metrics(&self) -> Result<String> {
        let mut config = self.client_config().await?;
        let address = format!("https://127.0.0.1:{}", self.plane.scheduler_port);
        config.cluster_url = address.parse().map_err(|_| Error::NotRunning(address))?;
        // The scheduler serves with a self-signed certificate.
        config.accept_invalid_certs = true;
        let client = Client::try_from(config).map_err(Error::api("creating a client"))?;
        probe::metrics(&client, "the scheduler").await
    }
}
