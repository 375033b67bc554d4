//! Reads, checks and edits manifests with as few changes as possible, so that comments and order are kept.
//!
//! Only [`files`] accesses the disk; the other modules work on text. A text is parsed for the positions of its values, and
//! then edited as text: a YAML library that writes the parsed document would remove the comments.

pub(crate) mod files;
mod rewrite;
mod tree;

pub(crate) use files::{Selection, Text};

use std::collections::BTreeSet;

/// A manifest cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("{file} is not valid YAML (line {line}: {problem}): correct it, or give only manifests")]
    NoYaml {
        file: String,
        line: usize,
        problem: String,
    },
    #[error(
        "{file} contains a document that is not a Kubernetes object (line {line} begins {what}): each document must have apiVersion \
         and kind"
    )]
    NoObject {
        file: String,
        line: usize,
        what: &'static str,
    },
    #[error("{file}: ko://{name} is unknown; the known image is {known}")]
    UnknownImage {
        file: String,
        name: String,
        known: String,
    },
    #[error(
        "{file}: ko://{name} is written with escapes or anchors, so it cannot be replaced: write it as a plain value"
    )]
    Unreplaceable { file: String, name: String },
}

/// Manifests that contain only Kubernetes objects.
#[derive(Clone, Debug)]
pub(crate) struct Manifests(Vec<Text>);

impl Manifests {
    /// Checks that every document is a Kubernetes object.
    pub(crate) fn checked(texts: Vec<Text>) -> Result<Self, Error> {
        for text in &texts {
            tree::check(text)?;
        }
        Ok(Self(texts))
    }

    /// The image names in `ko://` references. All of them must be known.
    pub(crate) fn images(&self, known: &[&str]) -> Result<BTreeSet<String>, Error> {
        let mut images = BTreeSet::new();
        for text in &self.0 {
            images.extend(rewrite::images(text, known)?);
        }
        Ok(images)
    }

    /// Replaces every `ko://` reference with this name by an image reference.
    pub(crate) fn resolved(&self, name: &str, reference: &str) -> Result<Self, Error> {
        let rewritten = self.0.iter().map(|text| rewrite::replaced(text, name, reference));
        rewritten.collect::<Result<_, _>>().map(Self)
    }

    /// All manifests as one stream of YAML documents.
    pub(crate) fn joined(&self) -> String {
        let mut joined = String::new();
        for Text { name: _, content } in &self.0 {
            if !joined.is_empty() && !content.starts_with("---") {
                joined.push_str("---\n");
            }
            joined.push_str(content);
            if !content.ends_with('\n') {
                joined.push('\n');
            }
        }
        joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(content: &str) -> Text {
        Text {
            name: "x.yaml".into(),
            content: content.into(),
        }
    }

    #[test]
    fn texts_are_joined_as_documents() {
        let manifests = Manifests(vec![text("a: 1"), text("---\nb: 2\n"), text("{\"c\": 3}")]);
        assert_eq!(manifests.joined(), "a: 1\n---\nb: 2\n---\n{\"c\": 3}\n");
    }

    #[test]
    fn one_bad_file_is_an_error_for_all() {
        let good = "apiVersion: v1\nkind: Namespace\n";
        assert!(Manifests::checked(vec![text(good)]).is_ok());
        assert!(Manifests::checked(vec![text(good), text("{")]).is_err());
    }

    #[test]
    fn the_manifests_of_this_checkout_resolve_without_other_changes() {
        let config = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config");
        let selection = Selection::Files {
            paths: vec![config],
            recursive: false,
        };
        let manifests = Manifests::checked(files::read(&selection).unwrap()).unwrap();
        assert_eq!(manifests.images(&["pod-affinity"]).unwrap().len(), 1);
        let resolved = manifests
            .resolved("pod-affinity", "registry/pod-affinity@sha256:0")
            .unwrap();
        let differing = |after: &str| {
            let before = manifests.joined();
            before.lines().zip(after.lines()).filter(|(a, b)| a != b).count()
        };
        let references = manifests.joined().matches("ko://pod-affinity").count();
        assert!(references > 0);
        assert_eq!(differing(&resolved.joined()), references);
    }
}
