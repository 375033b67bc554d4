//! Pools of nodes with their own labels and taints, and the pod templates with which the pods of a run can be on them. The
//! soak uses these pools as well.

use k8s_openapi::api::core::v1::Taint;
use serde_json::{Value, json};
use testbed::Nodes;

/// The label of nodes that belong to a zone.
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";
/// The label of nodes that belong to a pool.
const POOL: &str = "pool";

/// The nodes on which the pods of a run can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Anywhere,
    /// Tainted nodes that pods reach by a RuntimeClass.
    Sandbox,
    /// Tainted nodes that the run's template selects and tolerates.
    Dedicated,
    /// Nodes that are full of pods, which must be preempted.
    Busy,
    Zone,
}

impl Place {
    pub(crate) const ALL: [Self; 5] = [
        Self::Anywhere,
        Self::Sandbox,
        Self::Dedicated,
        Self::Busy,
        Self::Zone,
    ];

    /// The prefix of the node names. Runs that can be anywhere can be on other nodes as well.
    pub(crate) fn pool(self) -> &'static str {
        match self {
            Self::Anywhere => "east",
            Self::Sandbox => "sandbox",
            Self::Dedicated => "dedicated",
            Self::Busy => "busy",
            Self::Zone => "west",
        }
    }

    pub(crate) fn zone(self) -> &'static str {
        match self {
            Self::Anywhere => "east",
            Self::Sandbox | Self::Dedicated | Self::Busy | Self::Zone => "west",
        }
    }

    /// Nodes with the labels and taints of this pool, with this prefix.
    pub(crate) fn nodes(self, prefix: &str, count: usize) -> Nodes {
        let nodes = Nodes::new(prefix, count).zone(self.zone());
        match self {
            Self::Anywhere | Self::Zone => nodes,
            Self::Busy => nodes.label(POOL, self.pool()),
            Self::Sandbox => tainted(nodes.label(POOL, self.pool()), "sandbox", None),
            Self::Dedicated => tainted(nodes.label(POOL, self.pool()), "dedicated", Some("ci")),
        }
    }

    /// The pod template for this pool.
    pub(crate) fn template(self) -> Value {
        match self {
            Self::Anywhere => json!({}),
            Self::Sandbox => json!({"runtimeClassName": "sandbox"}),
            Self::Dedicated => json!({
                "nodeSelector": {POOL: self.pool()},
                "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "ci", "effect": "NoSchedule"}],
            }),
            Self::Busy => json!({"nodeSelector": {POOL: self.pool()}, "priorityClassName": "urgent"}),
            Self::Zone => json!({"nodeSelector": {ZONE: self.zone()}}),
        }
    }
}

/// Adds a taint that keeps pods away.
pub(crate) fn tainted(nodes: Nodes, key: &str, value: Option<&str>) -> Nodes {
    let taint = Taint {
        key: key.into(),
        value: value.map(String::from),
        effect: "NoSchedule".into(),
        ..Taint::default()
    };
    let taints = nodes.taints.iter().cloned().chain([taint]).collect();
    Nodes { taints, ..nodes }
}

/// The RuntimeClass of the sandboxes.
pub(crate) fn runtime_class() -> Value {
    json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "sandbox"}, "handler": "sandbox",
        "scheduling": {
            "nodeSelector": {POOL: Place::Sandbox.pool()},
            "tolerations": [{"key": "sandbox", "operator": "Exists", "effect": "NoSchedule"}],
        },
    })
}

/// Node affinity of a volume that can be used only on nodes with this label value.
pub(crate) fn only_where(key: &str, value: &str) -> Value {
    let here = json!({"key": key, "operator": "In", "values": [value]});
    json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}})
}
