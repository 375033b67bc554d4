//! `cargo ship release`: the steps that write all files of a release. The files contain no time but that of the commit, so a second
//! build of the commit writes the same bytes. Only signatures differ.

mod documents;
mod plugin;

use crate::archive::sha256;
use crate::args::ReleaseArgs;
use crate::chart::{self, Chart};
use crate::compile::{Program, Rustc, compile};
use crate::cosign::{CHECKSUMS, Cosign};
use crate::crane::Crane;
use crate::destination::Destination;
use crate::image::{LocalRegistry, digest};
use crate::sbom::{self, Subject};
use crate::source::{PRODUCT, Source};
use crate::tool::{GoTool, read, read_bytes, write};
use crate::values::Platform;
use crate::variant::{WITH_POLICIES, WITH_WEBHOOK};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// All manifests, with the webhook.
const MANIFESTS: &str = "release.yaml";
/// All manifests, with admission policies instead of the webhook.
const POLICIES: &str = "release-policies.yaml";
/// The image reference by digest.
pub(crate) const IMAGE_REFERENCE: &str = "image.txt";
/// The image for all platforms as an OCI layout, for clusters without access to the registry.
pub(crate) const IMAGE_ARCHIVE: &str = "pod-affinity-image.tar";

/// The inputs of all steps, and the checksums of the files that are written.
struct Release<'a> {
    args: &'a ReleaseArgs,
    source: Source,
    rustc: Rustc,
    destination: Destination,
    checksums: BTreeMap<String, String>,
}

/// The programs that push and sign, if the command line requests them.
struct Publisher {
    registry: Option<(Crane, GoTool)>,
    cosign: Option<Cosign>,
}

/// Writes the files, signs them, and pushes the image and the chart. Returns the image reference by digest.
pub(crate) fn release(args: &ReleaseArgs) -> Result<String> {
    let source = Source::read(args.time.source_date_epoch)?;
    if !args.allow_dirty {
        check_source(&source, args.version.plain())?;
    }
    let mut release = Release {
        rustc: Rustc::read()?,
        destination: Destination::parse(&args.repo)?,
        // These become labels of the image.
        source: Source {
            version: args.version.plain().to_owned(),
            repository: Some(args.source_repository.clone()),
            ..source
        },
        checksums: BTreeMap::new(),
        args,
    };
    let publisher = release.check()?;
    release.create_folder()?;
    let registry = LocalRegistry::start(&release.source.root)?;
    let image = release.image(&registry)?;
    let reference = release.destination.pinned(digest(&image));
    release.add(IMAGE_REFERENCE, format!("{reference}\n"))?;
    release.add_manifests(&reference)?;
    let names = [release.destination.tagged(args.version.as_str())];
    release.add(
        IMAGE_ARCHIVE,
        registry.archive(&image, &names, release.source.commit.time)?,
    )?;
    if !args.without_plugin {
        plugin::add(&mut release)?;
    }
    let predicate = release.add_documents(&reference)?;
    release.add_checksums()?;
    publisher.publish(&release, &image, &reference, &predicate)?;
    status!("{} is in {}", args.version.as_str(), args.out.display());
    Ok(reference)
}

/// A release must be what its revision says, and the program prints the version of the package.
fn check_source(source: &Source, version: &str) -> Result<()> {
    ensure!(
        source.commit.revision.is_some(),
        "git cannot read the commit of {}, and a release must be what its revision says: see what `git status` prints there, or use \
         --allow-dirty",
        source.root.display()
    );
    ensure!(
        !source.commit.dirty,
        "this checkout differs from its commit, and a release must be what its revision says: commit or stash the changes (see \
         `git status`), or use --allow-dirty"
    );
    ensure!(
        version == source.version,
        "the release is {version}, and the version of the package is {}: set `version` in Cargo.toml and commit the change, or use \
         --allow-dirty",
        source.version
    );
    Ok(())
}

impl Release<'_> {
    /// Finds what would fail after the build, which takes minutes.
    fn check(&self) -> Result<Publisher> {
        let (root, args) = (&self.source.root, self.args);
        let insecure = args.registry.insecure_registry;
        crate::kubectl::check()?;
        if args.binaries.is_none() {
            for &platform in &args.platforms {
                self.rustc.check(Program::Image, platform)?;
                if !args.without_plugin {
                    self.rustc.check(Program::Plugin, platform)?;
                }
            }
        }
        let registry = || -> Result<_> {
            let crane = Crane::answered(root, insecure, &self.destination)?;
            Ok((crane, GoTool::built(root, "helm")?))
        };
        let cosign = |key: &PathBuf| Cosign::new(root, key, insecure);
        Ok(Publisher {
            registry: args.push.then(registry).transpose()?,
            cosign: args.key.as_ref().map(cosign).transpose()?,
        })
    }

    /// A file of an earlier release would look like a part of this release.
    fn create_folder(&self) -> Result<()> {
        let out = &self.args.out;
        std::fs::create_dir_all(out).context("the folder of --out cannot be created")?;
        ensure!(
            out.read_dir()?.next().is_none(),
            "the folder {} is not empty: remove its files, or choose another folder with --out",
            out.display()
        );
        Ok(())
    }

    /// Writes a file.
    fn add(&mut self, name: &str, content: impl AsRef<[u8]>) -> Result<()> {
        write(&self.args.out.join(name), content.as_ref())?;
        self.checksums.insert(name.to_owned(), sha256(content.as_ref()));
        Ok(())
    }

    fn add_checksums(&mut self) -> Result<()> {
        let lines = self
            .checksums
            .iter()
            .map(|(name, digest)| format!("{digest}  {name}\n"));
        let checksums: String = lines.collect();
        self.add(CHECKSUMS, checksums)
    }

    /// Reads a file of the checkout.
    fn read(&self, name: &str) -> Result<String> {
        read(&self.source.root.join(name))
    }

    /// The path of a given binary, or of the binary that is built.
    fn binary(&self, program: Program, platform: Platform) -> Result<PathBuf> {
        match &self.args.binaries {
            Some(folder) => Ok(folder.join(format!("{}-{}", program.names().1, platform.processor))),
            None => compile(&self.source, &self.rustc, program, platform),
        }
    }

    /// Builds the image of each platform, and adds its bill of materials. Returns the index in the local registry.
    fn image(&mut self, registry: &LocalRegistry) -> Result<String> {
        let mut images = Vec::new();
        for &platform in &self.args.platforms {
            let binary = read_bytes(&self.binary(Program::Image, platform)?)?;
            let glibc = sbom::glibc(&binary);
            let image = registry.image(&self.source, platform, binary)?;
            let subject = Subject {
                program: Program::Image,
                target: platform.target,
                sha256: digest(&image).trim_start_matches("sha256:"),
                glibc: glibc.as_deref(),
            };
            let bill = sbom::spdx(&self.source, &self.rustc, &subject)?;
            self.add(
                &format!("{PRODUCT}-image-linux-{}.spdx.json", platform.processor),
                bill,
            )?;
            images.push(image);
        }
        registry.index(&images)
    }

    /// Adds the manifests and the Helm chart with this image.
    fn add_manifests(&mut self, image: &str) -> Result<()> {
        let root = self.source.root.clone();
        for (name, variant) in [(MANIFESTS, WITH_WEBHOOK), (POLICIES, WITH_POLICIES)] {
            let manifests = variant.rendered(&root, &self.args.version)?;
            self.add(name, manifests.resolved(image))?;
        }
        let mut chart = Chart::new(&root, &self.args.version, image)?;
        chart.describe(&self.addresses());
        self.add(
            &chart::file_name(&self.args.version),
            chart.packed(self.source.commit.time)?,
        )
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
}

impl Publisher {
    /// Signs the files, and pushes and signs the image and the chart.
    fn publish(&self, release: &Release<'_>, image: &str, reference: &str, predicate: &str) -> Result<()> {
        let (out, version) = (&release.args.out, &release.args.version);
        if let Some(cosign) = &self.cosign {
            cosign.sign_files(out)?;
        }
        let Some((crane, helm)) = &self.registry else {
            return Ok(());
        };
        crane.copy(image, &release.destination, version.as_str())?;
        let insecure = release.args.registry.insecure_registry || release.destination.is_local();
        let archive = out.join(chart::file_name(version)).display().to_string();
        // helm adds the name of the chart and its version.
        let charts = format!("oci://{}", release.destination.charts());
        helm.run(&["push", &archive, &charts, &format!("--plain-http={insecure}")])?;
        if let Some(cosign) = &self.cosign {
            cosign.sign(reference)?;
            cosign.attest(reference, predicate)?;
            let chart = release.destination.chart(version.plain());
            let digest = crane.run(&["digest", &chart])?;
            cosign.sign(&format!("{chart}@{digest}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::tests::source;

    #[test]
    fn a_release_has_the_version_of_the_package() {
        let source = source(Some("abc"));
        assert!(check_source(&source, "1.2.3").is_ok());
        let error = check_source(&source, "1.2.4").unwrap_err().to_string();
        assert!(
            error.contains("the release is 1.2.4, and the version of the package is 1.2.3"),
            "{error}"
        );
    }
}
