//! Reads and checks manifests, and replaces `ko://` references in their text, so that comments and order are kept.

use crate::args::ManifestArgs;
use crate::kubectl;
use crate::source::PRODUCT;
use crate::tool::{self, read};
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_yaml::Value;
use std::path::{Path, PathBuf};

const SCHEME: &str = "ko://";
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];
/// Files that configure kustomize and are not Kubernetes objects.
const KUSTOMIZATIONS: [&str; 2] = ["kustomization.yaml", "kustomization.yml"];

/// Kubernetes objects as a stream of YAML documents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifests(pub(crate) String);

impl Manifests {
    /// Reads the manifests on the command line: files in the order of the arguments, and files of a folder in the order of their names.
    pub(crate) fn read(args: &ManifestArgs) -> Result<Self> {
        if let Some(folder) = &args.kustomize {
            return Self::rendered(folder);
        }
        let mut manifests = Self::default();
        for path in &args.filename {
            for file in files(path)? {
                manifests.add(&file.display().to_string(), &read(&file)?)?;
            }
        }
        Ok(manifests)
    }

    /// Renders a kustomization.
    pub(crate) fn rendered(folder: &Path) -> Result<Self> {
        let mut manifests = Self::default();
        manifests.add(&folder.display().to_string(), &kubectl::kustomize(folder)?)?;
        Ok(manifests)
    }

    /// Adds a file. kubectl would apply the objects before an invalid document, and then fail.
    fn add(&mut self, name: &str, text: &str) -> Result<()> {
        for document in serde_yaml::Deserializer::from_str(text) {
            let object = Value::deserialize(document);
            let object =
                object.with_context(|| format!("{name} is not valid YAML, so it is not a manifest"))?;
            let is_object = ["apiVersion", "kind"]
                .iter()
                .all(|key| object.get(key).is_some_and(Value::is_string));
            ensure!(
                object.is_null() || is_object,
                "{name} contains a document that is not a Kubernetes object: each document must have apiVersion and kind"
            );
        }
        for (_, image) in references(text) {
            ensure!(
                image == PRODUCT,
                "{name}: {SCHEME}{image} is unknown; the known image is {SCHEME}{PRODUCT}"
            );
        }
        if !self.0.is_empty() && !text.starts_with("---") {
            self.0.push_str("---\n");
        }
        self.0.push_str(text);
        if !text.ends_with('\n') {
            self.0.push('\n');
        }
        Ok(())
    }

    /// Whether a manifest refers to the image.
    pub(crate) fn need_image(&self) -> bool {
        references(&self.0).next().is_some()
    }

    /// The manifests with this reference instead of each `ko://` reference.
    pub(crate) fn resolved(&self, image: &str) -> String {
        let mut text = self.0.clone();
        let places: Vec<_> = references(&self.0).map(|(place, _)| place).collect();
        for place in places.into_iter().rev() {
            text.replace_range(place..place + SCHEME.len() + PRODUCT.len(), image);
        }
        text
    }
}

/// Position and name of each `ko://` reference.
fn references(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.match_indices(SCHEME).filter_map(|(place, _)| {
        let rest = &text[place + SCHEME.len()..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"._/-".contains(c));
        // The full stop of a sentence is not a part of the name.
        let name = rest[..end.unwrap_or(rest.len())].trim_end_matches(['.', '/', '-']);
        (!name.is_empty()).then_some((place, name))
    })
}

fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = tool::files(path)?;
    files.retain(|file| is_manifest(file));
    if files.is_empty() {
        bail!(
            "the folder {} contains no manifest (*.yaml, *.yml, *.json): give another folder, or use -k if it contains a kustomization",
            path.display()
        );
    }
    Ok(files)
}

fn is_manifest(path: &Path) -> bool {
    let is_kustomization = path
        .file_name()
        .is_some_and(|name| KUSTOMIZATIONS.iter().any(|known| name == *known));
    let extension = path.extension().unwrap_or_default();
    !is_kustomization && EXTENSIONS.iter().any(|known| extension == *known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    const IMAGE: &str = "127.0.0.1:5000/pod-affinity@sha256:abc";

    fn added(text: &str) -> Result<Manifests> {
        let mut manifests = Manifests::default();
        manifests.add("x.yaml", text)?;
        Ok(manifests)
    }

    fn object(rest: &str) -> String {
        format!("apiVersion: v1\nkind: X\n{rest}\n")
    }

    #[test]
    fn references_are_replaced_and_nothing_else_is_touched() {
        for text in [
            "a:   ko://pod-affinity # a comment\nz: 1",
            "a: 'ko://pod-affinity'\nb: \"ko://pod-affinity\"",
            "a: {a: ko://pod-affinity, b: [ko://pod-affinity]}",
            "a: --image=ko://pod-affinity",
            "a: |\n  image: ko://pod-affinity # x",
            "a: >-\n  see\n  ko://pod-affinity.",
            "\u{e9}: \"\u{1f980}\"\na: ko://pod-affinity",
        ] {
            let text = object(text);
            let manifests = added(&text).unwrap();
            assert!(manifests.need_image());
            assert_eq!(
                manifests.resolved(IMAGE),
                text.replace("ko://pod-affinity", IMAGE)
            );
        }
    }

    #[test]
    fn an_unknown_image_is_an_error_with_the_known_one() {
        for unknown in [
            "ko://pod-affinity2",
            "ko://github.com/tektoncd/pipeline/cmd/controller",
            "ko://pod",
        ] {
            let error = added(&object(&format!("a: {unknown}"))).unwrap_err().to_string();
            assert!(
                error.contains(unknown) && error.ends_with("known image is ko://pod-affinity"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_scheme_without_a_name_is_not_a_reference() {
        assert!(
            !added(&object("a: references begin with ko:// or ko://."))
                .unwrap()
                .need_image()
        );
    }

    #[test]
    fn documents_without_content_are_allowed() {
        for text in [
            "# only words\n---\n---\napiVersion: v1\nkind: Namespace\n---\n# the end\n",
            "",
        ] {
            assert!(added(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn invalid_yaml_and_a_duplicate_key_are_errors_with_their_line() {
        for (text, problem) in [
            ("apiVersion: v1\nkind: [\n", "line 3"),
            ("apiVersion: v1\nkind: A\nkind: B\n", "kind"),
        ] {
            let error = format!("{:#}", added(text).unwrap_err());
            assert!(
                error.starts_with("x.yaml is not valid YAML") && error.contains(problem),
                "{error}"
            );
        }
    }

    #[test]
    fn a_document_that_is_not_an_object_is_an_error() {
        for text in [
            "# Title\n\nSome words.\n",
            "- a\n- b\n",
            "a: 1\n",
            "apiVersion: 1\nkind: x\n",
        ] {
            let error = added(text).unwrap_err().to_string();
            assert!(error.contains("is not a Kubernetes object"), "{error}");
        }
    }

    #[test]
    fn files_are_separate_documents() {
        let mut manifests = added("apiVersion: v1\nkind: A").unwrap();
        manifests.add("y.yaml", "---\napiVersion: v1\nkind: B\n").unwrap();
        manifests.add("z.yaml", &object("")).unwrap();
        assert_eq!(manifests.0.matches("---\n").count(), 2);
        assert_eq!(serde_yaml::Deserializer::from_str(&manifests.0).count(), 3);
    }

    fn folder_of(files: &[&str]) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, file).unwrap();
        }
        folder
    }

    #[test]
    fn a_folder_is_read_in_the_order_of_names_without_other_files() {
        let folder = folder_of(&[
            "b.yml",
            "a.yaml",
            "c.json",
            "README.md",
            "kustomization.yaml",
            "deep/d.yaml",
        ]);
        let names = files(folder.path()).unwrap();
        let names: Vec<_> = names.iter().map(|path| path.file_name().unwrap()).collect();
        assert_eq!(names, ["a.yaml", "b.yml", "c.json"]);
    }

    #[test]
    fn a_folder_without_manifests_is_an_error() {
        let error = files(folder_of(&["deep/d.yaml"]).path()).unwrap_err().to_string();
        assert!(
            error.contains("contains no manifest") && error.contains("-k"),
            "{error}"
        );
    }
}
