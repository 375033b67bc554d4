//! The steps from the source to an image reference by digest. All checks run before the build, which takes minutes.

use crate::args::{ImageArgs, Sbom};
use crate::compile::{self, Linking, Recipe};
use crate::crane::{self, Crane};
use crate::destination::{self, Destination};
use crate::image::{self, Content, Image, megabytes};
use crate::platform::{Libc, Platform};
use crate::sbom::{self, Form, Subject};
use crate::tool;
use crate::toolchain::{self, Rustc};
use crate::workspace::Provenance;
use crate::workspace::{PRODUCT, Workspace};
use crate::{archive, elf};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// The description of the image for users of a registry.
const DESCRIPTION: &str =
    "Runs all pods of a labelled Tekton PipelineRun on one node that no other run uses.";

/// The source of an image.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) workspace: Workspace,
    pub(crate) provenance: Provenance,
    /// The version without a leading `v`.
    pub(crate) version: String,
}

/// A step failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Destination(#[from] destination::Error),
    #[error(transparent)]
    Crane(#[from] crane::Error),
    #[error(transparent)]
    Tool(#[from] tool::Error),
    #[error(transparent)]
    Toolchain(#[from] toolchain::Error),
    #[error(transparent)]
    Compile(#[from] compile::Error),
    #[error("the binary {} cannot be read: {source}", path.display())]
    Binary { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Elf(#[from] elf::Error),
    #[error(transparent)]
    Image(#[from] image::Error),
    #[error(transparent)]
    Sbom(#[from] sbom::Error),
    #[error(transparent)]
    Archive(#[from] archive::Error),
}

/// Builds the image, writes the requested files, and pushes. Returns the image reference by digest.
pub(crate) fn ship(args: &ImageArgs, source: &Source, tags: &[String]) -> Result<String, Error> {
    let platform = args.platform();
    let rustc = toolchain::rustc()?;
    let (destination, crane) = destination(args, &source.workspace.root)?;
    let binary = binary(args, source, &rustc)?;
    let image = image(source, platform, &binary)?;
    let sbom = match args.sbom {
        Sbom::Spdx => Some(bill_of_materials(source, &image, platform, &rustc, &binary)?),
        Sbom::None => None,
    };
    write(args, source, &image, sbom.as_deref(), &names(&destination, tags))?;
    if let Some(crane) = crane {
        crane.push(&image, &destination, tags)?;
    }
    Ok(destination.pinned(image.digest()).whole())
}

/// Checks the binary, and assembles its image.
pub(crate) fn image(source: &Source, platform: Platform, binary: &[u8]) -> Result<Image, Error> {
    let linkage = elf::check(binary, platform.processor)?;
    let image = image::assemble(&content(source, platform, binary))?;
    print_summary(&image, platform, linkage);
    Ok(image)
}

/// The destination, and crane if the image is pushed. The registry has answered.
fn destination(args: &ImageArgs, root: &Path) -> Result<(Destination, Option<Crane>), Error> {
    if !args.push {
        return Ok((Destination::local(args.repo.as_deref())?, None));
    }
    let destination = Destination::parse(args.repo.as_deref())?;
    let crane = Crane::new(root, args.registry.insecure_registry)?;
    crane.check(&destination)?;
    Ok((destination, Some(crane)))
}

fn binary(args: &ImageArgs, source: &Source, rustc: &Rustc) -> Result<Vec<u8>, Error> {
    let path = match &args.binary {
        Some(given) => {
            status!("note: {} is used instead of a new build", given.display());
            given.clone()
        }
        None => built(source, &args.source.cargo_home(), args.platform(), rustc)?,
    };
    read(&path)
}

/// Reads a binary.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|source| Error::Binary {
        path: path.to_owned(),
        source,
    })
}

/// Compiles the binary of the image.
pub(crate) fn built(
    source: &Source,
    cargo_home: &Path,
    platform: Platform,
    rustc: &Rustc,
) -> Result<PathBuf, Error> {
    let linker = toolchain::linker(rustc, platform)?;
    status!(
        "building {PRODUCT} for {}; without a cache, the build takes some minutes",
        platform.target()
    );
    let recipe = Recipe {
        root: &source.workspace.root,
        target_directory: &source.workspace.target_directory,
        cargo_home,
        rustc,
        program: (PRODUCT, PRODUCT),
        platform,
        linking: Linking::Static(&linker),
    };
    Ok(compile::compile(&recipe)?)
}

fn content<'a>(source: &Source, platform: Platform, binary: &'a [u8]) -> Content<'a> {
    Content {
        binary,
        processor: platform.processor,
        time: source.provenance.time,
        labels: labels(source),
    }
}

fn labels(source: &Source) -> BTreeMap<String, String> {
    let Source {
        workspace,
        provenance,
        version,
    } = source;
    let known = [
        ("title", Some(PRODUCT.to_owned())),
        ("description", Some(DESCRIPTION.to_owned())),
        ("version", Some(version.clone())),
        ("revision", provenance.revision.clone()),
        ("created", Some(provenance.time.to_string())),
        ("licenses", workspace.license.clone()),
        ("source", workspace.repository.clone()),
    ];
    let label =
        |(key, value): (&str, Option<String>)| Some((format!("org.opencontainers.image.{key}"), value?));
    known.into_iter().filter_map(label).collect()
}

fn print_summary(image: &Image, platform: Platform, linkage: elf::Linkage) {
    let linking = match linkage {
        elf::Linkage::Fixed => "static",
        elf::Linkage::PositionIndependent => "static, position-independent",
    };
    status!(
        "the image is {:.1} MB, for {}, from scratch, user {}; it contains:",
        megabytes(image.layer.size()),
        platform.processor,
        image::USER
    );
    status!(
        "  {} ({:.1} MB, {linking}, {})",
        image::ENTRYPOINT,
        megabytes(image.unpacked),
        platform.libc
    );
}

/// The bill of materials of an image.
pub(crate) fn bill_of_materials(
    source: &Source,
    image: &Image,
    platform: Platform,
    rustc: &Rustc,
    binary: &[u8],
) -> Result<Vec<u8>, Error> {
    let libc = match platform.libc {
        Libc::Gnu => format!("glibc {}", elf::glibc(binary).unwrap_or_default()),
        Libc::Musl => "musl ".to_owned(),
    };
    let subject = Subject {
        package: PRODUCT,
        form: Form::Image,
        version: &source.version,
        digest: image.digest(),
        license: source.workspace.license.as_deref(),
        time: source.provenance.time,
        rust: &rustc.release,
        libc: Some(&libc),
    };
    Ok(sbom::spdx(&source.workspace.root, &platform.target(), &subject)?)
}

fn write(
    args: &ImageArgs,
    source: &Source,
    image: &Image,
    sbom: Option<&[u8]>,
    names: &[String],
) -> Result<(), Error> {
    if let Some(folder) = &args.oci_layout {
        archive::write_layout(folder, image, names)?;
        print_path(folder, "the image as an OCI layout");
    }
    if let Some(file) = &args.tarball {
        archive::write_tarball(file, image, names)?;
        print_path(file, "the image as an archive");
    }
    if let Some(sbom) = sbom {
        let default = || source.workspace.target_directory.join("ship/sbom.spdx.json");
        let file = args.sbom_out.clone().unwrap_or_else(default);
        archive::write(&file, sbom)?;
        print_path(&file, "the bill of materials");
    }
    Ok(())
}

fn print_path(path: &Path, what: &str) {
    status!("{what} is in {}", path.display());
}

/// The image's references by tag.
pub(crate) fn names(destination: &Destination, tags: &[String]) -> Vec<String> {
    tags.iter().map(|tag| destination.tagged(tag).whole()).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use jiff::Timestamp;

    pub(crate) fn source(revision: Option<&str>) -> Source {
        Source {
            workspace: Workspace {
                root: "/work".into(),
                target_directory: "/work/target".into(),
                version: "0.1.0".into(),
                license: Some("Apache-2.0".into()),
                repository: None,
            },
            provenance: Provenance {
                revision: revision.map(str::to_owned),
                dirty: false,
                time: Timestamp::UNIX_EPOCH,
            },
            version: "1.2.3".into(),
        }
    }

    #[test]
    fn labels_describe_the_image_and_its_source() {
        let labels = labels(&source(Some("abc")));
        let label = |key: &str| {
            labels
                .get(&format!("org.opencontainers.image.{key}"))
                .map(String::as_str)
        };
        assert_eq!(label("title"), Some("pod-affinity"));
        assert_eq!(
            (label("version"), label("revision")),
            (Some("1.2.3"), Some("abc"))
        );
        assert_eq!(
            (label("licenses"), label("created")),
            (Some("Apache-2.0"), Some("1970-01-01T00:00:00Z"))
        );
    }

    #[test]
    fn unknown_values_have_no_label() {
        let labels = labels(&source(None));
        assert!(!labels.contains_key("org.opencontainers.image.revision"));
        assert!(!labels.contains_key("org.opencontainers.image.source"));
    }

    #[test]
    fn an_archive_names_the_image_once_for_each_tag() {
        let destination = Destination::parse(Some("localhost:5000")).unwrap();
        let tags = ["v1".to_owned(), "latest".to_owned()];
        assert_eq!(
            names(&destination, &tags),
            [
                "localhost:5000/pod-affinity:v1",
                "localhost:5000/pod-affinity:latest"
            ]
        );
    }
}
