//! Kueue, with its webhooks, outside the cluster. Only Workloads that exist are queued.

use crate::apply;
use crate::binaries;
use crate::error::{Error, Result, write};
use crate::part::{Launch, Part};
use crate::probe;
use crate::recipe::{KUEUE, KUEUE_MANIFESTS};
use crate::tekton::redirect;
use crate::testbed::{READY, Testbed, built};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde_json::json;
use std::fs;
use std::path::Path;

/// The namespace in Kueue's own manifests.
const NAMESPACE: &str = "kueue-system";
/// The Secret in which Kueue keeps the certificate of its webhooks.
const SECRET: &str = "kueue-webhook-server-cert";

impl Testbed {
    /// Starts Kueue.
    pub async fn start_kueue(&self) -> Result<()> {
        let [built] = built(|| binaries::ensure([&KUEUE])).await?;
        let (health, webhooks) = (self.port()?, self.port()?);
        let client = self.client().await?;
        let manifests = apply::rendered(&built.asset(KUEUE_MANIFESTS).join("default"))?;
        let mut manifests: Vec<_> = manifests
            .into_iter()
            .filter(|object| object["kind"] != "Deployment" && object["kind"] != "APIService")
            .collect();
        for object in &mut manifests {
            redirect(object, webhooks);
        }
        apply::apply_all(&client, &manifests).await?;
        let folder = self.folder().join("kueue");
        let certificates = folder.join("certificates");
        fs::create_dir_all(&certificates).map_err(Error::io("creating", &certificates))?;
        let configuration = json!({
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "health": {"healthProbeBindAddress": format!("127.0.0.1:{health}")},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": webhooks, "certDir": certificates},
            "leaderElection": {"leaderElect": false},
            "integrations": {"frameworks": ["batch/job"]},
        });
        let file = folder.join("configuration.yaml");
        write(&file, &configuration.to_string())?;
        let launch = Launch::new(built.program("kueue"))
            .env("KUBECONFIG", self.kubeconfig().display().to_string())
            .path("--config", &file)
            // The API server for positions in queues, which needs a Service that the API server reaches.
            .arg("--feature-gates=VisibilityOnDemand=false");
        self.launch(Part::Kueue, launch)?;
        self.mount_certificate(&certificates).await?;
        self.until("Kueue to be ready", READY, async || {
            probe::get(health, "/readyz").await
        })
        .await
        .map(drop)
    }

    /// Writes the certificate that Kueue creates to files, as a kubelet does.
    async fn mount_certificate(&self, folder: &Path) -> Result<()> {
        let secrets: Api<Secret> = Api::namespaced(self.client().await?, NAMESPACE);
        let secret = self.until("Kueue to create its certificate", READY, async || {
            let secret = secrets.get(SECRET).await.map_err(|error| error.to_string())?;
            let data = secret.data.unwrap_or_default();
            if data.contains_key("tls.key") {
                Ok(data)
            } else {
                Err("no key".to_owned())
            }
        });
        for (name, content) in secret.await? {
            let file = folder.join(name);
            fs::write(&file, content.0).map_err(Error::io("writing", &file))?;
        }
        Ok(())
    }
}
