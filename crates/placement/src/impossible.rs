//! What the API server says of a pod that it will not create however long that is waited for.

use crate::limits::Bounds;

/// Why there will be no such pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Impossible {
    /// It refers to an object that does not exist. The tasks of the run do too: to wait would only delay their failure.
    RefersToNothing,
    /// It asks for less than a `LimitRange` demands, or for more than one allows.
    OutOfLimits(Bounds),
}

/// What a message says.
pub fn told_by(message: &str) -> Option<Impossible> {
    let service_account =
        message.contains("error looking up service account") && message.contains("not found");
    let priority_class = message.contains("no PriorityClass with name");
    let runtime_class = message.contains("pod rejected: RuntimeClass") && message.contains("not found");
    if service_account || priority_class || runtime_class {
        Some(Impossible::RefersToNothing)
    } else {
        Bounds::told_by(message).map(Impossible::OutOfLimits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_will_never_be_is_told_from_all_other_refusals() {
        for missing in [
            r#"create Pod a-0 in StatefulSet a failed error: pods "a-0" is forbidden: error looking up service account ci/builder: serviceaccount "builder" not found"#,
            r#"pods "a-0" is forbidden: no PriorityClass with name urgent was found"#,
            r#"pods "a-0" is forbidden: pod rejected: RuntimeClass "gvisor" not found"#,
        ] {
            assert_eq!(told_by(missing), Some(Impossible::RefersToNothing), "{missing}");
        }
        for limits in [
            r#"pods "a-0" is forbidden: minimum cpu usage per Container is 100m, but request is 50m"#,
            r#"pods "a-0" is forbidden: [maximum cpu usage per Pod is 30m, but limit is 50m, maximum memory usage per Pod is 1Mi, but limit is 104857600]"#,
        ] {
            let bounds = Bounds::told_by(limits).unwrap();
            assert_eq!(told_by(limits), Some(Impossible::OutOfLimits(bounds)), "{limits}");
        }
        for other in [
            r#"pods "a-0" is forbidden: exceeded quota: few, requested: pods=1, used: pods=3, limited: pods=3"#,
            r#"admission webhook "policy.example.com" denied the request: label team not found"#,
            "error looking up service account ci/builder: etcdserver: request timed out",
        ] {
            assert_eq!(told_by(other), None, "{other}");
        }
    }
}
