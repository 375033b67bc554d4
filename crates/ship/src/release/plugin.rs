//! The kubectl plugin: an archive for each platform, the scripts for completion, and the manifest for krew.

use super::Release;
use crate::archive::{Entry, file, packed, program, sha256};
use crate::compile::Program;
use crate::sbom::{self, Subject};
use crate::tool::{output, read_bytes};
use crate::values::Platform;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name that kubectl looks for.
const PLUGIN: &str = "kubectl-pod_affinity";
const SHELLS: [&str; 4] = ["bash", "fish", "powershell", "zsh"];

/// Adds all files of the plugin.
pub(super) fn add(release: &mut Release<'_>) -> Result<()> {
    let (head, entry) = krew(release)?;
    let mut entries = String::new();
    let mut scripts = None;
    for (platform, path) in plugins(release)? {
        if platform.target == release.rustc.host {
            scripts = Some(completions(&path)?);
        }
        let name = format!("{}-{}", platform.system, platform.processor);
        let sha256 = add_archive(release, platform, &format!("{PLUGIN}-{name}"), &path)?;
        entries += &entry
            .replace("linux-amd64", &name)
            .replace("linux", platform.system)
            .replace("amd64", platform.processor)
            .replace("${SHA256}", &sha256)
            // The address may contain one of the words above.
            .replace("${DOWNLOADS}", &release.args.downloads);
    }
    release.add("krew.yaml", format!("{head}{entries}"))?;
    let scripts = scripts.context("no plugin runs on this machine and prints the scripts for completion")?;
    let scripts = packed(&scripts, release.source.commit.time)?;
    release.add(&format!("{PLUGIN}-completions.tar.gz"), scripts)
}

/// The paths of all plugins.
fn plugins(release: &Release<'_>) -> Result<Vec<(Platform, PathBuf)>> {
    let built = |&platform: &Platform| Ok((platform, release.binary(Program::Plugin, platform)?));
    let given = release.args.plugins.iter().cloned().map(Ok);
    release.args.platforms.iter().map(built).chain(given).collect()
}

/// Adds the archive of a plugin with its bill of materials, and returns its checksum.
fn add_archive(release: &mut Release<'_>, platform: Platform, name: &str, path: &Path) -> Result<String> {
    let files = [
        program(PLUGIN, read_bytes(path)?),
        file("LICENSE", release.read("LICENSE")?),
    ];
    let archive = packed(&files, release.source.commit.time)?;
    let sha256 = sha256(&archive);
    release.add(&format!("{name}.tar.gz"), archive)?;
    let subject = Subject {
        program: Program::Plugin,
        target: platform.target,
        sha256: &sha256,
        glibc: None,
    };
    let bill = sbom::spdx(&release.source, &release.rustc, &subject)?;
    release.add(&format!("{name}.spdx.json"), bill)?;
    Ok(sha256)
}

/// The scripts that the plugin of this machine prints.
fn completions(plugin: &Path) -> Result<Vec<Entry>> {
    let print = |shell: &str| {
        let printed = output(
            Command::new(plugin).args(["completion", shell]),
            "build it for this machine",
        )?;
        Ok(file(format!("{PLUGIN}.{shell}"), printed.stdout))
    };
    SHELLS.into_iter().map(print).collect()
}

/// The head of krew's manifest, and the template of the entry for an archive.
fn krew(release: &Release<'_>) -> Result<(String, String)> {
    const PLATFORMS: &str = "  platforms:\n";
    let template = release.read("crates/cli/krew.yaml")?;
    let (head, entry) = template
        .split_once(PLATFORMS)
        .context("crates/cli/krew.yaml has no platforms")?;
    let head = head.trim_start_matches(|c| c != '\n').trim_start();
    let head = head
        .replace("${VERSION}", release.args.version.as_str())
        .replace("${HOMEPAGE}", &release.args.homepage);
    Ok((format!("{head}{PLATFORMS}"), entry.to_owned()))
}
