//! The two ways to install pod-affinity: with its webhook, or with admission policies (overlays/policies).

/// The objects that are installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Webhook,
    Policies,
    Both,
}
