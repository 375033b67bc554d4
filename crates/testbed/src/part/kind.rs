//! The names of the parts.

use std::fmt;

/// A part of the control plane, or a process of pod-affinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// etcd.
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// kube-controller-manager.
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
    /// KWOK.
    Kwok,
    /// Tekton's controller.
    TektonController,
    /// Tekton's webhook.
    TektonWebhook,
    /// The cluster autoscaler.
    ClusterAutoscaler,
    /// Karpenter.
    Karpenter,
    /// Kueue.
    Kueue,
    /// The OCI registry.
    Registry,
    /// Prometheus.
    Prometheus,
    /// The real node: its containerd and its kubelet.
    RealNode,
    /// A replica of pod-affinity's webhook.
    Webhook(u8),
    /// A replica of pod-affinity's controller.
    Controller(u8),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Etcd => f.write_str("etcd"),
            Self::ApiServer => f.write_str("kube-apiserver"),
            Self::ControllerManager => f.write_str("kube-controller-manager"),
            Self::Scheduler => f.write_str("kube-scheduler"),
            Self::Kwok => f.write_str("kwok"),
            Self::TektonController => f.write_str("tekton-controller"),
            Self::TektonWebhook => f.write_str("tekton-webhook"),
            Self::ClusterAutoscaler => f.write_str("cluster-autoscaler"),
            Self::Karpenter => f.write_str("karpenter"),
            Self::Kueue => f.write_str("kueue"),
            Self::Registry => f.write_str("registry"),
            Self::Prometheus => f.write_str("prometheus"),
            Self::RealNode => f.write_str("real-node"),
            Self::Webhook(replica) => write!(f, "pod-affinity-webhook-{replica}"),
            Self::Controller(replica) => write!(f, "pod-affinity-controller-{replica}"),
        }
    }
}
