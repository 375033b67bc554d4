//! The API server's audit log.

use crate::error::{Error, Result, write};
use crate::options::Audit;
use crate::part::Launch;
use crate::product::NAMESPACE;
use crate::testbed::Testbed;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Adds the flags of the audit log to the API server.
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
        // In megabytes. The limit prevents the rotation of the file.
        .arg("--audit-log-maxsize=100000")
        // A request is logged before the response.
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
    /// The audit log so far, each request as an `audit.k8s.io/v1` Event. Needs [`crate::Options::audit`].
    pub fn audit(&self) -> Result<Vec<Value>> {
        let file = log_file(&self.folder);
        let text = std::fs::read_to_string(&file).map_err(Error::io("reading", &file))?;
        // The last line may be incomplete.
        Ok(text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect())
    }
}
