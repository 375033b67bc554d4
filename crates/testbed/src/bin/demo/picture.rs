//! Draws a timeline of both scenes with the kubectl plugin.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use testbed::program::PLUGIN;
use testbed::{Error, Testbed};
use tokio::process::Command;

const REMEDY: &str = "make sure that it can be written to";

/// Writes the timelines of this period and returns their paths.
pub(crate) async fn draw(bed: &Testbed, time: Duration) -> Result<Vec<PathBuf>, Error> {
    let folder = folder();
    fs::create_dir_all(&folder).map_err(|source| failed("creating", &folder, source))?;
    let mut written = Vec::new();
    for format in ["html", "svg"] {
        let file = folder.join(format!("timeline.{format}"));
        let drawn = timeline(bed, time, format).await?;
        fs::write(&file, drawn).map_err(|source| failed("writing", &file, source))?;
        written.push(file);
    }
    Ok(written)
}

async fn timeline(bed: &Testbed, time: Duration, format: &str) -> Result<Vec<u8>, Error> {
    let program = tokio::task::block_in_place(|| PLUGIN.path())?;
    let output = Command::new(&program)
        .args(["timeline", "-A", "-o", format])
        .arg(format!("--since={}s", time.as_secs() + 1))
        .arg("--kubeconfig")
        .arg(bed.kubeconfig())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .await
        .map_err(|source| failed("starting", &program, source))?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        let problem = std::io::Error::other(output.status.to_string());
        Err(failed("drawing by", &program, problem))
    }
}

/// The output folder, beside cargo's build output.
fn folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    target.join("demo")
}

fn failed(action: &'static str, path: &Path, source: std::io::Error) -> Error {
    Error::Io {
        action,
        path: path.to_owned(),
        remedy: REMEDY,
        source,
    }
}
