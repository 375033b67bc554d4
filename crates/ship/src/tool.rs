//! The programs crane and cosign, which Go builds from the modules in hack/ at their first use. Go keeps them in its own build cache.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

/// A program of another project cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("go does not run ({0}): install Go 1.26 or newer, which builds crane and cosign")]
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
    #[error("{0} cannot be unpacked")]
    Unpack(PathBuf),
}

/// A program, ready to run.
#[derive(Clone, Debug)]
pub(crate) struct Tool {
    name: &'static str,
    path: PathBuf,
}

impl Tool {
    pub(crate) fn crane(root: &Path) -> Result<Self, Error> {
        Self::built(root, "crane")
    }

    pub(crate) fn cosign(root: &Path) -> Result<Self, Error> {
        Self::built(root, "cosign")
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

    /// Runs the program, and returns its standard output.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<String, Error> {
        let Self { name, path } = self;
        let output = Command::new(path)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(|source| Error::Start { name, source })?;
        if output.status.success() {
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

/// Go programs print the error on the last line.
fn last_line(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let line = text.lines().rfind(|line| !line.trim().is_empty());
    line.unwrap_or("no message").to_owned()
}

/// crane, with the settings for a registry.
#[derive(Clone, Debug)]
pub(crate) struct Registry {
    crane: Tool,
    insecure: bool,
}

impl Registry {
    pub(crate) fn new(root: &Path, insecure: bool) -> Result<Self, Error> {
        let crane = Tool::crane(root)?;
        Ok(Self { crane, insecure })
    }

    /// Pushes an archive with an OCI layout.
    pub(crate) fn push_archive(&self, archive: &Path, reference: &str) -> Result<(), Error> {
        let folder = Unpacked::new(archive)?;
        let folder = folder.0.display().to_string();
        self.run(&["push", &folder, reference]).map(drop)
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Result<String, Error> {
        let insecure = self.insecure.then_some("--insecure");
        let arguments: Vec<_> = arguments.iter().copied().chain(insecure).collect();
        self.crane.run(&arguments)
    }

    /// Starts an empty registry on this machine.
    pub(crate) fn serve(&self) -> Result<Served, Error> {
        let name = self.crane.name;
        let mut child = Command::new(&self.crane.path)
            .args(["registry", "serve", "--address=127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| Error::Start { name, source })?;
        let mut served = Served {
            log: child.stderr.take().map(BufReader::new),
            child,
            address: String::new(),
        };
        let lines = served
            .log
            .iter_mut()
            .flat_map(BufRead::lines)
            .map_while(Result::ok);
        let found = lines.into_iter().find_map(|line| address(&line));
        served.address = found.ok_or_else(|| Error::Failed {
            name,
            verb: "registry serve".to_owned(),
            cause: "it reported no address".to_owned(),
        })?;
        Ok(served)
    }
}

/// The address in crane's line `serving on port 1234`.
fn address(line: &str) -> Option<String> {
    let (_, port) = line.rsplit_once("serving on port ")?;
    Some(format!("127.0.0.1:{}", port.trim()))
}

/// A registry that ends when the value is dropped.
#[derive(Debug)]
pub(crate) struct Served {
    child: Child,
    /// Stays open: a process whose log nobody reads ends when it writes a line.
    log: Option<BufReader<ChildStderr>>,
    pub(crate) address: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        // Both fail only if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The folder of an unpacked archive, which is removed when the value is dropped.
struct Unpacked(PathBuf);

impl Unpacked {
    fn new(archive: &Path) -> Result<Self, Error> {
        let name = format!("cargo-ship-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let unpack = std::fs::File::open(archive).and_then(|file| tar::Archive::new(file).unpack(&folder));
        let unpacked = Self(folder);
        unpack.map_err(|_| Error::Unpack(archive.to_owned()))?;
        Ok(unpacked)
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        // The folder is temporary.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_read_from_the_line_of_crane() {
        let line = "2026/01/01 10:00:00 serving on port 41234";
        assert_eq!(address(line).as_deref(), Some("127.0.0.1:41234"));
        assert_eq!(address("other"), None);
    }

    #[test]
    fn the_last_line_of_a_go_program_is_the_cause() {
        assert_eq!(
            last_line(b"retrying\nError: 401 Unauthorized\n\n"),
            "Error: 401 Unauthorized"
        );
        assert_eq!(last_line(b""), "no message");
    }
}
