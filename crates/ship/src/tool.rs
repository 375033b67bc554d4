//! The programs crane, cosign and helm, which Go builds from the modules in hack/ at their first use. Go keeps them in its own build cache.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program of another project cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("go does not run ({0}): install Go 1.26 or newer, which builds crane, cosign and helm")]
    Go(io::Error),
    #[error("go cannot build {name}: {cause}")]
    Build { name: &'static str, cause: String },
    #[error("{name} does not run ({source})")]
    Start { name: &'static str, source: io::Error },
    #[error("{name} {verb} failed: {cause}")]
    Failed {
        name: &'static str,
        verb: String,
        cause: String,
    },
    #[error("{} cannot be read ({source})", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the temporary folder {} cannot be written ({source}): set TMPDIR to a writable folder", path.display())]
    Scratch { path: PathBuf, source: io::Error },
}

/// A program, ready to run.
#[derive(Clone, Debug)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) path: PathBuf,
}

impl Tool {
    pub(crate) fn crane(root: &Path) -> Result<Self, Error> {
        Self::built(root, "crane")
    }

    pub(crate) fn cosign(root: &Path) -> Result<Self, Error> {
        Self::built(root, "cosign")
    }

    pub(crate) fn helm(root: &Path) -> Result<Self, Error> {
        Self::built(root, "helm")
    }

    /// Builds the program unless Go's cache has the program of these versions.
    fn built(root: &Path, name: &'static str) -> Result<Self, Error> {
        let output = Command::new("go")
            .args(["tool", "-n", name])
            .current_dir(root.join("hack").join(name))
            // The flags of the testbed's builds, so that both use the same compiled packages.
            .env("CGO_ENABLED", "0")
            .env(
                "GOFLAGS",
                "-mod=readonly -trimpath -buildvcs=false -gcflags=all=-dwarf=false",
            )
            .stdin(Stdio::null())
            .output()
            .map_err(Error::Go)?;
        let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        if output.status.success() && path.is_absolute() {
            return Ok(Self { name, path });
        }
        let cause = last_line(&output.stderr);
        Err(Error::Build { name, cause })
    }

    /// Runs the program, and returns its standard output. Its progress goes to standard error, and its last line is the error.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<String, Error> {
        let Self { name, path } = self;
        let output = Command::new(path)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(|source| Error::Start { name, source })?;
        if output.status.success() {
            eprint!("{}", String::from_utf8_lossy(&output.stderr));
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let verb = arguments
            .first()
            .map(|verb| verb.as_ref().to_string_lossy().into_owned());
        Err(Error::Failed {
            name,
            verb: verb.unwrap_or_default(),
            cause: last_line(&output.stderr),
        })
    }
}

/// A temporary folder for one call, without symbolic links in its path. The folder is removed when the value is dropped.
#[derive(Debug)]
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Result<Self, Error> {
        let name = format!("cargo-ship-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        match std::fs::create_dir_all(&path).and_then(|()| path.canonicalize()) {
            Ok(path) => Ok(Self(path)),
            Err(source) => Err(Error::Scratch { path, source }),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A folder that remains has no effect.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Go programs print the error on the last line.
fn last_line(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let line = text.lines().rfind(|line| !line.trim().is_empty());
    line.unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_a_go_program_is_the_cause() {
        assert_eq!(
            last_line(b"retrying\nError: 401 Unauthorized\n\n"),
            "Error: 401 Unauthorized"
        );
        assert_eq!(last_line(b""), "no message");
    }
}
