//! Claims that are bound to a volume, and from which nodes the volume can be reached.

use super::{Refusal, selectors};
use crate::view::{claims, is_placeholder};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, Pod};
use placement::volume::{NodeNames, is_only_on, required};

/// A claim and its volume, which cannot be used on all nodes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bound {
    claim: String,
    volume: PersistentVolume,
}

impl Bound {
    /// The volume of a claim; `None` if it can be reached from everywhere.
    pub(crate) fn of(claim: &str, volume: &PersistentVolume) -> Option<Self> {
        required(volume)?;
        Some(Self {
            claim: claim.to_owned(),
            volume: volume.clone(),
        })
    }

    /// The name of the claim.
    pub(crate) fn claim(&self) -> &str {
        &self.claim
    }

    /// Whether this node can have the volume and no other one can.
    pub(crate) fn is_only_on(&self, node: NodeNames<'_>) -> bool {
        is_only_on(&self.volume, node)
    }

    pub(super) fn refusal(&self, pod: &Pod, node: &Node) -> Option<Refusal> {
        let required = required(&self.volume).filter(|_| self.concerns(pod))?;
        (!selectors::matches(required, node)).then(|| Refusal::Volume {
            claim: self.claim.clone(),
            needs: selectors::text(required),
        })
    }

    /// A placeholder goes where all volumes of its run can be used, also those that only a task may mount.
    fn concerns(&self, pod: &Pod) -> bool {
        is_placeholder(pod) || claims(pod).any(|claim| claim == self.claim)
    }
}
