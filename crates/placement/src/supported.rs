//! Which versions of Kubernetes and Tekton this release supports. `cargo compat` tests the oldest and the newest of them.

/// The oldest Kubernetes that is supported: what follows `1.`.
pub const OLDEST_KUBERNETES: u32 = 33;
/// The newest Kubernetes that this release was tested with.
pub const NEWEST_KUBERNETES: u32 = 37;
/// The oldest Tekton Pipelines that is supported.
pub const OLDEST_TEKTON: u32 = 9;

/// How an API server's version relates to those.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// Of a version that was tested.
    Tested,
    /// Older than the oldest that is supported.
    TooOld,
    /// Newer than the newest that was tested.
    Untested,
    /// The version cannot be read.
    Unknown,
}

/// Judges a version as API servers report it.
pub fn kubernetes(version: &str) -> Support {
    match numbers(version) {
        None => Support::Unknown,
        Some(numbers) if numbers < (1, OLDEST_KUBERNETES) => Support::TooOld,
        Some(numbers) if numbers > (1, NEWEST_KUBERNETES) => Support::Untested,
        Some(_) => Support::Tested,
    }
}

/// A sentence for the log and its remedy, if there is anything to say about the API server.
pub fn warning(version: &str) -> Option<String> {
    match kubernetes(version) {
        Support::Tested => None,
        Support::TooOld => Some(format!(
            "Kubernetes {version} is older than 1.{OLDEST_KUBERNETES}, the oldest version that this release supports: labelled \
             runs may fail or wait. Upgrade the cluster"
        )),
        Support::Untested => Some(format!(
            "Kubernetes {version} is newer than 1.{NEWEST_KUBERNETES}, the newest version that this release was tested with. \
             Use a newer release of pod-affinity, if there is one"
        )),
        Support::Unknown => Some(format!(
            "The API server's version {version:?} cannot be read. Make sure that it is Kubernetes 1.{OLDEST_KUBERNETES} or newer"
        )),
    }
}

/// Major and minor: of `v1.36.3`, and of `v1.28.3-gke.100`.
pub fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches('v').split('.');
    let mut next = || {
        let part = parts.next()?;
        let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part[..end].parse().ok()
    };
    Some((next()?, next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_judged_by_major_and_minor() {
        let cases = [
            ("v1.33.0", Support::Tested),
            ("v1.33.4-eks-113cf36", Support::Tested),
            ("v1.37.2", Support::Tested),
            ("v1.32.9", Support::TooOld),
            ("v0.99.0", Support::TooOld),
            ("v1.38.0-alpha.1", Support::Untested),
            ("v2.0.0", Support::Untested),
            ("1.35+", Support::Tested),
            ("v1", Support::Unknown),
            ("", Support::Unknown),
        ];
        for (version, expected) in cases {
            assert_eq!(kubernetes(version), expected, "{version}");
        }
    }

    #[test]
    fn only_a_server_of_a_tested_version_needs_no_warning() {
        assert_eq!(warning("v1.36.3"), None);
        for (version, word) in [
            ("v1.30.1", "oldest"),
            ("v1.99.0", "newest"),
            ("odd", "cannot be read"),
        ] {
            let said = warning(version).unwrap();
            assert!(said.contains(version) && said.contains(word), "{said}");
        }
    }
}
