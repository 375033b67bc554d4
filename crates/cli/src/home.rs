//! The node where a run is: can a new pod start there, and may the run leave it? Judged as the controller does. Pure.

use crate::facts::Facts;
use crate::fit::Bound;
use crate::view::{label, node};
use k8s_openapi::api::core::v1::{Node, Toleration};
use placement::keys;
use placement::node::{Cause, NodeFacts, NodeState, state};
use placement::volume::NodeNames;

/// Where a run is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home<'a> {
    pub(crate) name: &'a str,
    /// Why no new pod can start there, as far as the node was seen.
    pub(crate) trouble: Option<Cause>,
    /// The PVC that can be used on no other node.
    pub(crate) tie: Option<&'a str>,
    /// The run leaves the node if there is a reason to.
    pub(crate) moves: bool,
    /// Tasks of the run are there and have not ended.
    pub(crate) is_busy: bool,
}

impl<'a> Home<'a> {
    /// That of this run; `None` if it is nowhere.
    pub(crate) fn of(facts: &'a Facts) -> Option<Self> {
        let name = facts.home_name()?;
        let tie = tie(facts, name);
        Some(Self {
            name,
            trouble: trouble(facts),
            tie,
            moves: tie.is_none() && facts.config().move_after.is_some(),
            is_busy: facts.members().any(|pod| node(pod) == Some(name)),
        })
    }
}

fn trouble(facts: &Facts) -> Option<Cause> {
    let node = facts.home.as_ref()?.as_ref().ok()?.as_ref();
    let seen = node.and_then(NodeFacts::from_node);
    match state(seen.as_ref(), tolerations(facts)) {
        NodeState::Unusable(cause) => Some(cause),
        NodeState::Usable | NodeState::Unknown => None,
    }
}

/// Those of the placeholder, which are also its tasks'.
fn tolerations(facts: &Facts) -> &[Toleration] {
    let pod = facts.seat().pod.or_else(|| facts.members().next());
    let tolerations = pod.and_then(|pod| pod.spec.as_ref()?.tolerations.as_deref());
    tolerations.unwrap_or_default()
}

fn tie<'a>(facts: &'a Facts, name: &str) -> Option<&'a str> {
    let node = facts.home.as_ref()?.as_ref().ok()?.as_ref();
    let hostname = node.and_then(hostname).unwrap_or(name);
    let here = NodeNames { name, hostname };
    let mut volumes = facts.volumes.as_deref().unwrap_or_default().iter();
    volumes.find(|volume| volume.is_only_on(here)).map(Bound::claim)
}

fn hostname(node: &Node) -> Option<&str> {
    label(&node.metadata, keys::HOSTNAME)
}
