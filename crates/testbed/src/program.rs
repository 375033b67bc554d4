//! The programs of this checkout: given by a variable, or built by the first that asks for one in this process.

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

/// What the images have: webhook, controller and placeholder.
pub static PRODUCT: Program = Program::new("pod-affinity", "POD_AFFINITY_BINARY");
/// The plugin of kubectl.
pub static PLUGIN: Program = Program::new("kubectl-pod_affinity", "POD_AFFINITY_CLI");

impl Program {
    const fn new(name: &'static str, variable: &'static str) -> Self {
        Self {
            name,
            variable,
            built: Mutex::new(None),
        }
    }

    /// Where it is.
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
            // Not by --package: features would be those of that package alone, and what it shares with the testbed
            // would be compiled again.
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

/// The path that cargo names for the binary in its messages, one JSON object a line.
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
