//! The API server's own record of what was asked of it.

use crate::error::{Error, Result, write};
use crate::options::Audit;
use crate::part::Launch;
use crate::product::NAMESPACE;
use crate::testbed::Testbed;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// An API server that keeps this record.
pub(crate) fn switched_on(audit: Audit, launch: Launch, folder: &Path) -> Result<Launch> {
    let Some(rules) = rules(audit) else {
        return Ok(launch);
    };
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": rules,
    });
    let file = folder.join("audit-policy.json");
    write(&file, &policy.to_string())?;
    Ok(launch
        .path("--audit-policy-file", &file)
        .path("--audit-log-path", &log_file(folder))
        // In megabytes: a file that is full would be put away.
        .arg("--audit-log-maxsize=100000")
        // A request is on record before it is answered.
        .arg("--audit-log-mode=blocking"))
}

fn rules(audit: Audit) -> Option<Value> {
    match audit {
        Audit::Nobody => None,
        Audit::PodAffinity => Some(json!([
            {"level": "Metadata", "userGroups": [format!("system:serviceaccounts:{NAMESPACE}")]},
            {"level": "None"},
        ])),
        Audit::Everybody => Some(json!([
            {"level": "None", "verbs": ["watch"]},
            {"level": "None", "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}]},
            {"level": "Metadata"},
        ])),
    }
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
