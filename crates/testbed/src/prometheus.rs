//! Prometheus on loopback, with its data in the testbed's folder.

use crate::binaries;
use crate::error::{Result, write};
use crate::part::{Launch, Part};
use crate::probe;
use crate::recipe::PROMETHEUS;
use crate::testbed::{READY, Testbed, built};
use serde_json::Value;

impl Testbed {
    /// Starts Prometheus with a configuration and returns its port. Paths in the configuration are relative to the folder of the
    /// testbed.
    pub async fn start_prometheus(&self, configuration: &Value) -> Result<u16> {
        let [built] = built(|| binaries::ensure([&PROMETHEUS])).await?;
        let port = self.port()?;
        let file = self.folder.join("prometheus.yaml");
        write(&file, &configuration.to_string())?;
        let launch = Launch::of(built.program("prometheus"))
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
}
