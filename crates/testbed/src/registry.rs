//! An OCI registry on loopback, with its content in the testbed's folder.

use crate::binaries;
use crate::error::{Result, write};
use crate::part::{Launch, Part};
use crate::probe;
use crate::recipe::REGISTRY;
use crate::testbed::{READY, Testbed, built};
use serde_json::json;

impl Testbed {
    /// Starts the registry and returns its address, such as `127.0.0.1:20012`.
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
        let launch = Launch::of(built.program("registry"))
            .arg("serve")
            .arg(config.display().to_string());
        self.launch(Part::Registry, launch.env("OTEL_TRACES_EXPORTER", "none"))?;
        self.until("the registry to answer", READY, async || {
            probe::get(port, "/v2/").await
        })
        .await?;
        Ok(address)
    }
}
