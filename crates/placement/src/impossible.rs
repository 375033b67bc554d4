//! Rejections of the placeholder's pod that a retry cannot overcome.

use crate::limits::Bounds;
use crate::messages;

/// Why the API server will reject the placeholder's pod again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Impossible {
    /// The pod refers to an object that does not exist. The task pods refer to the same object, so waiting would only
    /// delay their failure.
    RefersToNothing,
    /// The pod requests less than a `LimitRange` demands, or more than a `LimitRange` allows.
    OutOfLimits(Bounds),
}

/// Reads the message of a `FailedCreate` event.
pub fn told_by(message: &str) -> Option<Impossible> {
    if messages::is_without_an_object(message) {
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
        let missing = r#"pods "a-0" is forbidden: no PriorityClass with name urgent was found"#;
        assert_eq!(told_by(missing), Some(Impossible::RefersToNothing));
        let limits =
            r#"pods "a-0" is forbidden: minimum cpu usage per Container is 100m, but request is 50m"#;
        let bounds = Bounds::told_by(limits).unwrap();
        assert_eq!(told_by(limits), Some(Impossible::OutOfLimits(bounds)));
        let other = r#"admission webhook "policy.example.com" denied the request: label team not found"#;
        assert_eq!(told_by(other), None);
    }
}
