//! The steps of each command.

use crate::args::{Args, Command, ImageArgs, ManifestArgs, ReleaseArgs, VerifyArgs};
use crate::chart::{self, Chart};
use crate::kubectl::{self, Verb};
use crate::manifest::{self, Manifests, Selection, files};
use crate::product::{self, Source};
use crate::release::Version;
use crate::workspace::{self, PRODUCT, Provenance};
use crate::{release, verify};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

/// A command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Files(#[from] files::Error),
    #[error(transparent)]
    Manifest(#[from] manifest::Error),
    #[error(transparent)]
    Workspace(#[from] workspace::Error),
    #[error(transparent)]
    Product(#[from] product::Error),
    #[error(transparent)]
    Kubectl(#[from] kubectl::Error),
    #[error(transparent)]
    Chart(#[from] chart::Error),
    #[error(transparent)]
    Release(#[from] release::Error),
    #[error(transparent)]
    Verify(#[from] verify::Error),
    #[error("standard output cannot be written: {0}")]
    Output(io::Error),
}

/// Runs the command, and returns the exit code.
pub(crate) fn run(args: Args) -> Result<u8, Error> {
    match args.command {
        Command::Build(image) => build(&image),
        Command::Resolve { manifests, image } => resolve(&manifests, &image),
        Command::Apply {
            manifests,
            image,
            kubectl,
        } => apply(&manifests, &image, &kubectl),
        Command::Delete { manifests, kubectl } => delete(&manifests, &kubectl),
        Command::Chart { out, image } => chart(&out, &image),
        Command::Release(args) => release(&args),
        Command::Verify(args) => verify(&args),
    }
}

fn build(image: &ImageArgs) -> Result<u8, Error> {
    let reference = product::ship(image, &source(image.source.source_date_epoch)?, &image.tags())?;
    print(&format!("{reference}\n"))
}

fn resolve(manifests: &ManifestArgs, image: &ImageArgs) -> Result<u8, Error> {
    print(&resolved(&manifests.selection(), image)?.joined())
}

fn apply(manifests: &ManifestArgs, image: &ImageArgs, arguments: &[OsString]) -> Result<u8, Error> {
    kubectl::require_kubectl()?;
    let resolved = resolved(&manifests.selection(), image)?;
    Ok(kubectl::run(Verb::Apply, &resolved.joined(), arguments)?)
}

fn delete(manifests: &ManifestArgs, arguments: &[OsString]) -> Result<u8, Error> {
    let manifests = Manifests::checked(files::read(&manifests.selection())?)?;
    Ok(kubectl::run(Verb::Delete, &manifests.joined(), arguments)?)
}

fn chart(out: &Path, image: &ImageArgs) -> Result<u8, Error> {
    let source = source(image.source.source_date_epoch)?;
    let version = Version::of_source(&source.version);
    let reference = product::ship(image, &source, &image.tags())?;
    let chart = Chart::new(&source.workspace.root, &version, &reference)?;
    let written = std::fs::write(out, chart.packed(source.provenance.time)?);
    written.map_err(|source| chart::Error::Write {
        path: out.to_owned(),
        source,
    })?;
    status!("the chart is in {}", out.display());
    print(&format!("{reference}\n"))
}

fn verify(args: &VerifyArgs) -> Result<u8, Error> {
    let workspace = workspace::find()?;
    verify::verify(&workspace.root, args)?;
    Ok(0)
}

fn release(args: &ReleaseArgs) -> Result<u8, Error> {
    let reference = release::release(args, &source(args.source.source_date_epoch)?)?;
    print(&format!("{reference}\n"))
}

/// Builds the image only if a manifest refers to it.
fn resolved(selection: &Selection, image: &ImageArgs) -> Result<Manifests, Error> {
    let manifests = Manifests::checked(files::read(selection)?)?;
    if manifests.images(&[PRODUCT])?.is_empty() {
        status!("no manifest refers to ko://{PRODUCT}, so nothing is built");
        return Ok(manifests);
    }
    let reference = product::ship(image, &source(image.source.source_date_epoch)?, &image.tags())?;
    Ok(manifests.resolved(PRODUCT, &reference)?)
}

fn source(source_date_epoch: Option<i64>) -> Result<Source, Error> {
    let workspace = workspace::find()?;
    let provenance = Provenance::read(&workspace.root, source_date_epoch);
    if provenance.dirty {
        status!("note: files differ from the commit; the label of the revision ends with -dirty");
    }
    Ok(Source {
        version: workspace.version.clone(),
        workspace,
        provenance,
    })
}

/// A reader that closes standard output early is not an error.
fn print(text: &str) -> Result<u8, Error> {
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Error::Output(error)),
        _ => Ok(0),
    }
}
