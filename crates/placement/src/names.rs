//! Names as types: which run, which group, which placeholder.

use crate::label_syntax;
use sha2::{Digest, Sha256};
use std::fmt;

/// Whether an object can have this name.
pub fn is_object_name(text: &str) -> bool {
    label_syntax::is_domain(text)
}

/// A PipelineRun. The UID distinguishes the run from an earlier run of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunKey {
    /// Namespace of the run.
    pub namespace: String,
    /// Name of the run.
    pub name: String,
    /// UID of the run.
    pub uid: String,
}

impl RunKey {
    /// The group that this run is the root of.
    pub fn group(&self) -> Group {
        Group::of(&self.uid)
    }

    /// The name of this run's placeholder.
    pub fn placeholder(&self) -> PlaceholderName {
        PlaceholderName::of_uid(&self.uid)
    }
}

impl fmt::Display for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The value of the group label: the UID of the run that all members follow.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group(String);

impl Group {
    /// The group of the run with this UID.
    pub fn of(uid: impl Into<String>) -> Self {
        Self(uid.into())
    }

    /// The label value.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The first bytes of a digest of texts, in hexadecimal: the same in every process and for every toolchain.
pub fn digest(texts: &[&str], bytes: usize) -> String {
    let digest = texts.iter().fold(Sha256::new(), Digest::chain_update).finalize();
    digest
        .iter()
        .take(bytes)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The start of the names of all placeholders.
const PREFIX: &str = "custom-pod-affinity-";

/// The name of a run's placeholder StatefulSet.
///
/// Derived from the UID alone: two controllers compute the same name, and a run that is created again under an old
/// name gets another placeholder. The 30 characters leave room for the suffixes that Kubernetes adds in labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PlaceholderName(String);

impl PlaceholderName {
    /// The placeholder of the run with this UID.
    pub fn of_uid(uid: &str) -> Self {
        Self(format!("{PREFIX}{}", digest(&[uid], 5)))
    }

    /// Whether a name can be that of a placeholder.
    pub fn is_placeholder(name: &str) -> bool {
        name.starts_with(PREFIX)
    }

    /// The name of the StatefulSet.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of its only pod.
    pub fn pod(&self) -> String {
        format!("{}-0", self.0)
    }
}

impl fmt::Display for PlaceholderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_is_named_after_the_first_ten_hex_digits_of_the_uids_sha256() {
        let name = PlaceholderName::of_uid("abc");
        assert_eq!(name.as_str(), "custom-pod-affinity-ba7816bf8f");
        assert_eq!(name.pod(), "custom-pod-affinity-ba7816bf8f-0");
    }

    #[test]
    fn the_hash_in_the_name_keeps_its_leading_zeros() {
        // sha256("39") begins with 0b.
        assert_eq!(
            PlaceholderName::of_uid("39").as_str(),
            "custom-pod-affinity-0b918943df"
        );
    }

    #[test]
    fn the_placeholder_name_leaves_room_for_a_statefulset_revision_hash_in_a_label() {
        assert!(PlaceholderName::of_uid("6f1c").as_str().len() <= 52);
    }

    #[test]
    fn two_runs_of_the_same_name_differ_in_group_and_placeholder() {
        let run = |uid: &str| RunKey {
            namespace: "ns".into(),
            name: "build".into(),
            uid: uid.into(),
        };
        assert_ne!(run("a").group(), run("b").group());
        assert_ne!(run("a").placeholder(), run("b").placeholder());
    }

    #[test]
    fn a_run_key_is_formatted_as_namespace_and_name() {
        let key = RunKey {
            namespace: "ns".into(),
            name: "build".into(),
            uid: "u".into(),
        };
        assert_eq!(key.to_string(), "ns/build");
    }
}
