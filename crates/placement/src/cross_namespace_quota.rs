//! Quotas with the scope `CrossNamespacePodAffinity`. Such a quota counts the pods that have affinity terms across namespaces, as
//! the pods of an isolated run have by default. An API server can be configured (`limitedResources`) to reject such pods in namespaces
//! without such a quota.

use crate::quota_room::{has_room, scopes};
use k8s_openapi::api::core::v1::ResourceQuota;

const SCOPE: &str = "CrossNamespacePodAffinity";

/// Why the API server rejects pods of a namespace that have affinity terms across namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TermsRejected {
    /// The quota of this name has no room.
    BecauseOf(String),
    /// The API server requires a quota of the scope, and the namespace has none.
    WithoutQuota,
}

/// Whether the quota has no room for a pod with affinity terms across namespaces.
pub fn is_full(quota: &ResourceQuota) -> bool {
    counts_terms(quota) && !has_room(quota)
}

/// Whether the quota counts pods with affinity terms across namespaces. `Exists` is the only operator that the API server accepts for
/// this scope.
pub fn counts_terms(quota: &ResourceQuota) -> bool {
    let mut scopes = quota.spec.iter().flat_map(scopes);
    scopes.any(|scope| scope == SCOPE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn is_full_with(spec: &Value, used: &Value) -> bool {
        let quota = json!({"spec": spec, "status": {"hard": spec["hard"], "used": used}});
        is_full(&serde_json::from_value(quota).unwrap())
    }

    #[test]
    fn a_quota_of_this_scope_is_full_if_any_of_its_resources_is_used_up() {
        for (hard, used, full) in [
            (json!({"pods": "0"}), json!({}), true),
            (json!({"pods": "2"}), json!({"pods": "2"}), true),
            (
                json!({"pods": "9", "requests.cpu": "1"}),
                json!({"pods": "2", "requests.cpu": "1"}),
                true,
            ),
            (json!({"pods": "2"}), json!({"pods": "1"}), false),
        ] {
            let spec = json!({"scopes": ["CrossNamespacePodAffinity"], "hard": hard});
            assert_eq!(is_full_with(&spec, &used), full, "{spec}");
        }
    }

    #[test]
    fn the_scope_may_be_in_the_selector_and_a_quota_without_the_scope_does_not_count() {
        let selected = |scope| {
            let selector = json!({"matchExpressions": [{"scopeName": scope, "operator": "Exists"}]});
            let spec = json!({"scopeSelector": selector, "hard": {"pods": "0"}});
            is_full_with(&spec, &json!({}))
        };
        assert!(selected("CrossNamespacePodAffinity"));
        assert!(!selected("PriorityClass"));
        assert!(!is_full_with(&json!({"hard": {"pods": "0"}}), &json!({})));
    }
}
