//! The source of an image: the checkout, its metadata from cargo, and its commit from git.

use anyhow::{Context, Result};
use cargo_metadata::MetadataCommand;
use jiff::Timestamp;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package whose binary is in the image.
pub(crate) const PRODUCT: &str = "pod-affinity";
/// The description of the image for users of a registry.
const DESCRIPTION: &str =
    "Runs all pods of a labelled Tekton PipelineRun on one node that no other run uses.";

/// A checkout at a commit.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) root: PathBuf,
    pub(crate) target_directory: PathBuf,
    pub(crate) version: String,
    pub(crate) license: String,
    pub(crate) repository: Option<String>,
    pub(crate) commit: Commit,
}

/// A commit, and the only timestamp of an image: `SOURCE_DATE_EPOCH`, or the time of the commit. The current time is never used,
/// because the same commit would get another digest each time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Commit {
    /// The hash, with the suffix `-dirty` if files differ from the commit. `None` without git.
    pub(crate) revision: Option<String>,
    pub(crate) dirty: bool,
    pub(crate) time: Timestamp,
}

impl Source {
    /// Reads the checkout of the current folder.
    pub(crate) fn read(epoch: Option<i64>) -> Result<Self> {
        let metadata = MetadataCommand::new().no_deps().exec();
        let metadata = metadata.context("call `cargo ship` from within the checkout")?;
        let root = metadata.workspace_root.into_std_path_buf();
        let mut packages = metadata.packages.into_iter();
        let product = packages.find(|package| package.name.as_str() == PRODUCT);
        let product = product
            .with_context(|| format!("the workspace at {} has no package {PRODUCT}", root.display()))?;
        let commit = Commit::read(&root, epoch);
        Ok(Self {
            commit,
            root,
            target_directory: metadata.target_directory.into_std_path_buf(),
            version: product.version.to_string(),
            license: product.license.unwrap_or_default(),
            repository: product.repository,
        })
    }

    /// The labels and annotations of the image.
    pub(crate) fn labels(&self) -> Vec<String> {
        let known = [
            ("title", Some(PRODUCT.to_owned())),
            ("description", Some(DESCRIPTION.to_owned())),
            ("version", Some(self.version.clone())),
            ("revision", self.commit.revision.clone()),
            ("created", Some(self.commit.time.to_string())),
            ("licenses", Some(self.license.clone())),
            ("source", self.repository.clone()),
        ];
        let label =
            |(key, value): (&str, Option<String>)| Some(format!("org.opencontainers.image.{key}={}", value?));
        known.into_iter().filter_map(label).collect()
    }
}

impl Commit {
    /// Reads the commit from git.
    fn read(root: &Path, epoch: Option<i64>) -> Self {
        let git = |arguments: &[&str]| {
            let output = Command::new("git")
                .args(arguments)
                .current_dir(root)
                .output()
                .ok()?;
            let answer = String::from_utf8(output.stdout).ok()?;
            output.status.success().then(|| answer.trim().to_owned())
        };
        let dirty = git(&["status", "--porcelain"]).is_some_and(|changes| !changes.is_empty());
        let suffix = if dirty { "-dirty" } else { "" };
        let committed = || git(&["log", "-1", "--format=%ct"])?.parse().ok();
        let seconds = epoch.or_else(committed).unwrap_or_default();
        Self {
            revision: git(&["rev-parse", "HEAD"]).map(|head| format!("{head}{suffix}")),
            dirty,
            time: Timestamp::from_second(seconds).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn source(revision: Option<&str>) -> Source {
        Source {
            root: "/checkout".into(),
            target_directory: "/checkout/target".into(),
            version: "1.2.3".into(),
            license: "Apache-2.0".into(),
            repository: None,
            commit: Commit {
                revision: revision.map(str::to_owned),
                dirty: false,
                time: Timestamp::UNIX_EPOCH,
            },
        }
    }

    #[test]
    fn labels_describe_the_image_and_its_source() {
        let labels = source(Some("abc")).labels();
        for label in [
            "title=pod-affinity",
            "version=1.2.3",
            "revision=abc",
            "licenses=Apache-2.0",
            "created=1970-01-01T00:00:00Z",
        ] {
            assert!(
                labels.contains(&format!("org.opencontainers.image.{label}")),
                "{labels:?}"
            );
        }
        let unknown = source(None).labels().join(" ");
        assert!(
            !unknown.contains("revision") && !unknown.contains("source="),
            "{unknown}"
        );
    }

    fn repository() -> (tempfile::TempDir, impl Fn(&[&str])) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        let git = move |arguments: &[&str]| {
            let mut git = Command::new("git");
            git.args(["-c", "user.name=a", "-c", "user.email=a@b"])
                .args(arguments);
            git.env("GIT_COMMITTER_DATE", "1700000000 +0000")
                .current_dir(&path);
            assert!(git.output().unwrap().status.success());
        };
        git(&["init"]);
        git(&["commit", "--allow-empty", "--message=x"]);
        (folder, git)
    }

    #[test]
    fn a_commit_has_its_own_time_and_says_whether_files_differ() {
        let (folder, _git) = repository();
        let clean = Commit::read(folder.path(), None);
        assert_eq!((clean.revision.as_ref().unwrap().len(), clean.dirty), (40, false));
        assert_eq!(clean.time.to_string(), "2023-11-14T22:13:20Z");
        std::fs::write(folder.path().join("new"), "").unwrap();
        let dirty = Commit::read(folder.path(), Some(7));
        assert_eq!(dirty.revision.unwrap(), clean.revision.unwrap() + "-dirty");
        assert_eq!((dirty.dirty, dirty.time.as_second()), (true, 7));
    }

    #[test]
    fn a_folder_that_is_no_repository_has_no_revision_and_the_time_1970() {
        let folder = tempfile::tempdir().unwrap();
        let unknown = Commit::read(folder.path(), None);
        assert_eq!(
            (unknown.revision, unknown.dirty, unknown.time.as_second()),
            (None, false, 0)
        );
    }
}
