//! What the API server says of a pod that it cannot create because the pod refers to an object that does not exist.
//!
//! The tasks of the run refer to the same object, so that waiting for the placeholder would only delay their failure.

/// Whether a message says so.
pub fn is_reported_by(message: &str) -> bool {
    let service_account =
        message.contains("error looking up service account") && message.contains("not found");
    let priority_class = message.contains("no PriorityClass with name");
    let runtime_class = message.contains("pod rejected: RuntimeClass") && message.contains("not found");
    service_account || priority_class || runtime_class
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_object_is_told_from_all_other_refusals() {
        for missing in [
            r#"create Pod a-0 in StatefulSet a failed error: pods "a-0" is forbidden: error looking up service account ci/builder: serviceaccount "builder" not found"#,
            r#"pods "a-0" is forbidden: no PriorityClass with name urgent was found"#,
            r#"pods "a-0" is forbidden: pod rejected: RuntimeClass "gvisor" not found"#,
        ] {
            assert!(is_reported_by(missing), "{missing}");
        }
        for other in [
            r#"pods "a-0" is forbidden: exceeded quota: few, requested: pods=1, used: pods=3, limited: pods=3"#,
            r#"admission webhook "policy.example.com" denied the request: label team not found"#,
            "error looking up service account ci/builder: etcdserver: request timed out",
        ] {
            assert!(!is_reported_by(other), "{other}");
        }
    }
}
