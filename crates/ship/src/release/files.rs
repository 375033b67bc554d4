//! The files of a release, in memory until all of them are complete.

use super::Error;
use crate::image::hex;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// All manifests, with the webhook.
pub(crate) const MANIFESTS: &str = "release.yaml";
/// All manifests, with admission policies instead of the webhook.
pub(crate) const POLICIES: &str = "release-policies.yaml";
/// The image reference by digest.
pub(crate) const IMAGE_REFERENCE: &str = "image.txt";
/// The image for all platforms as an OCI layout, for clusters without access to the registry.
pub(crate) const IMAGE_ARCHIVE: &str = "pod-affinity-image.tar";
/// The checksums of all other files, in the format of `sha256sum --check`.
pub(crate) const CHECKSUMS: &str = "checksums.txt";
/// The SLSA provenance of all other files and the image.
pub(crate) const PROVENANCE: &str = "provenance.intoto.json";

/// Contents by file name.
#[derive(Clone, Debug, Default)]
pub(super) struct Files(BTreeMap<String, Vec<u8>>);

impl Files {
    pub(super) fn add(&mut self, name: &str, content: impl Into<Vec<u8>>) {
        self.0.insert(name.to_owned(), content.into());
    }

    /// The SHA-256 of each file in hexadecimal.
    pub(super) fn digests(&self) -> BTreeMap<String, String> {
        let files = self.0.iter();
        files
            .map(|(name, content)| (name.clone(), hex(content)))
            .collect()
    }

    /// Writes the files and their checksums into an empty folder. An earlier release in the folder is replaced, because a file
    /// without a checksum would look like a part of this release.
    pub(super) fn write(mut self, folder: &Path) -> Result<(), Error> {
        let lines = self.digests();
        let lines = lines.iter().map(|(name, digest)| format!("{digest}  {name}\n"));
        let checksums: String = lines.collect();
        self.add(CHECKSUMS, checksums);
        if folder.join(CHECKSUMS).exists() {
            std::fs::remove_dir_all(folder).map_err(unwritable(folder))?;
        }
        std::fs::create_dir_all(folder).map_err(unwritable(folder))?;
        for (name, content) in self.0 {
            let path = folder.join(name);
            std::fs::write(&path, content).map_err(unwritable(&path))?;
        }
        Ok(())
    }
}

/// Digests by file name, from the text of the checksums.
pub(crate) fn digests(checksums: &str) -> BTreeMap<&str, &str> {
    let lines = checksums.lines();
    lines
        .filter_map(|line| line.split_once("  ").map(|(digest, name)| (name, digest)))
        .collect()
}

fn unwritable(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Write { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn files() -> Files {
        let mut files = Files::default();
        files.add(MANIFESTS, "a: 1\n");
        files.add(POLICIES, "a: 2\n");
        files
    }

    #[test]
    fn the_checksums_of_a_release_pass_sha256sum() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("new/release");
        files().write(&inner).unwrap();
        let check = Command::new("sha256sum")
            .args(["--check", "--strict", CHECKSUMS])
            .current_dir(&inner)
            .output();
        assert!(check.unwrap().status.success());
        let checksums = std::fs::read_to_string(inner.join(CHECKSUMS)).unwrap();
        assert_eq!(digests(&checksums).len(), 2);
    }

    #[test]
    fn a_file_of_an_earlier_release_is_removed_and_other_folders_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let old = folder.path().join("old");
        std::fs::write(&old, "").unwrap();
        files().write(folder.path()).unwrap();
        assert!(old.exists());
        files().write(folder.path()).unwrap();
        assert!(!old.exists());
    }

    #[test]
    fn a_folder_that_cannot_be_created_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = files().write(&file.path().join("x")).unwrap_err().to_string();
        assert!(error.contains("--out"), "{error}");
    }
}
