//! `cargo ship verify`: checks a release with the programs that users have: crane and cosign.

use crate::archive::sha256;
use crate::args::VerifyArgs;
use crate::chart;
use crate::cosign::{CHECKSUMS, CHECKSUMS_SIGNATURE, Cosign};
use crate::crane::Crane;
use crate::destination::Destination;
use crate::image::{LocalRegistry, digest};
use crate::release::{IMAGE_ARCHIVE, IMAGE_REFERENCE};
use crate::tool::{self, read, read_bytes};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Checks all files, and reports each check.
pub(crate) fn verify(root: &Path, args: &VerifyArgs) -> Result<()> {
    let (folder, insecure) = (&args.folder, args.registry.insecure_registry);
    let cosign = args.key.as_deref().map(|key| Cosign::new(root, key, insecure));
    let cosign = cosign.transpose()?;
    if let Some(cosign) = &cosign {
        cosign.verify_files(folder)?;
        status!("{CHECKSUMS} has a valid signature");
    } else {
        status!("note: without --key, nothing shows who wrote these files");
    }
    let checksums = read(&folder.join(CHECKSUMS))?;
    let files = digests(&checksums);
    all_files_are_listed(folder, &files)?;
    status!("{} files have the checksums of the release", files.len());
    let image = read(&folder.join(IMAGE_REFERENCE))?;
    let image = image.trim();
    let archive = LocalRegistry::start(root)?.validated(&folder.join(IMAGE_ARCHIVE))?;
    is_image("the archive", &archive, image)?;
    status!("the archive contains the image of {IMAGE_REFERENCE}, and all its blobs");
    if args.in_registry {
        registry_serves(&Crane::new(root, insecure)?, cosign.as_ref(), image, &files)?;
    }
    Ok(())
}

/// Digests by file name, from the text of the checksums.
fn digests(checksums: &str) -> BTreeMap<&str, &str> {
    let lines = checksums.lines().filter_map(|line| line.split_once("  "));
    lines.map(|(digest, name)| (name, digest)).collect()
}

/// Each listed file has its checksum, and each other file is the checksums or their signature.
fn all_files_are_listed(folder: &Path, files: &BTreeMap<&str, &str>) -> Result<()> {
    for (name, digest) in files {
        ensure!(
            sha256(&read_bytes(&folder.join(name))?) == *digest,
            "{name} is not the file of the release: its checksum differs from {CHECKSUMS}"
        );
    }
    for file in tool::files(folder)? {
        let name = file.file_name().unwrap_or_default().display().to_string();
        ensure!(
            files.contains_key(name.as_str()) || [CHECKSUMS, CHECKSUMS_SIGNATURE].contains(&name.as_str()),
            "{name} is missing in {CHECKSUMS}, so it is not a file of the release"
        );
    }
    Ok(())
}

fn is_image(place: &str, found: &str, image: &str) -> Result<()> {
    ensure!(
        found == digest(image),
        "{place} has the image {found}, and {IMAGE_REFERENCE} has {image}"
    );
    Ok(())
}

fn registry_serves(
    crane: &Crane,
    cosign: Option<&Cosign>,
    image: &str,
    files: &BTreeMap<&str, &str>,
) -> Result<()> {
    is_image("the registry", &crane.run(&["digest", image])?, image)?;
    crane.run(&["validate", "--remote", image])?;
    let chart = files
        .iter()
        .find_map(|(name, digest)| Some((chart::version_of(name)?, digest)));
    let (version, digest) = chart.with_context(|| format!("{CHECKSUMS} lists no chart"))?;
    let repository = image.rsplit_once('/').map(|(repository, _)| repository);
    let chart = Destination::parse(repository.unwrap_or_default())?.chart(version);
    // The only layer of the chart is the archive of the release.
    let manifest: Value = serde_json::from_str(&crane.run(&["manifest", &chart])?)?;
    ensure!(
        manifest["layers"][0]["digest"] == format!("sha256:{digest}"),
        "{chart} is not the chart of the release"
    );
    status!("the registry serves the image and the chart");
    if let Some(cosign) = cosign {
        cosign.verify(image)?;
        cosign.verify_provenance(image)?;
        cosign.verify(&chart)?;
        status!("image and chart have valid signatures, and the image has a valid provenance");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
