//! Decides which PVCs of a run the placeholder mounts, so that the volumes determine the zone before a node is chosen.
//!
//! The controller reads the PVCs only before it creates a placeholder for a run that names PVCs. The placeholder does not mount a
//! PVC that would do harm. A `ReadWriteOncePod` PVC in the placeholder would block the tasks. A PVC that is missing, lost or being
//! deleted would make the placeholder unschedulable: the run would be held until its deadline, although the PVC may appear later.

use crate::api_error::StepError;
use crate::write::{Cluster, with_timeout};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use placement::plan::VolumeConstraints;
use placement::requests::Operation;
use placement::run::Run;
use placement::volume::required;

impl Cluster {
    /// The run's PVCs that the placeholder can mount, and the node selectors of the volumes that only a task may mount.
    pub(crate) async fn volumes(&self, run: &Run) -> Result<VolumeConstraints, StepError> {
        let api: Api<PersistentVolumeClaim> = self.api(&run.key.namespace);
        let mut volumes = VolumeConstraints::default();
        for name in &run.claims {
            let found = with_timeout(Operation::Claims, api.get_opt(name)).await?;
            match found.as_ref().map(part) {
                Some(Part::Mounted) => volumes.mountable.push(name.clone()),
                Some(Part::OfOnePod) => {
                    let volume = self.volume(Operation::Claims, found.as_ref()).await?;
                    volumes
                        .required
                        .extend(volume.as_ref().and_then(required).cloned());
                }
                Some(Part::None) | None => {}
            }
        }
        Ok(volumes)
    }
}

/// How a PVC determines the placeholder's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The placeholder mounts the PVC.
    Mounted,
    /// Only one pod at a time may mount the PVC, which must be a task's. The placeholder requires a node that can use the volume.
    OfOnePod,
    /// The PVC has no effect on the placeholder.
    None,
}

fn part(claim: &PersistentVolumeClaim) -> Part {
    if claim.metadata.deletion_timestamp.is_some() || is_lost(claim) {
        Part::None
    } else if is_exclusive(claim) {
        Part::OfOnePod
    } else {
        Part::Mounted
    }
}

fn is_exclusive(claim: &PersistentVolumeClaim) -> bool {
    let modes = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_ref());
    modes.is_some_and(|modes| modes.iter().any(|mode| mode == "ReadWriteOncePod"))
}

fn is_lost(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn claim(changes: &Value) -> PersistentVolumeClaim {
        let mut claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"]}});
        json_patch::merge(&mut claim, changes);
        serde_json::from_value(claim).unwrap()
    }

    #[test]
    fn an_ordinary_claim_is_mounted_bound_or_not() {
        for ordinary in [
            json!({}),
            json!({"status": {"phase": "Pending"}}),
            json!({"status": {"phase": "Bound"}, "spec": {"accessModes": null}}),
        ] {
            assert_eq!(part(&claim(&ordinary)), Part::Mounted, "{ordinary}");
        }
    }

    #[test]
    fn a_claim_that_would_block_the_placeholder_is_left_alone() {
        for harm in [
            json!({"status": {"phase": "Lost"}}),
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        ] {
            assert_eq!(part(&claim(&harm)), Part::None, "{harm}");
        }
    }

    #[test]
    fn a_pvc_of_which_only_one_pod_may_mount_is_left_to_the_tasks() {
        let exclusive = claim(&json!({"spec": {"accessModes": ["ReadWriteOnce", "ReadWriteOncePod"]}}));
        assert_eq!(part(&exclusive), Part::OfOnePod);
    }
}
