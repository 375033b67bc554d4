//! Pushes the chart with helm. helm reads the credentials that `docker login` stored.

use crate::destination::Destination;
use crate::tool::{Error, Tool};
use std::path::Path;

/// helm, with the folder of charts in a registry.
#[derive(Debug)]
pub(crate) struct Helm {
    tool: Tool,
    charts: String,
    plain_http: bool,
}

impl Helm {
    pub(crate) fn new(root: &Path, to: &Destination, insecure: bool) -> Result<Self, Error> {
        Ok(Self {
            tool: Tool::helm(root)?,
            charts: to.charts(),
            plain_http: insecure || to.is_local(),
        })
    }

    /// Pushes the archive of a chart. helm adds the name of the chart and its version.
    pub(crate) fn push(&self, archive: &Path) -> Result<(), Error> {
        let (archive, charts) = (archive.display().to_string(), format!("oci://{}", self.charts));
        let plain_http = format!("--plain-http={}", self.plain_http);
        self.tool.run(&["push", &archive, &charts, &plain_http]).map(drop)
    }
}
