//! The files of a release, for users without this checkout. Only the last function writes to the disk.

use crate::image::hex;
use std::io;
use std::path::{Path, PathBuf};

/// A version such as `v1.2.3` or `v1.2.3-rc.1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version(String);

/// The file with all manifests, with the webhook.
pub(crate) const MANIFESTS: &str = "release.yaml";
/// The file with all manifests, with admission policies instead of the webhook.
pub(crate) const POLICIES: &str = "release-policies.yaml";

/// The contents of a release.
#[derive(Clone, Debug)]
pub(crate) struct Contents {
    /// Each file of resolved manifests.
    pub(crate) manifests: Vec<(&'static str, String)>,
    /// The image reference by digest.
    pub(crate) image: String,
    /// The bill of materials, if one was requested.
    pub(crate) sbom: Option<Vec<u8>>,
}

/// The release cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(
        "this checkout differs from its commit, and a release must be what its revision says: commit or stash the changes (see \
         `git status`), or use --allow-dirty"
    )]
    Dirty,
    #[error("{} cannot be written ({source}): choose a writable folder with --out", path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl Version {
    /// Parses a version of the command line.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (numbers, suffix) = text
            .split_once('-')
            .map_or((text, None), |(numbers, suffix)| (numbers, Some(suffix)));
        let numbers: Vec<&str> = numbers.strip_prefix('v').unwrap_or_default().split('.').collect();
        let is_number = |part: &&str| {
            part.parse::<u32>()
                .is_ok_and(|number| number.to_string() == **part)
        };
        let allowed = |c: char| c.is_ascii_alphanumeric() || ".-".contains(c);
        // The value of a label must end with a letter or digit.
        let good_end = |suffix: &str| {
            suffix.ends_with(|c: char| c.is_ascii_alphanumeric()) && suffix.chars().all(allowed)
        };
        if numbers.len() == 3
            && numbers.iter().all(is_number)
            && suffix.is_none_or(good_end)
            && text.len() <= 63
        {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!(
                "'{text}' is not a valid version: write it as v1.2.3 or v1.2.3-rc.1"
            ))
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The version without the letter, as in Cargo.
    pub(crate) fn plain(&self) -> &str {
        self.0.trim_start_matches('v')
    }
}

/// Names and contents of the files; the last file contains the checksums of the others.
pub(crate) fn files(contents: Contents) -> Vec<(&'static str, Vec<u8>)> {
    let Contents {
        manifests,
        image,
        sbom,
    } = contents;
    let manifests = manifests.into_iter();
    let mut files: Vec<_> = manifests.map(|(name, text)| (name, text.into_bytes())).collect();
    files.push(("image.txt", format!("{image}\n").into_bytes()));
    files.extend(sbom.map(|sbom| ("sbom.spdx.json", sbom)));
    let checksums = checksums(&files);
    files.push(("checksums.txt", checksums.into_bytes()));
    files
}

/// The checksums in the format of `sha256sum --check`.
fn checksums(files: &[(&str, Vec<u8>)]) -> String {
    files
        .iter()
        .map(|(name, content)| format!("{}  {name}\n", hex(content)))
        .collect()
}

/// Writes the files.
pub(crate) fn write(folder: &Path, files: &[(&str, Vec<u8>)]) -> Result<(), Error> {
    std::fs::create_dir_all(folder).map_err(unwritable(folder))?;
    for (name, content) in files {
        let path = folder.join(name);
        std::fs::write(&path, content).map_err(unwritable(&path))?;
    }
    Ok(())
}

fn unwritable(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Write { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn contents() -> Contents {
        Contents {
            manifests: vec![(MANIFESTS, "a: 1\n".into()), (POLICIES, "a: 2\n".into())],
            image: "localhost/pod-affinity@sha256:0".into(),
            sbom: Some(b"{}\n".to_vec()),
        }
    }

    #[test]
    fn versions_are_written_as_releases_are() {
        for good in ["v0.1.0", "v1.2.3", "v10.0.0-rc.1"] {
            assert_eq!(Version::parse(good).unwrap().as_str(), good);
        }
        for bad in [
            "1.2.3",
            "v1.2",
            "v1.2.3.4",
            "v1.2.x",
            "v01.2.3",
            "v1.2.3-",
            "v1.2.3+x",
            "v1.2.3-a_",
            "",
        ] {
            assert!(Version::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn cargo_writes_the_version_without_its_letter() {
        assert_eq!(Version::parse("v1.2.3-rc.1").unwrap().plain(), "1.2.3-rc.1");
    }

    #[test]
    fn the_checksums_of_a_release_pass_sha256sum() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("new/release");
        write(&inner, &files(contents())).unwrap();
        let check = Command::new("sha256sum")
            .args(["--check", "--strict", "checksums.txt"])
            .current_dir(&inner)
            .output();
        assert!(check.unwrap().status.success());
    }

    #[test]
    fn every_other_file_has_a_checksum() {
        let files = files(contents());
        let (_, checksums) = files.last().unwrap();
        assert_eq!(
            String::from_utf8_lossy(checksums).lines().count(),
            files.len() - 1
        );
    }

    #[test]
    fn a_release_without_a_bill_of_materials_has_one_file_less() {
        let without = Contents {
            sbom: None,
            ..contents()
        };
        assert_eq!(files(without).len(), 4);
    }

    #[test]
    fn a_folder_that_cannot_be_created_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = write(&file.path().join("x"), &files(contents()))
            .unwrap_err()
            .to_string();
        assert!(error.contains("--out"), "{error}");
    }
}
