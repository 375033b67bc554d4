//! The programs of this checkout. A variable names the binary, or the first use in this process builds the binary.

use crate::error::{Error, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// A program of this checkout.
#[derive(Debug)]
pub struct Program {
    name: &'static str,
    variable: &'static str,
    built: Mutex<Option<PathBuf>>,
}

/// The program in the images: webhook, controller and placeholder.
pub static PRODUCT: Program = Program::new("pod-affinity", "POD_AFFINITY_BINARY");
/// The kubectl plugin.
pub static PLUGIN: Program = Program::new("kubectl-pod_affinity", "POD_AFFINITY_CLI");

impl Program {
    const fn new(name: &'static str, variable: &'static str) -> Self {
        Self {
            name,
            variable,
            built: Mutex::new(None),
        }
    }

    /// Path of the binary.
    pub fn path(&self) -> Result<PathBuf> {
        if let Some(given) = std::env::var_os(self.variable) {
            return Ok(given.into());
        }
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = built.as_ref() {
            return Ok(path.clone());
        }
        Ok(built.insert(self.build()?).clone())
    }

    fn build(&self) -> Result<PathBuf> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["build", "--quiet", "--message-format=json-render-diagnostics"])
            // With --package, cargo would enable only the features of this package and compile the crates that it shares with the
            // testbed again.
            .arg(format!("--bin={}", self.name))
            .current_dir(workspace())
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .map_err(|source| Error::Spawn {
                part: "cargo".into(),
                program: "cargo".into(),
                source,
            })?;
        executable(&String::from_utf8_lossy(&output.stdout)).ok_or(Error::Build {
            part: self.name,
            remedy: "see what cargo says above",
            log: String::new(),
        })
    }
}

/// This checkout.
pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The path of the binary in cargo's messages, one JSON object per line.
fn executable(messages: &str) -> Option<PathBuf> {
    let mut messages = messages
        .lines()
        .rev()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages.find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_is_the_one_that_cargo_names() {
        let messages =
            "{\"reason\":\"compiler-artifact\",\"executable\":null}\n{\"executable\":\"/x/pod-affinity\"}\n";
        assert_eq!(executable(messages), Some(PathBuf::from("/x/pod-affinity")));
        assert_eq!(executable("error: no such package"), None);
    }
}
