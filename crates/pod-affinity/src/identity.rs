//! A unique name for this process. A restarted container gets a new name, so that the process does not take the Lease of the
//! previous process for its own.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// The host name (in a pod: the name of the pod) and a random number.
pub(crate) fn unique() -> String {
    let host = hostname::get().map_or_else(
        |_| "unknown".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    );
    // The standard library seeds each hasher with random numbers of the operating system.
    let random = RandomState::new().hash_one(std::process::id());
    format!("{host}_{random:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_identity_is_unique() {
        assert_ne!(unique(), unique());
    }
}
