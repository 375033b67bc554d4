//! Reads the path of this checkout and the metadata of the product from cargo, and the commit from git.

use cargo_metadata::{Metadata, MetadataCommand};
use jiff::Timestamp;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The package whose binary is shipped.
pub(crate) const PRODUCT: &str = "pod-affinity";

/// The checkout.
#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target_directory: PathBuf,
    pub(crate) version: String,
    pub(crate) license: Option<String>,
    pub(crate) repository: Option<String>,
}

/// The current folder is not in a checkout that can be shipped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cargo cannot read this workspace: {0}; call `cargo ship` from within the checkout")]
    Metadata(#[from] cargo_metadata::Error),
    #[error("the workspace at {0} has no package {PRODUCT}: call `cargo ship` from within its checkout")]
    Foreign(PathBuf),
}

/// Reads the metadata from cargo in the current folder.
pub(crate) fn find() -> Result<Workspace, Error> {
    from_metadata(MetadataCommand::new().no_deps().exec()?)
}

fn from_metadata(metadata: Metadata) -> Result<Workspace, Error> {
    let root = metadata.workspace_root.into_std_path_buf();
    let mut packages = metadata.packages.into_iter();
    let Some(product) = packages.find(|package| package.name.as_str() == PRODUCT) else {
        return Err(Error::Foreign(root));
    };
    Ok(Workspace {
        root,
        target_directory: metadata.target_directory.into_std_path_buf(),
        version: product.version.to_string(),
        license: product.license,
        repository: product.repository,
    })
}

/// The commit of an image, and its only timestamp: `SOURCE_DATE_EPOCH`, or the time of the commit. The current time is never used,
/// because the same commit would get another digest each time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Provenance {
    /// The commit, with the suffix `-dirty` if files differ from it. `None` without git.
    pub(crate) revision: Option<String>,
    pub(crate) dirty: bool,
    pub(crate) time: Timestamp,
}

impl Provenance {
    /// Reads the commit from git.
    pub(crate) fn read(root: &Path, epoch: Option<i64>) -> Self {
        let git = |arguments: &[&str]| git(root, arguments);
        derived(
            git(&["rev-parse", "HEAD"]).as_deref(),
            git(&["status", "--porcelain"]).as_deref(),
            git(&["log", "-1", "--format=%ct"]).as_deref(),
            epoch,
        )
    }
}

/// Returns `None` without git, without a repository, or if the user may not read it.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(root)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let answer = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| answer.trim().to_owned())
}

fn derived(
    head: Option<&str>,
    status: Option<&str>,
    committed: Option<&str>,
    epoch: Option<i64>,
) -> Provenance {
    let dirty = status.is_some_and(|changes| !changes.is_empty());
    let seconds = epoch.or_else(|| committed?.parse().ok()).unwrap_or_default();
    let suffix = if dirty { "-dirty" } else { "" };
    Provenance {
        revision: head.map(|head| format!("{head}{suffix}")),
        dirty,
        time: Timestamp::from_second(seconds).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clean_checkout_is_its_commit_at_the_time_of_the_commit() {
        let clean = derived(Some("abc"), Some(""), Some("1700000000"), None);
        assert_eq!((clean.revision.as_deref(), clean.dirty), (Some("abc"), false));
        assert_eq!(clean.time.to_string(), "2023-11-14T22:13:20Z");
    }

    #[test]
    fn changed_files_are_reported() {
        let dirty = derived(Some("abc"), Some(" M Cargo.toml"), Some("1"), None);
        assert_eq!(
            (dirty.revision.as_deref(), dirty.dirty),
            (Some("abc-dirty"), true)
        );
    }

    #[test]
    fn source_date_epoch_takes_precedence_over_the_commit() {
        assert_eq!(derived(None, None, Some("5"), Some(7)).time.as_second(), 7);
    }

    #[test]
    fn without_git_there_is_no_revision_and_the_time_is_1970() {
        let unknown = derived(None, None, None, None);
        assert_eq!((unknown.revision, unknown.time.as_second()), (None, 0));
    }

    #[test]
    fn a_folder_that_is_no_repository_has_no_revision() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Provenance::read(folder.path(), None).revision, None);
    }
}
