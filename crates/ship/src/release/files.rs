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

/// The file with the signature of another file.
pub(crate) fn bundle_of(file: &str) -> String {
    format!("{file}.sigstore.json")
}

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

    /// Writes the files and their checksums. Files of an earlier release in the folder are removed, because they would look like
    /// parts of this release.
    pub(super) fn write(mut self, folder: &Path) -> Result<(), Error> {
        let lines = self.digests();
        let lines = lines.iter().map(|(name, digest)| format!("{digest}  {name}\n"));
        let checksums: String = lines.collect();
        self.add(CHECKSUMS, checksums);
        remove_earlier(folder)?;
        std::fs::create_dir_all(folder).map_err(unwritable(folder))?;
        for (name, content) in self.0 {
            let path = folder.join(name);
            std::fs::write(&path, content).map_err(unwritable(&path))?;
        }
        Ok(())
    }
}

/// Removes the files that the checksums in the folder list, and no other file.
fn remove_earlier(folder: &Path) -> Result<(), Error> {
    let checksums = std::fs::read_to_string(folder.join(CHECKSUMS)).unwrap_or_default();
    let signature = bundle_of(CHECKSUMS);
    let listed = digests(&checksums).into_keys().filter(|name| !name.contains('/'));
    for name in listed.chain([CHECKSUMS, signature.as_str()]) {
        let path = folder.join(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unwritable(&path)(error)),
            _ => {}
        }
    }
    Ok(())
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
    fn files_of_an_earlier_release_are_removed_and_other_files_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let exists = |name: &str| folder.path().join(name).exists();
        let mut earlier = files();
        earlier.add("old", "");
        earlier.write(folder.path()).unwrap();
        std::fs::write(folder.path().join("mine"), "").unwrap();
        std::fs::write(folder.path().join(bundle_of(CHECKSUMS)), "").unwrap();
        files().write(folder.path()).unwrap();
        assert_eq!(
            ["old", &bundle_of(CHECKSUMS), "mine"].map(exists),
            [false, false, true]
        );
    }

    #[test]
    fn a_folder_that_cannot_be_created_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = files().write(&file.path().join("x")).unwrap_err().to_string();
        assert!(error.contains("--out"), "{error}");
    }
}
