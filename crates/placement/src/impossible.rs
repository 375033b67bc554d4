//! What the API server says of a pod that it will not create however long that is waited for.

use crate::limits::Bounds;
use crate::messages;

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
