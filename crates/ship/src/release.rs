//! `cargo ship release`: the steps that write all files of a release.
//!
//! The modules below are pure, except [`plugin`] and [`signing`], which call other programs. The files contain no time but that of
//! the commit, so a second build of the commit writes the same bytes. Only signatures differ.

mod darwin;
mod files;
mod notes;
mod person;
mod plugin;
mod signing;
mod statements;
mod version;

pub(crate) use darwin::DarwinPlugin;
pub(crate) use files::{
    CHECKSUMS, IMAGE_ARCHIVE, IMAGE_REFERENCE, MANIFESTS, POLICIES, PROVENANCE, bundle_of, digests,
};
pub(crate) use person::Person;
pub(crate) use signing::{Signer, Verifier};
pub(crate) use version::Version;

use crate::args::ReleaseArgs;
use crate::chart::{self, Chart};
use crate::crane::{self, Crane};
use crate::destination::{self, Destination};
use crate::helm::Helm;
use crate::image::{self, Blob, Image};
use crate::manifest::{self, Manifests};
use crate::platform::Platform;
use crate::product::{self, Source};
use crate::toolchain::{self, Rustc};
use crate::variant::{self, Variant, WITH_POLICIES, WITH_WEBHOOK};
use crate::workspace::PRODUCT;
use crate::{archive, tool};
use files::Files;
use serde_json::json;
use statements::Facts;
use std::io;
use std::path::{Path, PathBuf};

/// The release cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(
        "this checkout differs from its commit, and a release must be what its revision says: commit or stash the changes (see \
         `git status`), or use --allow-dirty"
    )]
    Dirty,
    #[error("{} cannot be read ({source})", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} cannot be written ({source}): choose a writable folder with --out", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Destination(#[from] destination::Error),
    #[error(transparent)]
    Toolchain(#[from] toolchain::Error),
    #[error(transparent)]
    Product(#[from] product::Error),
    #[error(transparent)]
    Image(#[from] image::Error),
    #[error(transparent)]
    Archive(#[from] archive::Error),
    #[error(transparent)]
    Variant(#[from] variant::Error),
    #[error(transparent)]
    Chart(#[from] chart::Error),
    #[error(transparent)]
    Manifest(#[from] manifest::Error),
    #[error(transparent)]
    Plugin(#[from] plugin::Error),
    #[error(transparent)]
    Crane(#[from] crane::Error),
    #[error(transparent)]
    Tool(#[from] tool::Error),
    #[error("a file of the release cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// The inputs of all steps.
struct Release<'a> {
    args: &'a ReleaseArgs,
    source: Source,
    rustc: Rustc,
    destination: Destination,
}

/// Writes the files, signs them, and pushes the image and the chart. Returns the image reference by digest.
pub(crate) fn release(args: &ReleaseArgs, source: &Source) -> Result<String, Error> {
    if source.provenance.dirty && !args.allow_dirty {
        return Err(Error::Dirty);
    }
    let release = Release {
        args,
        source: source_of(args, source),
        rustc: toolchain::rustc()?,
        destination: Destination::parse(Some(&args.repo))?,
    };
    release.check()?;
    let manifests = release.manifests()?;
    let signer = args.key.as_deref().map(|key| Signer::new(release.root(), key));
    let signer = signer.transpose()?;
    let mut files = Files::default();
    let (index, images) = release.images(&mut files)?;
    let reference = release.destination.pinned(&index.digest).whole();
    files.add(IMAGE_REFERENCE, format!("{reference}\n"));
    for (name, manifests) in manifests {
        files.add(name, manifests.resolved(PRODUCT, &reference)?.joined());
    }
    files.add(&chart::file_name(&args.version), release.chart(&reference)?);
    files.add(IMAGE_ARCHIVE, release.bundle(&index, &images)?);
    if !args.without_plugin {
        plugin::add(&release, &mut files)?;
    }
    release.documents(&reference, &mut files)?;
    files.write(&args.out)?;
    if let Some(signer) = &signer {
        signer.sign_files(&args.out)?;
    }
    if args.push {
        release.push(&reference, signer.as_ref())?;
    }
    status!("{} is in {}", args.version.as_str(), args.out.display());
    Ok(reference)
}

/// The source with the version and the address of the release, which become labels of the image.
fn source_of(args: &ReleaseArgs, source: &Source) -> Source {
    let mut source = source.clone();
    args.version.plain().clone_into(&mut source.version);
    source.workspace.repository = Some(args.source_repository.clone());
    source
}

impl Release<'_> {
    /// Finds what would fail after the build, which takes minutes.
    fn check(&self) -> Result<(), Error> {
        self.report_version();
        if self.args.push {
            self.crane()?.check(&self.destination)?;
            self.helm()?;
        }
        if self.args.without_plugin || self.args.binaries.is_some() {
            return Ok(());
        }
        let check = |platform| toolchain::zig(&self.rustc, platform);
        Ok(self.platforms().try_for_each(check)?)
    }

    fn crane(&self) -> Result<Crane, Error> {
        Ok(Crane::new(self.root(), self.args.registry.insecure_registry)?)
    }

    fn helm(&self) -> Result<Helm, Error> {
        let insecure = self.args.registry.insecure_registry;
        Ok(Helm::new(self.root(), &self.destination, insecure)?)
    }

    fn root(&self) -> &Path {
        &self.source.workspace.root
    }

    fn report_version(&self) {
        let compiled = &self.source.workspace.version;
        if self.source.version != *compiled {
            let version = self.args.version.as_str();
            status!("note: the programs of {version} report the version {compiled}");
        }
    }

    fn platforms(&self) -> impl Iterator<Item = Platform> {
        let libc = self.args.libc;
        let processors = self.args.platforms.iter();
        processors.map(move |&processor| Platform { processor, libc })
    }

    /// All manifests, with the webhook and with policies.
    fn manifests(&self) -> Result<[(&'static str, Manifests); 2], Error> {
        let rendered = |variant: Variant| variant.rendered(self.root(), &self.args.version);
        Ok([
            (MANIFESTS, rendered(WITH_WEBHOOK)?),
            (POLICIES, rendered(WITH_POLICIES)?),
        ])
    }

    /// The Helm chart, with the addresses of this release.
    fn chart(&self, reference: &str) -> Result<Vec<u8>, Error> {
        let mut chart = Chart::new(self.root(), &self.args.version, reference)?;
        chart.describe(&self.addresses());
        Ok(chart.packed(self.source.provenance.time)?)
    }

    /// Lines of Chart.yaml.
    fn addresses(&self) -> String {
        let maintainers = self.args.maintainers.iter();
        let maintainers = maintainers.map(|person| json!({"name": person.name, "email": person.mail}));
        let lines = [
            ("home", json!(self.args.homepage)),
            ("sources", json!([self.args.source_repository])),
            ("maintainers", maintainers.collect()),
        ];
        lines.map(|(key, value)| format!("{key}: {value}\n")).concat()
    }

    /// Builds the image of each platform, and adds its bill of materials.
    fn images(&self, files: &mut Files) -> Result<(Blob, Vec<Image>), Error> {
        let mut images = Vec::new();
        for platform in self.platforms() {
            let binary = product::read(&self.binary(PRODUCT, platform, || {
                let cargo_home = self.args.source.cargo_home();
                Ok(product::built(&self.source, &cargo_home, platform, &self.rustc)?)
            })?)?;
            let image = product::image(&self.source, platform, &binary)?;
            let bill = product::bill_of_materials(&self.source, &image, platform, &self.rustc, &binary)?;
            let name = format!("{PRODUCT}-image-linux-{}.spdx.json", platform.processor.oci());
            files.add(&name, bill);
            images.push(image);
        }
        Ok((image::index(&images)?, images))
    }

    /// The path of a given binary, or of the binary that is built.
    fn binary(
        &self,
        name: &str,
        platform: Platform,
        build: impl FnOnce() -> Result<PathBuf, Error>,
    ) -> Result<PathBuf, Error> {
        match &self.args.binaries {
            Some(folder) => Ok(folder.join(format!("{name}-{}", platform.processor.oci()))),
            None => build(),
        }
    }

    fn bundle(&self, index: &Blob, images: &[Image]) -> Result<Vec<u8>, Error> {
        let tags = [self.args.version.as_str().to_owned()];
        Ok(archive::bundle(
            index,
            images,
            &product::names(&self.destination, &tags),
        )?)
    }

    /// Adds the documents about the release. The provenance lists all other files, so it comes last.
    fn documents(&self, reference: &str, files: &mut Files) -> Result<(), Error> {
        let read = |name: &str| {
            let path = self.root().join(name);
            std::fs::read_to_string(&path).map_err(|source| Error::Read { path, source })
        };
        let lock = read("Cargo.lock")?;
        let facts = Facts {
            args: self.args,
            source: &self.source,
            rust: &self.rustc.release,
            reference,
            lock: &lock,
        };
        files.add(
            "release-notes.md",
            notes::notes(&read("CHANGELOG.md")?, &self.args.version),
        );
        if let Some(vex) = facts.vex(&read("docs/vulnerabilities.json")?)? {
            files.add("openvex.json", json(&vex)?);
        }
        files.add("SECURITY-INSIGHTS.yml", facts.security_insights());
        let provenance = json(&facts.provenance(&files.digests()))?;
        files.add(PROVENANCE, provenance);
        Ok(())
    }

    /// Pushes the index from the archive and the chart, and signs both.
    fn push(&self, reference: &str, signer: Option<&Signer>) -> Result<(), Error> {
        let (version, out) = (&self.args.version, &self.args.out);
        let crane = self.crane()?;
        crane.push_archive(&out.join(IMAGE_ARCHIVE), &self.destination, version.as_str())?;
        self.helm()?.push(&out.join(chart::file_name(version)))?;
        let Some(signer) = signer else {
            return Ok(());
        };
        let insecure = self.args.registry.insecure_registry;
        signer.sign_image(out, reference, insecure)?;
        let chart = self.destination.chart(version.plain());
        let digest = crane.run(&["digest", &chart])?;
        Ok(signer.sign(&format!("{chart}@{}", digest.trim()), insecure)?)
    }
}

fn json(content: &serde_json::Value) -> Result<Vec<u8>, serde_json::Error> {
    let mut json = serde_json::to_vec_pretty(content)?;
    json.push(b'\n');
    Ok(json)
}
