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

/// A warning about a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// Whether the version is older than the oldest supported version.
    pub is_too_old: bool,
    /// What is wrong with the version.
    pub sentence: String,
    /// What the user should do.
    pub remedy: String,
}

impl Supported {
    /// The warning about a version; `None` if the version was tested.
    pub fn complaint(&self, version: &str) -> Option<Complaint> {
        let Self { name, oldest, newest } = self;
        let numbers = numbers(version);
        let is_too_old = numbers.is_some_and(|numbers| numbers < (1, *oldest));
        let (sentence, remedy) = match numbers {
            None => (
                format!("The version {version:?} of {name} cannot be read."),
                format!("Make sure that it is 1.{oldest} or newer."),
            ),
            Some(_) if is_too_old => (
                format!(
                    "{name} {version} is older than 1.{oldest}, the oldest version that is supported: labelled runs may fail or wait."
                ),
                format!("Upgrade {name} to 1.{oldest} or newer."),
            ),
            Some(numbers) if numbers > (1, *newest) => (
                format!(
                    "{name} {version} is newer than 1.{newest}, the newest version that this release was tested with."
                ),
                "Use a newer release of pod-affinity, if there is one.".to_owned(),
            ),
            Some(_) => return None,
        };
        Some(Complaint {
            is_too_old,
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
    fn major_and_minor_determine_whether_a_version_has_a_complaint() {
        let table = [
            ("v1.33.0", None),
            ("v1.33.4-eks-113cf36", None),
            ("v1.37.2", None),
            ("1.35+", None),
            ("v1.32.9", Some((true, "oldest"))),
            ("v0.99.0", Some((true, "oldest"))),
            ("v1.38.0-alpha.1", Some((false, "newest"))),
            ("v2.0.0", Some((false, "newest"))),
            ("v1", Some((false, "cannot be read"))),
            ("", Some((false, "cannot be read"))),
        ];
        for (version, expected) in table {
            let complaint = KUBERNETES.complaint(version);
            let is_too_old = complaint.as_ref().map(|it| it.is_too_old);
            assert_eq!(
                is_too_old,
                expected.map(|(is_too_old, _)| is_too_old),
                "{version}"
            );
            let sentence = complaint.map(|it| it.sentence).unwrap_or_default();
            assert!(
                sentence.contains(expected.map_or("", |(_, word)| word)),
                "{sentence}"
            );
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
