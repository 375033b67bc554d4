//! The steps of each command. All checks run before the build, which takes minutes.

use crate::args::{Args, Command, ImageArgs, ManifestArgs};
use crate::chart::Chart;
use crate::compile::{Program, Rustc, compile};
use crate::crane::Crane;
use crate::destination::Destination;
use crate::image::{LocalRegistry, digest};
use crate::kubectl::{self, APPLY, DELETE};
use crate::manifest::Manifests;
use crate::source::{PRODUCT, Source};
use crate::tool::{read_bytes, write};
use crate::values::Version;
use crate::{release, verify};
use anyhow::{Context, Result, anyhow};
use std::io::{self, Write};
use std::path::Path;

/// Runs the command, and returns the exit code.
pub(crate) fn run(args: Args) -> Result<u8> {
    match args.command {
        Command::Build(image) => print(&(build(&image, &source(&image)?)? + "\n")),
        Command::Resolve { manifests, image } => print(&resolved(&manifests, &image)?),
        Command::Apply {
            manifests,
            image,
            kubectl,
        } => {
            kubectl::check()?;
            kubectl::run(&APPLY, &resolved(&manifests, &image)?, &kubectl)
        }
        Command::Delete { manifests, kubectl } => {
            kubectl::run(&DELETE, &Manifests::read(&manifests)?.0, &kubectl)
        }
        Command::Chart { out, image } => chart(&out, &image),
        Command::Release(args) => print(&(release::release(&args)? + "\n")),
        Command::Verify(args) => {
            verify::verify(&Source::read(None)?.root, &args)?;
            Ok(0)
        }
    }
}

fn source(image: &ImageArgs) -> Result<Source> {
    let source = Source::read(image.time.source_date_epoch)?;
    if source.commit.dirty {
        status!("note: files differ from the commit; the label of the revision ends with -dirty");
    }
    Ok(source)
}

/// Builds the image, writes the requested archive, and pushes. Returns the image reference by digest.
fn build(args: &ImageArgs, source: &Source) -> Result<String> {
    let rustc = Rustc::read()?;
    // ko uses the same name for an image that is not pushed.
    let local = (!args.push).then_some("ko.local");
    let destination = Destination::parse(args.repo.as_deref().or(local).unwrap_or_default())?;
    let crane = || Crane::answered(&source.root, args.registry.insecure_registry, &destination);
    let crane = args.push.then(crane).transpose()?;
    let given = args.binary.clone().map(Ok);
    let binary = given.unwrap_or_else(|| {
        rustc.check(Program::Image, args.platform)?;
        compile(source, &rustc, Program::Image, args.platform)
    });
    let binary = read_bytes(&binary?)?;
    let registry = LocalRegistry::start(&source.root)?;
    let image = registry.image(source, args.platform, binary)?;
    if let Some(file) = &args.tarball {
        let names: Vec<_> = args.tags.iter().map(|tag| destination.tagged(tag)).collect();
        write(file, &registry.archive(&image, &names, source.commit.time)?)?;
        status!("the image as an archive is in {}", file.display());
    }
    if let Some(crane) = crane {
        for tag in &args.tags {
            crane.copy(&image, &destination, tag)?;
        }
    }
    Ok(destination.pinned(digest(&image)))
}

/// Builds the image only if a manifest refers to it.
fn resolved(manifests: &ManifestArgs, image: &ImageArgs) -> Result<String> {
    let manifests = Manifests::read(manifests)?;
    if manifests.need_image() {
        let reference = build(image, &source(image)?)?;
        return Ok(manifests.resolved(&reference));
    }
    status!("no manifest refers to ko://{PRODUCT}, so nothing is built");
    Ok(manifests.0)
}

fn chart(out: &Path, image: &ImageArgs) -> Result<u8> {
    let source = source(image)?;
    let version = Version::parse(&format!("v{}", source.version)).map_err(|error| anyhow!(error))?;
    let reference = build(image, &source)?;
    let chart = Chart::new(&source.root, &version, &reference)?;
    write(out, &chart.packed(source.commit.time)?)?;
    status!("the chart is in {}", out.display());
    print(&(reference + "\n"))
}

/// A reader that closes standard output early is not an error.
fn print(text: &str) -> Result<u8> {
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("standard output cannot be written")
        }
        _ => Ok(0),
    }
}
