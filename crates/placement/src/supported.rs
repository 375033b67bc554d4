//! Which versions of Kubernetes and Tekton this release supports. `cargo compat` tests the oldest and the newest of them.

/// Kubernetes or Tekton, with the supported minor versions: the number after `1.`.
#[derive(Debug)]
pub struct Supported {
    /// Kubernetes or Tekton.
    pub name: &'static str,
    /// The oldest minor version that is supported.
    pub oldest: u32,
    /// The newest minor version that this release was tested with.
    pub newest: u32,
}

/// The supported versions of Kubernetes. Before a newer version is added, compare the files that `messages.rs` names.
pub const KUBERNETES: Supported = Supported {
    name: "Kubernetes",
    oldest: 33,
    newest: 37,
};
/// The supported versions of Tekton Pipelines.
pub const TEKTON: Supported = Supported {
    name: "Tekton",
    oldest: 9,
    newest: 15,
};
/// The oldest minor version of Kubernetes that evaluates the admission policies: `MutatingAdmissionPolicy` is v1 since
/// this version.
pub const OLDEST_WITH_POLICIES: u32 = 36;

/// How a version compares with the supported versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// The version is in the tested range.
    Tested,
    /// The version is older than the oldest supported version.
    TooOld,
    /// The version is newer than the newest tested version.
    Untested,
    /// The version cannot be read.
    Unknown,
}

/// A warning about a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// How the version compares with the supported versions.
    pub support: Support,
    /// What is wrong with the version.
    pub sentence: String,
    /// What the user should do.
    pub remedy: String,
}

impl Supported {
    /// Compares the version that a server reports.
    pub fn judge(&self, version: &str) -> Support {
        match numbers(version) {
            None => Support::Unknown,
            Some(numbers) if numbers < (1, self.oldest) => Support::TooOld,
            Some(numbers) if numbers > (1, self.newest) => Support::Untested,
            Some(_) => Support::Tested,
        }
    }

    /// The warning about a version; `None` if the version was tested.
    pub fn complaint(&self, version: &str) -> Option<Complaint> {
        let Self { name, oldest, newest } = self;
        let support = self.judge(version);
        let (sentence, remedy) = match support {
            Support::Tested => return None,
            Support::TooOld => (
                format!(
                    "{name} {version} is older than 1.{oldest}, the oldest version that is supported: labelled runs may fail or wait."
                ),
                format!("Upgrade {name} to 1.{oldest} or newer."),
            ),
            Support::Untested => (
                format!(
                    "{name} {version} is newer than 1.{newest}, the newest version that this release was tested with."
                ),
                "Use a newer release of pod-affinity, if there is one.".to_owned(),
            ),
            Support::Unknown => (
                format!("The version {version:?} of {name} cannot be read."),
                format!("Make sure that it is 1.{oldest} or newer."),
            ),
        };
        Some(Complaint {
            support,
            sentence,
            remedy,
        })
    }
}

/// The major and minor version, of `v1.36.3` and of `v1.28.3-gke.100`.
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
    fn major_and_minor_determine_whether_a_version_is_supported() {
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
            assert_eq!(KUBERNETES.judge(version), expected, "{version}");
        }
    }

    #[test]
    fn only_tested_versions_have_no_complaint() {
        assert_eq!(KUBERNETES.complaint("v1.36.3"), None);
        assert_eq!(TEKTON.complaint("v1.12.1"), None);
        for (version, word) in [
            ("v1.8.1", "oldest"),
            ("v1.99.0", "newest"),
            ("devel", "cannot be read"),
        ] {
            let said = TEKTON.complaint(version).unwrap().sentence;
            assert!(said.contains(version) && said.contains(word), "{said}");
        }
    }
}
