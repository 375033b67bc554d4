//! The API server's own record of what pod-affinity's processes asked of it.

use crate::error::{Error, Result, write};
use crate::part::Launch;
use crate::product::NAMESPACE;
use crate::testbed::Testbed;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// An API server that keeps the record.
pub(crate) fn switched_on(launch: Launch, folder: &Path) -> Result<Launch> {
    let policy = folder.join("audit-policy.json");
    write(&policy, &self::policy().to_string())?;
    Ok(launch
        .path("--audit-policy-file", &policy)
        .path("--audit-log-path", &log_file(folder))
        // A request is on record before it is answered.
        .arg("--audit-log-mode=blocking"))
}

fn policy() -> Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "Metadata", "userGroups": [format!("system:serviceaccounts:{NAMESPACE}")]},
            {"level": "None"},
        ],
    })
}

fn log_file(folder: &Path) -> PathBuf {
    folder.join("audit.log")
}

impl Testbed {
    /// What is on record so far, each request as an `audit.k8s.io/v1` Event; needs [`crate::Options::audit`].
    pub fn audit(&self) -> Result<Vec<Value>> {
        let file = log_file(&self.folder);
        let text = std::fs::read_to_string(&file).map_err(Error::io("reading", &file))?;
        // The last line may be half written.
        Ok(text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect())
    }
}
