//! How a quota rejected a placeholder, and whether the end of a placeholder makes room in a quota for a pod of a task that the quota
//! rejected.
//!
//! The placeholder counts as one pod, and with its own requests. A quota that lacks another resource, or more of a resource than the
//! placeholder requests, has no room after the end of the placeholder either, so the placeholder stays and protects the node.

use crate::attempts::Rejection;
use crate::messages;
use crate::placeholder::spec::Spec;
use crate::quantity::Quantity;
use crate::resources::Resources;
use k8s_openapi::api::core::v1::{ResourceQuota, ResourceQuotaSpec};

/// A TaskRun whose pod a quota rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedTask {
    /// Name of the TaskRun.
    pub name: String,
    /// The message of the API server, in the condition of the TaskRun.
    pub message: String,
}

impl RejectedTask {
    /// The name of the quota.
    pub fn quota(&self) -> Option<String> {
        messages::quota_figures(&self.message).map(|figures| figures.quota)
    }

    /// Whether the quota would have room without the placeholder. A message that cannot be parsed counts as yes.
    pub fn fits_without(&self, placeholder: &Spec) -> bool {
        let Some(figures) = messages::quota_figures(&self.message) else {
            return true;
        };
        let [requested, used, limited] = figures.amounts.each_ref().map(Resources::from_texts);
        requested.iter().all(|(resource, amount)| {
            let freed = used_by_placeholder(resource, &placeholder.size);
            used.get(resource) + amount <= limited.get(resource) + freed
        })
    }
}

/// How the API server rejected the placeholder's pod, by its message.
pub fn rejection(message: &str) -> Rejection {
    if !messages::is_over_quota(message) {
        return Rejection::Other;
    }
    let Some(figures) = messages::quota_figures(message) else {
        return Rejection::Full;
    };
    let [requested, _, limited] = figures.amounts.each_ref().map(Resources::from_texts);
    // Each pod needs a place, also the smallest one.
    let mut beyond = requested.beyond(&limited);
    if beyond.any(|resource| !counts_pods(resource)) {
        Rejection::TooLarge
    } else if requested
        .iter()
        .any(|(resource, _)| is_of_each_placeholder(resource))
    {
        Rejection::Full
    } else {
        Rejection::OwnResource
    }
}

fn counts_pods(resource: &str) -> bool {
    matches!(resource, "pods" | "count/pods")
}

/// Whether a pod can use this resource of a quota. Other resources are numbers of other objects, and storage.
fn is_of_pods(resource: &str) -> bool {
    let is_compute = resource.starts_with("requests.") || resource.starts_with("limits.");
    is_of_each_placeholder(resource) || is_compute && resource != "requests.storage"
}

/// Whether each placeholder uses this resource of a quota.
fn is_of_each_placeholder(resource: &str) -> bool {
    counts_pods(resource) || matches!(compute(resource), "cpu" | "memory")
}

/// The resource of a pod that a quota limits by this name.
fn compute(resource: &str) -> &str {
    let of_limit = resource.strip_prefix("limits.");
    resource
        .strip_prefix("requests.")
        .or(of_limit)
        .unwrap_or(resource)
}

/// How much of a resource of a quota a placeholder with these requests uses. Its limits are equal to its requests.
pub fn used_by_placeholder(resource: &str, size: &Resources) -> Quantity {
    match resource {
        "count/statefulsets.apps" => Quantity::of(1),
        _ if counts_pods(resource) => Quantity::of(1),
        _ => size.get(compute(resource)),
    }
}

/// Whether no resource of the quota that a pod can use is used up.
pub fn has_room(quota: &ResourceQuota) -> bool {
    let (hard, used) = Resources::limit_and_usage(quota);
    let mut of_pods = hard.iter().filter(|(name, _)| is_of_pods(name));
    of_pods.all(|(name, hard)| used.get(name) < hard)
}

/// Whether a quota counts placeholders, by its scopes: a placeholder has requests and no deadline. The priority is that of the run.
pub fn counts_placeholders(quota: &ResourceQuotaSpec) -> bool {
    !scopes(quota).any(|scope| matches!(scope, "Terminating" | "BestEffort"))
}

/// The scopes of a quota, in both forms.
pub(crate) fn scopes(quota: &ResourceQuotaSpec) -> impl Iterator<Item = &str> {
    let selector = quota.scope_selector.iter();
    let selected = selector.flat_map(|selector| selector.match_expressions.iter().flatten());
    let selected = selected.map(|expression| &expression.scope_name);
    quota.scopes.iter().flatten().chain(selected).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn fits(figures: &str) -> bool {
        let size =
            [("cpu", "50m"), ("memory", "100Mi")].map(|(name, amount)| (name.to_owned(), amount.to_owned()));
        let size = BTreeMap::from(size);
        let placeholder = Spec {
            size: Resources::from_texts(&size),
            ..Spec::default()
        };
        let message = format!(
            "TaskRun Pod exceeded available resources: pods \"build-test-pod\" is forbidden: exceeded quota: few, {figures}"
        );
        let task = RejectedTask {
            name: "build-test".into(),
            message,
        };
        assert_eq!(task.quota().as_deref(), Some("few"));
        task.fits_without(&placeholder)
    }

    #[test]
    fn a_quota_has_room_without_the_placeholder_if_it_lacks_no_more_than_the_placeholder_uses() {
        for figures in [
            "requested: pods=1, used: pods=3, limited: pods=3",
            "requested: count/pods=1, used: count/pods=3, limited: count/pods=3",
            "requested: requests.cpu=1, used: requests.cpu=3050m, limited: requests.cpu=4",
            "requested: limits.memory=1Gi,pods=1, used: limits.memory=100Mi,pods=2, limited: limits.memory=1Gi,pods=2",
        ] {
            assert!(fits(figures), "{figures}");
        }
        for figures in [
            "requested: requests.nvidia.com/gpu=1, used: requests.nvidia.com/gpu=1, limited: requests.nvidia.com/gpu=1",
            "requested: requests.cpu=1, used: requests.cpu=3100m, limited: requests.cpu=4",
            "requested: pods=1,requests.cpu=1, used: pods=3,requests.cpu=4, limited: pods=3,requests.cpu=4",
            "requested: pods=1, used: pods=5, limited: pods=3",
        ] {
            assert!(!fits(figures), "{figures}");
        }
    }

    #[test]
    fn a_placeholder_is_too_large_for_a_quota_that_allows_less_than_its_requests() {
        let of = |message: &str| rejection(&format!("pods \"p-0\" is forbidden: {message}"));
        let figures = |requested: &str| {
            format!(
                "exceeded quota: q, requested: requests.cpu={requested}, used: requests.cpu=1, limited: requests.cpu=32"
            )
        };
        assert_eq!(of(&figures("40")), Rejection::TooLarge);
        assert_eq!(of(&figures("32")), Rejection::Full);
        let gpus = "exceeded quota: q, requested: requests.nvidia.com/gpu=1, used: requests.nvidia.com/gpu=4, limited: \
                    requests.nvidia.com/gpu=4";
        assert_eq!(of(gpus), Rejection::OwnResource);
        let pods = "exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0";
        for full in [pods, "exceeded quota: q"] {
            assert_eq!(of(full), Rejection::Full);
        }
        assert_eq!(
            of("no providers available to validate pod request"),
            Rejection::Other
        );
    }

    #[test]
    fn a_message_without_figures_is_taken_as_room() {
        let task = RejectedTask {
            name: "t".into(),
            message: "exceeded quota".into(),
        };
        assert!(task.fits_without(&Spec::default()));
        assert_eq!(task.quota(), None);
    }

    #[test]
    fn the_scopes_of_a_quota_tell_whether_it_counts_placeholders() {
        let counts = |spec| counts_placeholders(&serde_json::from_value(spec).unwrap());
        assert!(counts(json!({})));
        assert!(counts(json!({"scopes": ["NotTerminating", "NotBestEffort"]})));
        assert!(!counts(json!({"scopes": ["Terminating"]})));
        let selector = json!({"matchExpressions": [{"scopeName": "BestEffort", "operator": "Exists"}]});
        assert!(!counts(json!({"scopeSelector": selector})));
    }
}
