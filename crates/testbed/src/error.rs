//! Errors of building, starting and using a control plane. Each message is a sentence with a remedy.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Result type of the testbed.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the testbed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A tool of the host is missing.
    #[error("{tool} is missing: {remedy}")]
    MissingTool {
        /// The missing program.
        tool: &'static str,
        /// The package to install.
        remedy: &'static str,
    },
    /// The installed Go is too old to build the parts.
    #[error(
        "{found} is too old to build the control plane: install Go {wanted} or newer, or set GOTOOLCHAIN=auto"
    )]
    OldGo {
        /// The output of `go version`.
        found: String,
        /// The oldest supported version.
        wanted: String,
    },
    /// `go build` or `go list` failed.
    #[error("building {part} failed; remedy: {remedy}\n{log}")]
    Build {
        /// The part.
        part: &'static str,
        /// The remedy, derived from the output.
        remedy: &'static str,
        /// End of the output.
        log: String,
    },
    /// A file or folder could not be read or written.
    #[error("{action} {path}: {source}; remedy: {remedy}", path = path.display())]
    Io {
        /// The failed action.
        action: &'static str,
        /// The path of the file or folder.
        path: PathBuf,
        /// The remedy.
        remedy: &'static str,
        /// The cause.
        source: std::io::Error,
    },
    /// No block of ports is free.
    #[error(
        "no {wanted} free ports in a row between {low} and {high} on 127.0.0.1, those of outgoing connections left out ({} to \
         {}): stop what listens there, or narrow net.ipv4.ip_local_port_range",
        ephemeral.start(),
        ephemeral.end()
    )]
    NoPorts {
        /// Number of ports in a block.
        wanted: u16,
        /// First port tried.
        low: u16,
        /// Last port tried.
        high: u16,
        /// Port range of outgoing connections.
        ephemeral: std::ops::RangeInclusive<u16>,
    },
    /// A program could not be started.
    #[error("{part} could not be started from {program}: {source}", program = program.display())]
    Spawn {
        /// The part.
        part: String,
        /// The binary of the part.
        program: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A testbed could not be started.
    #[error("{source}\nThe state and logs of the failed start are in {folder}", folder = folder.display())]
    Start {
        /// The folder of the testbed, which is kept.
        folder: PathBuf,
        /// The cause.
        source: Box<Error>,
    },
    /// A part ended unexpectedly.
    #[error("{part} ended by itself ({status}); remedy: {remedy}; the end of its log {log_file}:\n{log}", log_file = log_file.display())]
    Died {
        /// The part.
        part: String,
        /// The exit status.
        status: String,
        /// The remedy, derived from the log.
        remedy: &'static str,
        /// Path of the whole log.
        log_file: PathBuf,
        /// The last lines of the log.
        log: String,
    },
    /// The part does not run in this testbed.
    #[error("{0} does not run in this testbed: ask for it in the options")]
    NotRunning(String),
    /// A wait reached its deadline.
    #[error("timed out after {waited:.1?} waiting for {what}; last seen: {last}")]
    Deadline {
        /// The expected state.
        what: String,
        /// The waiting time.
        waited: Duration,
        /// The last observed state.
        last: String,
    },
    /// A request to the API server failed.
    #[error("{action}: {source}")]
    Api {
        /// The failed action.
        action: String,
        /// The cause.
        source: Box<kube::Error>,
    },
    /// Keys or certificates could not be created.
    #[error("making the testbed's certificates failed: {0}")]
    Pki(#[from] rcgen::Error),
    /// A kubeconfig could not be read.
    #[error("reading the kubeconfig failed: {0}")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// An environment variable has an unknown value.
    #[error("{variable} is {name:?}: set it to one of {choices}")]
    Choice {
        /// Name of the variable.
        variable: &'static str,
        /// Value of the variable.
        name: String,
        /// The supported values.
        choices: String,
    },
    /// This version of Kubernetes does not evaluate admission policies.
    #[error(
        "Kubernetes {kubernetes} has no MutatingAdmissionPolicy v1: set {} to 1.36 or newer, or {} to webhook",
        crate::versions::KUBERNETES_VARIABLE,
        crate::admission::VARIABLE
    )]
    NoPolicies {
        /// The requested version.
        kubernetes: String,
    },
    /// The testbed has no kubelet of this version.
    #[error(
        "a real node has the default versions only, not {versions}: unset {} and {}",
        crate::versions::KUBERNETES_VARIABLE,
        crate::versions::TEKTON_VARIABLE
    )]
    NoKubelet {
        /// The requested versions.
        versions: String,
    },
    /// A manifest differs from what the testbed expects.
    #[error("manifest {file}: {problem}", file = file.display())]
    Manifest {
        /// The file.
        file: PathBuf,
        /// The fault in the manifest.
        problem: String,
    },
}

impl Error {
    /// For `map_err` on a request to the API server.
    pub fn api(action: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let action = action.into();
        move |source| Self::Api {
            action,
            source: Box::new(source),
        }
    }

    /// For `map_err` on a file operation.
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io {
            action,
            path,
            remedy: io_remedy(&source),
            source,
        }
    }
}

fn io_remedy(error: &std::io::Error) -> &'static str {
    use std::io::ErrorKind::{NotFound, PermissionDenied, ReadOnlyFilesystem, StorageFull};
    match error.kind() {
        StorageFull => {
            "free some disk space (the cache takes about 2 GB), or point POD_AFFINITY_TESTBED_CACHE and TMPDIR elsewhere"
        }
        PermissionDenied | ReadOnlyFilesystem => {
            "make it writable, or point POD_AFFINITY_TESTBED_CACHE (binaries) or TMPDIR (state) to a folder that is"
        }
        NotFound => "check whether it was removed, and start again",
        _ => "see the cause",
    }
}

/// The remedy for the last lines of a log.
pub(crate) fn log_remedy(log: &str) -> &'static str {
    const KNOWN: [(&str, &str); 4] = [
        (
            "address already in use",
            "another program took the port meanwhile; start again",
        ),
        (
            "no space left on device",
            "free some disk space, or point TMPDIR elsewhere",
        ),
        (
            "permission denied",
            "make the folders that the log names writable",
        ),
        (
            "too many open files",
            "raise the limit of open files (ulimit -n 8192)",
        ),
    ];
    let log = log.to_lowercase();
    KNOWN
        .iter()
        .find(|(sign, _)| log.contains(sign))
        .map_or("see the log", |(_, remedy)| remedy)
}

/// The last lines of a text.
pub(crate) fn tail(text: &str, lines: usize) -> String {
    let all: Vec<_> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// Writes a file.
pub(crate) fn write(path: &Path, content: &str) -> Result<()> {
    std::fs::write(path, content).map_err(Error::io("writing", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_keeps_the_last_lines() {
        assert_eq!(tail("a\nb\nc", 2), "b\nc");
        assert_eq!(tail("a", 2), "a");
    }
}
