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
