//! What is asked of a testbed before its start.

use crate::admission::Admission;
use crate::error::Result;
use crate::versions::Versions;
use std::path::PathBuf;

/// What a testbed consists of.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Options {
    /// Start Tekton's controller and webhook.
    pub tekton: bool,
    /// Whose requests the API server writes down.
    pub audit: Audit,
    /// Keep the state folder, logs included, when the testbed ends.
    pub keep: bool,
    /// How many requests a second Tekton and the scheduler allow themselves.
    pub limits: Limits,
    /// How many cores each part may keep busy.
    pub cores: Cores,
    /// How the control plane and Tekton are configured.
    pub settings: Settings,
    /// New nodes are tainted until the controller manager has seen them Ready, as everywhere. Without, a node can be
    /// used as it is created, whoever runs.
    pub taint_new_nodes: bool,
    /// [`crate::Testbed::install_pod_affinity`] applies the Deployments too, with a node that only their pods can use. Without,
    /// a cluster has only the nodes that were added, and no pods but those of runs.
    pub deployments: bool,
    /// How [`crate::Testbed::install_pod_affinity`] has runs held and pods given their terms; else as `POD_AFFINITY_ADMISSION`
    /// says, else by the webhook.
    pub admission: Option<Admission>,
    /// What the control plane and Tekton are; else as `POD_AFFINITY_KUBERNETES` and `POD_AFFINITY_TEKTON` say, else the
    /// defaults.
    pub versions: Option<Versions>,
    /// The binary of pod-affinity to install; else `POD_AFFINITY_BINARY`, else it is built.
    pub binary: Option<PathBuf>,
}

/// Whose requests the API server writes down: [`crate::Testbed::audit`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Audit {
    /// No record is kept.
    #[default]
    Nobody,
    /// The ServiceAccounts of pod-affinity's namespace.
    PodAffinity,
    /// Everyone, without watches, and without leases, which come with time.
    Everybody,
}

/// How many requests a second clients of the API server allow themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Limits {
    /// Tekton's and the scheduler's own defaults.
    AsShipped,
    /// Tekton's raised, so that tests need not wait for it.
    #[default]
    TektonRaised,
    /// Both raised, so that neither holds up the other.
    Raised,
}

/// How many cores a part that is written in Go may keep busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cores {
    /// As by default.
    #[default]
    All,
    /// For a testbed among others: parts that look for no work on a second core compute a tenth less in all.
    One,
}

/// How the control plane and Tekton are configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Settings {
    /// As shipped: for the demo, for measurements, and for tests that compare with Tekton.
    #[default]
    Shipped,
    /// Without work that does not change what a run and its pods go through. docs/testbed.md lists the differences.
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

    /// An error if the API server could not admit as it is asked to.
    pub(crate) fn versions(&self) -> Result<Versions> {
        let versions = self.versions.map_or_else(Versions::of_environment, Ok)?;
        self.admission()?.require(versions.kubernetes)?;
        Ok(versions)
    }
}
