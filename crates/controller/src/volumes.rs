//! Reads the PVCs of a run before its placeholder is created, so that the volumes determine the zone before a node is chosen.

use crate::api_error::StepError;
use crate::write::{Cluster, with_timeout};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use placement::mounts::{Claim, needs_volume};
use placement::requests::Operation;
use placement::run::Run;
use placement::volume::required;

impl Cluster {
    /// The PVCs of the run that exist.
    pub(crate) async fn existing_claims(&self, run: &Run) -> Result<Vec<Claim>, StepError> {
        let api: Api<PersistentVolumeClaim> = self.api(&run.key.namespace);
        let mut claims = Vec::new();
        for name in &run.claims {
            let Some(claim) = with_timeout(Operation::Claims, api.get_opt(name)).await? else {
                continue;
            };
            let volume = if needs_volume(run, &claim) {
                self.volume(Operation::Claims, Some(&claim)).await?
            } else {
                None
            };
            claims.push(Claim {
                name: name.clone(),
                claim,
                required: volume.as_ref().and_then(required).cloned(),
            });
        }
        Ok(claims)
    }
}
