//! Upgrades of a running cluster: another Kubernetes on the same etcd, another Tekton on the same objects.

use crate::binaries;
use crate::error::Result;
use crate::part::Part;
use crate::tekton;
use crate::testbed::{Testbed, built};
use crate::versions::{Kubernetes, Tekton};

impl Testbed {
    /// Replaces API server, controller manager and scheduler, the API server first. The API server is down during its replacement.
    pub async fn upgrade_kubernetes(&self, to: Kubernetes) -> Result<()> {
        let [kubernetes] = built(move || binaries::ensure([to.recipe()])).await?;
        let launches = self.launches_of(&kubernetes, to)?;
        let parts = [Part::ApiServer, Part::ControllerManager, Part::Scheduler];
        for (part, launch) in parts.into_iter().zip(launches) {
            self.stop(part)?;
            self.launch(part, launch)?;
            self.answers(part).await?;
        }
        Ok(())
    }

    /// Applies the manifests of another Tekton and replaces its processes. The webhook is down during its replacement.
    pub async fn upgrade_tekton(&self, to: Tekton) -> Result<()> {
        let [tekton] = built(move || binaries::ensure([to.recipe()])).await?;
        tekton::replace(self, &tekton).await
    }
}
