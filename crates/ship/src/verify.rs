//! `cargo ship verify`: checks a release with the programs that users have: crane and cosign.

use crate::args::VerifyArgs;
use crate::chart;
use crate::crane::{self, Crane};
use crate::destination::{self, Destination};
use crate::image::hex;
use crate::release::{
    CHECKSUMS, IMAGE_ARCHIVE, IMAGE_REFERENCE, MANIFESTS, POLICIES, PROVENANCE, Verifier, bundle_of, digests,
};
use crate::tool;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// A check failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{} cannot be read ({source}): give the folder of a release", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{0} is not the file of the release: its checksum differs from {CHECKSUMS}")]
    Checksum(String),
    #[error("{0} is missing in {CHECKSUMS}, so it is not a file of the release")]
    Unlisted(String),
    #[error("the archive has the image {found}, and {IMAGE_REFERENCE} has {wanted}")]
    Image { found: String, wanted: String },
    #[error("{0} refers to another image than {IMAGE_REFERENCE}")]
    Manifests(&'static str),
    #[error("{CHECKSUMS} lists no chart")]
    NoChart,
    #[error("{0} is not the chart of the release")]
    Chart(String),
    #[error("{PROVENANCE} does not describe {0}")]
    Provenance(String),
    #[error(transparent)]
    Tool(#[from] tool::Error),
    #[error(transparent)]
    Crane(#[from] crane::Error),
    #[error(transparent)]
    Destination(#[from] destination::Error),
}

/// Checks all files, and reports each check.
pub(crate) fn verify(root: &Path, args: &VerifyArgs) -> Result<(), Error> {
    let folder = &args.folder;
    if let Some(key) = &args.key {
        Verifier::new(root, key)?.verify_files(folder)?;
        status!("{CHECKSUMS} has a valid signature");
    } else {
        status!("note: without --key, nothing shows who wrote these files");
    }
    let checksums = text(folder, CHECKSUMS)?;
    let count = all_files_are_listed(folder, &checksums)?;
    status!("{count} files have the checksums of the release");
    let reference = text(folder, IMAGE_REFERENCE)?.trim().to_owned();
    manifests_use(folder, &reference)?;
    provenance_describes(folder, &checksums)?;
    archive_contains(root, folder, &reference)?;
    status!("the archive contains the image of the manifests, and all its blobs");
    if args.in_registry {
        registry_serves(root, args, &reference)?;
        registry_serves_chart(root, args, &reference, &checksums)?;
    }
    Ok(())
}

fn read(folder: &Path, name: &str) -> Result<Vec<u8>, Error> {
    let path = folder.join(name);
    std::fs::read(&path).map_err(|source| Error::Read { path, source })
}

fn text(folder: &Path, name: &str) -> Result<String, Error> {
    Ok(String::from_utf8_lossy(&read(folder, name)?).into_owned())
}

/// Each listed file has its checksum, and each other file is the checksums or their signature.
fn all_files_are_listed(folder: &Path, checksums: &str) -> Result<usize, Error> {
    let digests = digests(checksums);
    for (name, digest) in &digests {
        if hex(&read(folder, name)?) != **digest {
            return Err(Error::Checksum((*name).to_owned()));
        }
    }
    let of_checksums: BTreeSet<_> = [CHECKSUMS.to_owned(), bundle_of(CHECKSUMS)].into();
    let is_listed = |name: &String| digests.contains_key(name.as_str()) || of_checksums.contains(name);
    match names(folder)?.into_iter().find(|name| !is_listed(name)) {
        Some(name) => Err(Error::Unlisted(name)),
        None => Ok(digests.len()),
    }
}

fn names(folder: &Path) -> Result<Vec<String>, Error> {
    let unreadable = |source| Error::Read {
        path: folder.to_owned(),
        source,
    };
    let entries = std::fs::read_dir(folder).map_err(unreadable)?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect::<io::Result<_>>().map_err(unreadable)
}

fn manifests_use(folder: &Path, reference: &str) -> Result<(), Error> {
    for file in [MANIFESTS, POLICIES] {
        let text = text(folder, file)?;
        let (_, digest) = reference.split_once('@').unwrap_or_default();
        let others = text.matches("@sha256:").count() != text.matches(digest).count();
        if others || !text.contains(reference) {
            return Err(Error::Manifests(file));
        }
    }
    Ok(())
}

/// The provenance has a subject with the digest of each other file.
fn provenance_describes(folder: &Path, checksums: &str) -> Result<(), Error> {
    let statement: Value = serde_json::from_slice(&read(folder, PROVENANCE)?).unwrap_or_default();
    let subjects = statement["subject"].as_array().cloned().unwrap_or_default();
    let described = |digest: &str| {
        subjects
            .iter()
            .any(|subject| subject["digest"]["sha256"] == digest)
    };
    let mut files = digests(checksums).into_iter();
    match files.find(|(name, digest)| *name != PROVENANCE && !described(digest)) {
        Some((name, _)) => Err(Error::Provenance(name.to_owned())),
        None => Ok(()),
    }
}

/// Pushes the archive to an empty registry on this machine, where crane checks the index and all blobs.
fn archive_contains(root: &Path, folder: &Path, reference: &str) -> Result<(), Error> {
    let crane = Crane::new(root, false)?;
    let served = crane.serve()?;
    let to = Destination::parse(Some(&served.address))?;
    crane.push_archive(&folder.join(IMAGE_ARCHIVE), &to, "copy")?;
    let copy = to.tagged("copy").whole();
    crane.run(&["validate", "--remote", &copy])?;
    is_image(crane.run(&["digest", &copy])?, reference)
}

fn is_image(digest: String, reference: &str) -> Result<(), Error> {
    let (_, wanted) = reference.split_once('@').unwrap_or_default();
    if digest.trim() == wanted {
        return Ok(());
    }
    Err(Error::Image {
        found: digest,
        wanted: wanted.to_owned(),
    })
}

fn registry_serves(root: &Path, args: &VerifyArgs, reference: &str) -> Result<(), Error> {
    let crane = Crane::new(root, args.registry.insecure_registry)?;
    is_image(crane.run(&["digest", reference])?, reference)?;
    crane.run(&["validate", "--remote", reference])?;
    status!("the registry serves the image");
    if let Some(key) = &args.key {
        Verifier::new(root, key)?.verify_image(reference, args.registry.insecure_registry)?;
        status!("the image in the registry has a valid signature and provenance");
    }
    Ok(())
}

/// The only layer of the chart is the archive of the release.
fn registry_serves_chart(
    root: &Path,
    args: &VerifyArgs,
    reference: &str,
    checksums: &str,
) -> Result<(), Error> {
    let (image, _) = reference.split_once('@').unwrap_or_default();
    let repository = image.rsplit_once('/').map(|(repository, _)| repository);
    let mut files = digests(checksums).into_iter();
    let chart = files.find_map(|(name, digest)| Some((chart::version_of(name)?, digest)));
    let (version, digest) = chart.ok_or(Error::NoChart)?;
    let chart = Destination::parse(repository)?.chart(version);
    let crane = Crane::new(root, args.registry.insecure_registry)?;
    let manifest: Value = serde_json::from_str(&crane.run(&["manifest", &chart])?).unwrap_or_default();
    if manifest["layers"][0]["digest"] != format!("sha256:{digest}") {
        return Err(Error::Chart(chart));
    }
    status!("the registry serves the chart");
    if let Some(key) = &args.key {
        Verifier::new(root, key)?.verify_chart(&chart, args.registry.insecure_registry)?;
        status!("the chart in the registry has a valid signature");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
