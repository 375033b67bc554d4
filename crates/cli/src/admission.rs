//! The objects by which pod-affinity changes created runs and pods: its webhooks, or admission policies (overlays/policies). Pure.

use crate::requests::{RequestError, RequestResult};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// What is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mechanism {
    Webhook,
    Policies,
    Both,
}

/// The metadata of a manifest.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Meta {
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
}

/// An admission policy or a binding of the release.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Policy {
    pub(crate) kind: String,
    pub(crate) metadata: Meta,
    pub(crate) spec: Value,
}

impl Policy {
    pub(crate) fn is_binding(&self) -> bool {
        self.kind.ends_with("Binding")
    }
}

/// A policy or a binding of the release, and the object of this name in the cluster.
#[derive(Clone, Debug)]
pub(crate) struct Compared {
    pub(crate) release: Policy,
    pub(crate) found: RequestResult<Option<Value>>,
}

/// The objects that make the API server change other objects: the webhook configurations by name, and the policies.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    pub(crate) webhooks: Vec<(&'static str, RequestResult<Option<MutatingWebhookConfiguration>>)>,
    pub(crate) policies: Vec<Compared>,
}

impl Admission {
    /// `None` if neither is installed, as far as the objects can be read.
    pub(crate) fn mechanism(&self) -> Option<Mechanism> {
        let policies = self.policies.iter().any(|it| matches!(it.found, Ok(Some(_))));
        match (policies, self.configurations().next().is_some()) {
            (true, true) => Some(Mechanism::Both),
            (true, false) => Some(Mechanism::Policies),
            (false, true) => Some(Mechanism::Webhook),
            (false, false) => None,
        }
    }

    /// The webhook configurations in the cluster, by name.
    pub(crate) fn configurations(
        &self,
    ) -> impl Iterator<Item = (&'static str, &MutatingWebhookConfiguration)> {
        let webhooks = self.webhooks.iter();
        webhooks.filter_map(|(name, seen)| Some((*name, seen.as_ref().ok()?.as_ref()?)))
    }

    /// The webhook configurations and the policies in the cluster.
    pub(crate) fn objects(&self) -> Vec<Value> {
        let webhooks = self
            .configurations()
            .filter_map(|(_, it)| serde_json::to_value(it).ok());
        let policies = self.policies.iter().filter_map(|it| it.found.clone().ok()?);
        webhooks.chain(policies).collect()
    }

    /// The policies that could not be read.
    pub(crate) fn policy_gaps(&self) -> impl Iterator<Item = &RequestError> {
        self.policies.iter().filter_map(|it| it.found.as_ref().err())
    }

    /// The objects that could not be read.
    pub(crate) fn errors(&self) -> impl Iterator<Item = &RequestError> {
        let webhooks = self.webhooks.iter().filter_map(|(_, seen)| seen.as_ref().err());
        webhooks.chain(self.policy_gaps())
    }

    /// No object was found, and some could not be read.
    pub(crate) fn is_unread(&self) -> bool {
        self.mechanism().is_none() && self.errors().next().is_some()
    }
}
