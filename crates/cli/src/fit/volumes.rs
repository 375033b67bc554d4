//! Claims that are bound to a volume, and from which nodes the volume can be reached.

use super::{Refusal, selectors};
use k8s_openapi::api::core::v1::{Node, NodeSelector, PersistentVolume};

/// A claim and what its volume asks of a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bound {
    claim: String,
    required: NodeSelector,
}

impl Bound {
    /// The volume of a claim; `None` if it can be reached from everywhere.
    pub(crate) fn of(claim: &str, volume: &PersistentVolume) -> Option<Self> {
        let affinity = volume.spec.as_ref()?.node_affinity.as_ref()?;
        Some(Self {
            claim: claim.to_owned(),
            required: affinity.required.clone()?,
        })
    }

    pub(super) fn refusal(&self, node: &Node) -> Option<Refusal> {
        (!selectors::matches(&self.required, node)).then(|| Refusal::Volume {
            claim: self.claim.clone(),
            needs: selectors::text(&self.required),
        })
    }
}
