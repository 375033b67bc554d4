//! The objects by which pod-affinity changes created runs and pods: its webhooks, or admission policies (overlays/policies). Pure.

use crate::ask::{Gap, Seen};
use crate::doctor::manifests::Policy;
use crate::way::Way;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use serde_json::Value;

/// A policy or a binding of the release, and its spec in the cluster.
#[derive(Clone, Debug)]
pub(crate) struct Compared {
    pub(crate) release: Policy,
    pub(crate) found: Seen<Option<Value>>,
}

/// The webhook configurations by name, and the policies with their bindings.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    pub(crate) webhooks: Vec<(&'static str, Seen<Option<MutatingWebhookConfiguration>>)>,
    pub(crate) policies: Vec<Compared>,
}

impl Admission {
    /// What is installed, as far as it could be read.
    pub(crate) fn way(&self) -> Option<Way> {
        let policies = self.policies.iter().any(|it| matches!(it.found, Ok(Some(_))));
        let webhook = self.webhooks.iter().any(|(_, seen)| matches!(seen, Ok(Some(_))));
        match (policies, webhook) {
            (true, true) => Some(Way::Both),
            (true, false) => Some(Way::Policies),
            (false, true) => Some(Way::Webhook),
            (false, false) => None,
        }
    }

    /// The reads that failed.
    pub(crate) fn gaps(&self) -> impl Iterator<Item = &Gap> {
        let webhooks = self.webhooks.iter().filter_map(|(_, seen)| seen.as_ref().err());
        let policies = self.policies.iter().filter_map(|it| it.found.as_ref().err());
        webhooks.chain(policies)
    }
}
