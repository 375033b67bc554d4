//! The kubectl plugin: an archive for each platform, the scripts for completion, and the manifest for krew.

use super::darwin::DarwinPlugin;
use super::files::Files;
use super::{Error as ReleaseError, Release};
use crate::compile::{self, Linking, Recipe};
use crate::image::hex;
use crate::image::layer::{Entry, pack_files};
use crate::platform::{Libc, Platform, Processor};
use crate::sbom::{self, Form, Subject};
use crate::toolchain;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PACKAGE: &str = "cli";
/// The name that kubectl looks for.
const PLUGIN: &str = "kubectl-pod_affinity";
const SHELLS: [&str; 4] = ["bash", "fish", "powershell", "zsh"];
const COMPLETIONS: &str = "kubectl-pod_affinity-completions.tar.gz";

/// The plugin cannot be built.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Toolchain(#[from] toolchain::Error),
    #[error(transparent)]
    Compile(#[from] compile::Error),
    #[error(transparent)]
    Sbom(#[from] sbom::Error),
    #[error("the archive of the plugin cannot be written: {0}")]
    Archive(io::Error),
    #[error("crates/cli/krew.yaml has no line '{0}'")]
    Krew(&'static str),
    #[error("no plugin runs on this machine, so there are no scripts for completion: add --platform {0}")]
    Foreign(Processor),
    #[error("the plugin does not print the script for {0}")]
    Completion(&'static str),
}

/// The plugin for one platform.
struct Variant {
    system: &'static str,
    processor: Processor,
    /// The Rust target.
    target: String,
    path: PathBuf,
}

impl Variant {
    fn linux(release: &Release<'_>, platform: Platform) -> Result<Self, ReleaseError> {
        let platform = Platform {
            libc: Libc::Gnu,
            ..platform
        };
        Ok(Self {
            system: "linux",
            processor: platform.processor,
            target: platform.target(),
            path: release.binary(PLUGIN, platform, || Ok(built(release, platform)?))?,
        })
    }

    fn darwin(plugin: &DarwinPlugin) -> Self {
        Self {
            system: "darwin",
            processor: plugin.processor,
            target: format!("{}-apple-darwin", plugin.processor.gnu()),
            path: plugin.path.clone(),
        }
    }

    fn platform(&self) -> String {
        format!("{}-{}", self.system, self.processor.oci())
    }
}

/// Adds all files of the plugin.
pub(super) fn add(release: &Release<'_>, files: &mut Files) -> Result<(), ReleaseError> {
    let license = read(release, "LICENSE")?;
    let linux = release
        .platforms()
        .map(|platform| Variant::linux(release, platform));
    let darwin = release
        .args
        .plugins
        .iter()
        .map(|plugin| Ok(Variant::darwin(plugin)));
    let variants: Vec<_> = linux.chain(darwin).collect::<Result<_, _>>()?;
    let mut archives = Vec::new();
    for variant in &variants {
        let binary = crate::product::read(&variant.path)?;
        let name = format!("{PLUGIN}-{}", variant.platform());
        let archive = archive(release, &binary, license.as_bytes())?;
        files.add(&format!("{name}.spdx.json"), bill(release, variant, &archive)?);
        archives.push((variant, hex(&archive)));
        files.add(&format!("{name}.tar.gz"), archive);
    }
    let native = variants
        .iter()
        .find(|variant| release.rustc.host == variant.target);
    let native = native.ok_or(Error::Foreign(Processor::Amd64))?;
    files.add(COMPLETIONS, completions(release, &native.path)?);
    let template = read(release, "crates/cli/krew.yaml")?;
    files.add("krew.yaml", krew(release, &template, &archives)?);
    Ok(())
}

fn read(release: &Release<'_>, name: &str) -> Result<String, ReleaseError> {
    let path = release.root().join(name);
    std::fs::read_to_string(&path).map_err(|source| ReleaseError::Read { path, source })
}

fn built(release: &Release<'_>, platform: Platform) -> Result<PathBuf, Error> {
    toolchain::zig(&release.rustc, platform)?;
    status!("building {PLUGIN} for {}", platform.target());
    let recipe = Recipe {
        root: release.root(),
        target_directory: &release.source.workspace.target_directory,
        cargo_home: &release.args.source.cargo_home(),
        rustc: &release.rustc,
        program: (PACKAGE, PLUGIN),
        platform,
        linking: Linking::OldGlibc,
    };
    Ok(compile::compile(&recipe)?)
}

fn archive(release: &Release<'_>, binary: &[u8], license: &[u8]) -> Result<Vec<u8>, Error> {
    let entry = |path, mode, content| Entry { path, mode, content };
    let files = [entry(PLUGIN, 0o755, binary), entry("LICENSE", 0o644, license)];
    pack_files(&files, release.source.provenance.time).map_err(Error::Archive)
}

fn bill(release: &Release<'_>, variant: &Variant, archive: &[u8]) -> Result<Vec<u8>, Error> {
    let subject = Subject {
        package: PACKAGE,
        form: Form::Archive,
        version: &release.source.version,
        digest: &hex(archive),
        license: release.source.workspace.license.as_deref(),
        time: release.source.provenance.time,
        rust: &release.rustc.release,
        libc: None,
    };
    Ok(sbom::spdx(release.root(), &variant.target, &subject)?)
}

/// The scripts that the plugin of this machine prints.
fn completions(release: &Release<'_>, plugin: &Path) -> Result<Vec<u8>, Error> {
    let print = |shell: &'static str| {
        let output = Command::new(plugin)
            .args(["completion", shell])
            .stdin(Stdio::null())
            .output();
        let output = output.map_err(|_| Error::Completion(shell))?;
        output
            .status
            .success()
            .then_some((format!("{PLUGIN}.{shell}"), output.stdout))
            .ok_or(Error::Completion(shell))
    };
    let scripts: Vec<_> = SHELLS.into_iter().map(print).collect::<Result<_, _>>()?;
    let entries: Vec<_> = scripts
        .iter()
        .map(|(path, content)| Entry {
            path,
            mode: 0o644,
            content,
        })
        .collect();
    pack_files(&entries, release.source.provenance.time).map_err(Error::Archive)
}

/// The template of krew's manifest with one entry for each archive.
fn krew(release: &Release<'_>, template: &str, archives: &[(&Variant, String)]) -> Result<String, Error> {
    const PLATFORMS: &str = "  platforms:\n";
    let (head, entry) = template.split_once(PLATFORMS).ok_or(Error::Krew("platforms:"))?;
    let head = head.split_once("apiVersion").map_or(head, |(_, rest)| rest);
    let head = format!("apiVersion{head}")
        .replace("${VERSION}", release.args.version.as_str())
        .replace("${HOMEPAGE}", &release.args.homepage);
    let entries = archives.iter().map(|(variant, sha256)| {
        entry
            .replace("linux-amd64", &variant.platform())
            .replace("linux", variant.system)
            .replace("amd64", variant.processor.oci())
            .replace("${DOWNLOADS}", &release.args.downloads)
            .replace("${SHA256}", sha256)
    });
    Ok(format!("{head}{PLATFORMS}{}", entries.collect::<String>()))
}
