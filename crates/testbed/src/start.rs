//! Starts a control plane: builds missing parts and connects all parts.

use crate::binaries::{self, Built};
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::kubeconfig::CachedClient;
use crate::options::Options;
use crate::part::Parts;
use crate::plane::ControlPlane;
use crate::ports::Ports;
use crate::recipe::CONTROL_PLANE;
use crate::testbed::{Testbed, built};
use crate::versions::Versions;
use crate::{kwok, tekton};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

impl Testbed {
    /// Builds missing parts, then starts all parts and returns when they are ready.
    pub async fn start(options: Options) -> Result<Self> {
        let versions = options.versions()?;
        let built = Binaries::build(versions, options.tekton).await?;
        let begun = Instant::now();
        let folder = state_folder()?;
        let guard = Guard::start(&folder, options.keep)?;
        let parts = Arc::new(Parts::new(guard.group(), folder.join("logs"), options.cores)?);
        let mut ports = Ports::reserve()?;
        let plane = ControlPlane::prepare(&folder, &mut ports)?;
        let ports = Mutex::new(ports);
        let mut testbed = Self {
            folder,
            parts,
            plane,
            client: CachedClient::default(),
            autoscaler_port: OnceLock::new(),
            fronts: Mutex::default(),
            namespace: Mutex::default(),
            faults: OnceLock::new(),
            ports,
            guard,
            options,
            versions,
            kubelet_version: built.kubernetes.version().to_owned(),
            startup: Duration::ZERO,
        };
        if let Err(source) = testbed.bring_up(&built).await {
            testbed.guard.keep_folder();
            return Err(Error::Start {
                folder: testbed.folder.clone(),
                source: Box::new(source),
            });
        }
        testbed.startup = begun.elapsed();
        Ok(testbed)
    }

    async fn bring_up(&self, built: &Binaries) -> Result<()> {
        let Binaries {
            base,
            kubernetes,
            tekton,
        } = built;
        self.start_control_plane(base, kubernetes).await?;
        kwok::start(self, base).await?;
        match tekton {
            Some(tekton) => tekton::start(self, tekton).await,
            None => Ok(()),
        }
    }
}

/// The binaries of a testbed.
struct Binaries {
    /// etcd and KWOK, which are the same for every version of Kubernetes.
    base: Built,
    kubernetes: Built,
    tekton: Option<Built>,
}

impl Binaries {
    async fn build(versions: Versions, tekton: bool) -> Result<Self> {
        built(move || Self::ensured(versions, tekton)).await
    }

    fn ensured(versions: Versions, with_tekton: bool) -> Result<Self> {
        let (kubernetes, tekton) = (versions.kubernetes.recipe(), versions.tekton.recipe());
        if with_tekton {
            let [base, kubernetes, tekton] = binaries::ensure([&CONTROL_PLANE, kubernetes, tekton])?;
            let tekton = Some(tekton);
            return Ok(Self {
                base,
                kubernetes,
                tekton,
            });
        }
        let [base, kubernetes] = binaries::ensure([&CONTROL_PLANE, kubernetes])?;
        Ok(Self {
            base,
            kubernetes,
            tekton: None,
        })
    }
}

fn state_folder() -> Result<PathBuf> {
    let parent = std::env::temp_dir();
    let folder = tempfile::Builder::new()
        .prefix("pod-affinity-testbed-")
        .tempdir_in(&parent);
    Ok(folder.map_err(Error::io("creating a folder in", parent))?.keep())
}
