//! Kueue, without its webhooks: the schemas have the defaults that the tests need. Kueue starts a server for its webhooks in any case,
//! so the server has a certificate that no client verifies.

use crate::binaries;
use crate::error::{Error, Result, write};
use crate::foreign::Definitions;
use crate::part::{Launch, Part};
use crate::probe;
use crate::recipe::KUEUE;
use crate::testbed::{READY, Testbed, built};
use serde_json::json;
use std::fs;

impl Testbed {
    /// Starts Kueue without integrations: only Workloads that exist are queued.
    pub async fn start_kueue(&self) -> Result<()> {
        let [built] = built(|| binaries::ensure([&KUEUE])).await?;
        self.define(Definitions::Kueue).await?;
        self.namespace("kueue-system").await?;
        let folder = self.folder().join("kueue");
        fs::create_dir_all(&folder).map_err(Error::io("creating", &folder))?;
        let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        let health = self.port()?;
        let configuration = json!({
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "health": {"healthProbeBindAddress": format!("127.0.0.1:{health}")},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": self.port()?, "certDir": folder},
            "leaderElection": {"leaderElect": false},
            "internalCertManagement": {"enable": false},
            "integrations": {"frameworks": ["batch/job"]},
        });
        for (name, content) in [
            ("tls.crt", certified.cert.pem()),
            ("tls.key", certified.signing_key.serialize_pem()),
            ("configuration.yaml", configuration.to_string()),
        ] {
            write(&folder.join(name), &content)?;
        }
        let launch = Launch::new(built.program("kueue"))
            .env("KUBECONFIG", self.kubeconfig().display().to_string())
            .path("--config", &folder.join("configuration.yaml"))
            // The server for kubectl, which needs the rights of an extension API server.
            .arg("--feature-gates=VisibilityOnDemand=false");
        self.launch(Part::Kueue, launch)?;
        self.until("Kueue to be ready", READY, async || {
            probe::get(health, "/readyz").await
        })
        .await
        .map(drop)
    }
}
