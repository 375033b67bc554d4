//! Helpers of the programs that run tests and measurements.

use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;

/// The root of the checkout.
pub fn workspace() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root.pop();
    root
}

/// A cargo command in the root of the checkout.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(workspace());
    cargo
}

/// The abbreviated commit, with the suffix `-dirty` if a file outside of `results` differs from the commit.
pub fn commit(results: &str) -> Result<String> {
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let others = format!(":!{results}");
    let changes = git(&[
        "status",
        "--porcelain",
        "--untracked-files=no",
        "--",
        ".",
        &others,
    ])?;
    let mark = if changes.is_empty() { "" } else { "-dirty" };
    Ok(format!("{commit}{mark}"))
}

fn git(arguments: &[&str]) -> Result<String> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(workspace())
        .output()
        .context("starting git")?;
    if !output.status.success() {
        bail!("git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
