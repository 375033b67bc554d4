//! A name for this process that no other process has, not even the same container after a restart: the Lease of the earlier
//! process must not be taken for ours.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// The name of the host, which in a pod is the name of the pod, and a random number.
pub(crate) fn unique() -> String {
    let host = hostname::get().map_or_else(
        |_| "unknown".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    );
    // The standard library seeds each hasher with fresh random numbers of the system.
    let random = RandomState::new().hash_one(std::process::id());
    format!("{host}_{random:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_alike() {
        assert_ne!(unique(), unique());
    }
}
