//! Passes manifests to kubectl, and renders kustomizations with kubectl. kubectl gets manifests only after everything was
//! built and pushed.

use crate::tool::{output, printed};
use anyhow::{Context, Result, anyhow};
use std::ffi::OsString;
use std::io::{Seek, Write};
use std::path::Path;
use std::process::Command;

const REMEDY: &str =
    "install it and put it on the PATH, or apply the output of `cargo ship resolve` with another tool";
pub(crate) const APPLY: [&str; 3] = ["apply", "-f", "-"];
pub(crate) const DELETE: [&str; 4] = ["delete", "--ignore-not-found", "-f", "-"];

/// Checks that kubectl exists, before anything is built.
pub(crate) fn check() -> Result<()> {
    output(Command::new("kubectl").args(["version", "--client"]), REMEDY).map(drop)
}

/// Renders a kustomization, without access to a cluster.
pub(crate) fn kustomize(folder: &Path) -> Result<String> {
    let rendered = printed(Command::new("kubectl").arg("kustomize").arg(folder), REMEDY);
    rendered.with_context(|| format!("the kustomization {} cannot be rendered", folder.display()))
}

/// Runs kubectl with the manifests as its standard input, and returns its exit code.
pub(crate) fn run(verb: &[&str], manifests: &str, arguments: &[OsString]) -> Result<u8> {
    let mut input = tempfile::tempfile().context("the manifests cannot be passed to kubectl")?;
    input.write_all(manifests.as_bytes())?;
    input.rewind()?;
    let status = Command::new("kubectl")
        .args(verb)
        .args(arguments)
        .stdin(input)
        .status();
    let status = status.map_err(|error| anyhow!("kubectl does not run ({error}): {REMEDY}"))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.unwrap_or(1))
}
