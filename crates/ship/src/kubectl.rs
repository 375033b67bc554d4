//! Passes manifests to kubectl, and renders kustomizations with kubectl. kubectl gets manifests only after everything was
//! built and pushed.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// The kubectl command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Apply,
    Delete,
}

/// kubectl cannot be started or fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(
        "kubectl does not run ({0}): install it and put it on the PATH, or apply the output of `cargo ship resolve` with another \
         tool"
    )]
    Missing(io::Error),
    #[error("the manifests could not be passed to kubectl: {0}")]
    Pipe(io::Error),
    #[error("kubectl cannot render the kustomization {}: {problem}", folder.display())]
    Kustomize { folder: PathBuf, problem: String },
}

impl Verb {
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Apply => &["apply", "-f", "-"],
            Self::Delete => &["delete", "--ignore-not-found", "-f", "-"],
        }
    }
}

/// Checks that kubectl exists, before anything is built.
pub(crate) fn require_kubectl() -> Result<(), Error> {
    let asked = kubectl(&["version", "--client"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    asked.map(drop).map_err(Error::Missing)
}

/// Renders a kustomization, without access to a cluster.
pub(crate) fn kustomize(folder: &Path) -> Result<Vec<u8>, Error> {
    let output = kubectl(&["kustomize"])
        .arg(folder)
        .output()
        .map_err(Error::Missing)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::Kustomize {
        folder: folder.to_owned(),
        problem: said.trim().trim_start_matches("error: ").to_owned(),
    })
}

/// Runs kubectl, and returns its exit code.
pub(crate) fn run(verb: Verb, manifests: &str, arguments: &[OsString]) -> Result<u8, Error> {
    let mut command = kubectl(verb.arguments());
    let mut child = command
        .args(arguments)
        .stdin(Stdio::piped())
        .spawn()
        .map_err(Error::Missing)?;
    pass_manifests(&mut child, manifests).map_err(Error::Pipe)?;
    Ok(code(child.wait().map_err(Error::Pipe)?))
}

fn kubectl(arguments: &[&str]) -> Command {
    let mut command = Command::new("kubectl");
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Writes the manifests to kubectl's standard input. If kubectl ends without reading them, its own message and exit code
/// report the reason.
fn pass_manifests(child: &mut Child, manifests: &str) -> io::Result<()> {
    let Some(mut pipe) = child.stdin.take() else {
        return Ok(());
    };
    match pipe.write_all(manifests.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// The exit code as shells report it.
fn code(status: ExitStatus) -> u8 {
    let by_signal = || status.signal().map(|signal| 128 + signal);
    let code = status.code().or_else(by_signal).unwrap_or(1);
    u8::try_from(code).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_by_signal_has_the_exit_code_of_shells() {
        const KILLED: i32 = 9;
        assert_eq!(code(ExitStatus::from_raw(KILLED)), 137);
        assert_eq!(code(ExitStatus::from_raw(3 << 8)), 3);
    }

    #[test]
    fn deleting_missing_objects_is_no_failure() {
        assert!(Verb::Delete.arguments().contains(&"--ignore-not-found"));
    }
}
