//! Rejections of the placeholder's pod that a retry cannot overcome.
//!
//! The limits of a `LimitRange` are read from the API server's message. The controller therefore needs no right to read
//! any `LimitRange`.

use crate::messages;
use crate::resources::Resources;

/// Why the API server will reject the placeholder's pod again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermanentRejection {
    /// The pod refers to an object that does not exist. The task pods refer to the same object, so waiting would only
    /// delay their failure.
    MissingObject,
    /// The node selector or the tolerations of the pod conflict with those of the namespace, as they do for the task pods.
    NamespaceConflict,
    /// The pod requests less than a `LimitRange` demands, or more than a `LimitRange` allows.
    OutOfLimitRange(LimitRangeBounds),
}

/// Reads the message of a `FailedCreate` event.
pub fn parse(message: &str) -> Option<PermanentRejection> {
    if messages::is_without_an_object(message) {
        Some(PermanentRejection::MissingObject)
    } else if messages::conflicts_with_namespace(message) {
        Some(PermanentRejection::NamespaceConflict)
    } else {
        LimitRangeBounds::parse(message).map(PermanentRejection::OutOfLimitRange)
    }
}

/// The limits that a rejected pod violated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitRangeBounds {
    least: Resources,
    most: Resources,
}

impl LimitRangeBounds {
    /// The limits in a message; `None` if the message is about something else.
    pub fn parse(message: &str) -> Option<Self> {
        let bounds = Self {
            least: Resources::from_texts(&messages::least_amounts(message)),
            most: Resources::from_texts(&messages::greatest_amounts(message)),
        };
        (bounds != Self::default()).then_some(bounds)
    }

    /// The amounts nearest to these that the limits allow.
    pub fn nearest(&self, requests: Resources) -> Resources {
        requests.or_more(self.least.clone()).at_most(&self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn permanent_rejections_are_distinguished_from_all_other_rejections() {
        let missing = r#"pods "a-0" is forbidden: no PriorityClass with name urgent was found"#;
        assert_eq!(parse(missing), Some(PermanentRejection::MissingObject));
        let selector = r#"pods "a-0" is forbidden: pod node label selector conflicts with its namespace node label selector"#;
        assert_eq!(parse(selector), Some(PermanentRejection::NamespaceConflict));
        let limits =
            r#"pods "a-0" is forbidden: minimum cpu usage per Container is 100m, but request is 50m"#;
        let bounds = LimitRangeBounds::parse(limits).unwrap();
        assert_eq!(parse(limits), Some(PermanentRejection::OutOfLimitRange(bounds)));
        let other = r#"admission webhook "policy.example.com" denied the request: label team not found"#;
        assert_eq!(parse(other), None);
    }

    fn nearest(message: &str, requests: &[(&str, &str)]) -> String {
        let requests: BTreeMap<_, _> = requests
            .iter()
            .map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned()))
            .collect();
        let bounds = LimitRangeBounds::parse(message).unwrap();
        bounds.nearest(Resources::from_texts(&requests)).to_string()
    }

    #[test]
    fn each_bound_in_the_message_is_met_and_all_other_amounts_stay_unchanged() {
        let usual = [("cpu", "50m"), ("memory", "100Mi")];
        let table = [
            (
                r#"pods "a-0" is forbidden: minimum cpu usage per Container is 100m, but request is 50m"#,
                "cpu=100m, memory=100Mi",
            ),
            (
                r#"pods "a-0" is forbidden: [minimum cpu usage per Pod is 1, but request is 50m, minimum memory usage per Pod is 1Gi, but request is 104857600]"#,
                "cpu=1, memory=1Gi",
            ),
            (
                r#"pods "a-0" is forbidden: [maximum cpu usage per Container is 30m, but limit is 50m, maximum memory usage per Container is 8Gi, but limit is 9Gi]"#,
                "cpu=30m, memory=100Mi",
            ),
            (
                r#"pods "a-0" is forbidden: minimum ephemeral-storage usage per Pod is 1Gi.  No request is specified"#,
                "cpu=50m, ephemeral-storage=1Gi, memory=100Mi",
            ),
        ];
        for (message, expected) in table {
            assert_eq!(nearest(message, &usual), expected, "{message}");
        }
    }

    #[test]
    fn other_rejections_have_no_limit_range_bounds() {
        for other in [
            r#"pods "a-0" is forbidden: exceeded quota: few, requested: pods=1, used: pods=3, limited: pods=3"#,
            r#"admission webhook "policy.example.com" denied the request: the minimum is not met"#,
            "minimum cpu usage per Container is lots, but request is 50m",
            "",
        ] {
            assert_eq!(LimitRangeBounds::parse(other), None, "{other}");
        }
    }
}
