//! Which of the run's claims its placeholder may mount, so that a volume decides the zone before the node is chosen.
//!
//! Asked for only when a placeholder is about to be made for a run that names claims. A claim is left out when
//! mounting it could only do harm: a `ReadWriteOncePod` claim would lock the tasks out, and one that is missing, lost
//! or being deleted would keep the placeholder from ever being scheduled, so that the run would be held until its
//! deadline for a thing that may appear once it runs.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;

/// Whether the placeholder can mount this claim without standing in anybody's way.
pub(crate) fn is_mountable(claim: &PersistentVolumeClaim) -> bool {
    claim.metadata.deletion_timestamp.is_none() && !is_exclusive(claim) && !is_lost(claim)
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
        assert!(is_mountable(&claim(&json!({}))));
        assert!(is_mountable(&claim(&json!({"status": {"phase": "Pending"}}))));
        assert!(is_mountable(&claim(
            &json!({"status": {"phase": "Bound"}, "spec": {"accessModes": null}})
        )));
    }

    #[test]
    fn a_claim_that_would_lock_out_the_tasks_or_block_the_placeholder_is_not() {
        for harm in [
            json!({"spec": {"accessModes": ["ReadWriteOnce", "ReadWriteOncePod"]}}),
            json!({"status": {"phase": "Lost"}}),
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        ] {
            assert!(!is_mountable(&claim(&harm)), "{harm}");
        }
    }
}
