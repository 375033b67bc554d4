//! Starts a control plane: builds what is missing, and puts the parts together.

use crate::binaries::{self, Built};
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::options::Options;
use crate::part::Parts;
use crate::plane::ControlPlane;
use crate::ports::Ports;
use crate::testbed::{Testbed, built};
use crate::{kwok, recipe, tekton};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

impl Testbed {
    /// Builds what is missing, then starts everything and returns once it answers.
    pub async fn start(options: Options) -> Result<Self> {
        let [control_plane, tekton] = build(&options).await?;
        let begun = Instant::now();
        let folder = state_folder()?;
        let guard = Guard::start(&folder, options.keep)?;
        let parts = Arc::new(Parts::new(guard.group(), folder.join("logs"))?);
        let mut ports = Ports::reserve()?;
        let plane = ControlPlane::prepare(&folder, &mut ports)?;
        let ports = Mutex::new(ports);
        let mut testbed = Self {
            folder,
            parts,
            plane,
            autoscaler_port: OnceLock::new(),
            fronts: Mutex::default(),
            namespace: Mutex::default(),
            faults: OnceLock::new(),
            ports,
            guard,
            options,
            startup: Duration::ZERO,
        };
        testbed.bring_up(&control_plane, &tekton).await?;
        testbed.startup = begun.elapsed();
        Ok(testbed)
    }

    async fn bring_up(&self, control_plane: &Built, tekton: &Built) -> Result<()> {
        self.start_control_plane(control_plane).await?;
        kwok::start(self, control_plane).await?;
        if self.options.tekton {
            tekton::start(self, tekton).await?;
        }
        Ok(())
    }
}

async fn build(options: &Options) -> Result<[Built; 2]> {
    let tekton = options.tekton;
    built(move || {
        if tekton {
            return binaries::ensure([&recipe::CONTROL_PLANE, &recipe::TEKTON]);
        }
        let [control_plane] = binaries::ensure([&recipe::CONTROL_PLANE])?;
        Ok([control_plane.clone(), control_plane])
    })
    .await
}

fn state_folder() -> Result<PathBuf> {
    let parent = std::env::temp_dir();
    let folder = tempfile::Builder::new()
        .prefix("pod-affinity-testbed-")
        .tempdir_in(&parent);
    Ok(folder.map_err(Error::io("creating a folder in", parent))?.keep())
}
