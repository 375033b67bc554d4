//! The options of a testbed.

use crate::admission::Admission;
use crate::error::Result;
use crate::versions::Versions;
use std::path::PathBuf;

/// The parts and settings of a testbed.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Options {
    /// Start Tekton's controller and webhook.
    pub tekton: bool,
    /// The requests that the API server writes to the audit log.
    pub audit: Audit,
    /// Keep the state folder, logs included, when the testbed ends.
    pub keep: bool,
    /// Client-side rate limits of Tekton and the scheduler.
    pub limits: Limits,
    /// How many cores each part may use.
    pub cores: Cores,
    /// The configuration of the control plane and Tekton.
    pub settings: Settings,
    /// New nodes have a taint until the controller manager has seen them Ready, as in real clusters. Without this option, a node
    /// can be used when it is created, even if the controller manager is down.
    pub taint_new_nodes: bool,
    /// The API server rejects pods with affinity terms across namespaces in namespaces without a `ResourceQuota` for such pods.
    pub require_quota_of_terms: bool,
    /// [`crate::Testbed::install_pod_affinity`] also applies the Deployments, with a dedicated node for their pods. Without this
    /// option, the cluster has only the added nodes and only pods of runs.
    pub deployments: bool,
    /// The variant of admission that [`crate::Testbed::install_pod_affinity`] installs. The default is the variable
    /// `POD_AFFINITY_ADMISSION`, then the webhook.
    pub admission: Option<Admission>,
    /// Versions of the control plane and Tekton. The default is the variables `POD_AFFINITY_KUBERNETES` and `POD_AFFINITY_TEKTON`,
    /// then the default versions.
    pub versions: Option<Versions>,
    /// The binary of pod-affinity to install. The default is `POD_AFFINITY_BINARY`; without both, the binary is built.
    pub binary: Option<PathBuf>,
}

/// The requests that the API server writes to the audit log; see [`crate::Testbed::audit`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Audit {
    /// The audit log is off.
    #[default]
    Nobody,
    /// Requests of the ServiceAccounts in pod-affinity's namespace.
    PodAffinity,
    /// Requests of all users, except watches, and except Leases, whose number depends on time.
    Everybody,
}

/// Client-side rate limits of the API server's clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Limits {
    /// The defaults of all clients.
    AsShipped,
    /// Higher limits and more threads for Tekton, and higher limits for the controller manager, so that tests run faster.
    #[default]
    TektonRaised,
    /// As `TektonRaised`, with a higher limit for the scheduler as well.
    Raised,
}

/// How many cores a part written in Go may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cores {
    /// All cores, Go's default.
    #[default]
    All,
    /// One core, for several testbeds on one machine: the parts need a tenth less CPU time if they do not spread over cores.
    One,
}

/// The configuration of the control plane and Tekton.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Settings {
    /// The defaults, for the demo, for measurements, and for tests that compare with Tekton.
    #[default]
    Shipped,
    /// Fewer controllers and webhook calls, without effect on runs and their pods. docs/testbed.md lists the differences.
    Reduced,
}

impl Cores {
    pub(crate) fn environment(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::All => None,
            Self::One => Some(("GOMAXPROCS", "1")),
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tekton: true,
            audit: Audit::default(),
            keep: std::env::var_os("POD_AFFINITY_TESTBED_KEEP").is_some(),
            limits: Limits::default(),
            cores: Cores::default(),
            settings: Settings::default(),
            taint_new_nodes: true,
            require_quota_of_terms: false,
            deployments: false,
            admission: None,
            versions: None,
            binary: None,
        }
    }
}

impl Options {
    pub(crate) fn admission(&self) -> Result<Admission> {
        self.admission.map_or_else(Admission::of_environment, Ok)
    }

    /// The versions; an error if the API server does not support the requested admission.
    pub(crate) fn versions(&self) -> Result<Versions> {
        let versions = self.versions.map_or_else(Versions::of_environment, Ok)?;
        self.admission()?.require(versions.kubernetes)?;
        Ok(versions)
    }
}
