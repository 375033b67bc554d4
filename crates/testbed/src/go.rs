//! Calls the `go` command and explains its failures.

use crate::error::{Error, Result, tail};
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The version of Go in hack/*/go.mod.
const OLDEST: (u32, u32) = (1, 26);

const MISSING: Error = Error::MissingTool {
    tool: "go",
    remedy: "install Go 1.26 or newer and put it on the PATH; it builds the control plane",
};

/// One call of `go` in the folder of a module.
pub(crate) struct Go(Command);

impl Go {
    pub(crate) fn new(module: &Path, args: &[&str]) -> Self {
        // A build has low priority, because the processes of other testbeds fail if they get no response in time.
        let mut command = Command::new("nice");
        command.args(["-n", "10", "go"]);
        // Static binaries run on any machine, and their build needs no C compiler.
        command
            .args(args)
            .current_dir(module)
            .env("CGO_ENABLED", "0")
            .env("GOFLAGS", "-mod=readonly")
            .env("GOWORK", "off")
            // A compiler runs for one or two seconds. On large packages, garbage collection would take a quarter of this time.
            .env("GOGC", "off")
            .env("GOMEMLIMIT", "2GiB")
            .stdin(Stdio::null());
        Self(command)
    }

    pub(crate) fn arg(self, arg: impl AsRef<OsStr>) -> Self {
        self.args([arg])
    }

    pub(crate) fn args(mut self, args: impl IntoIterator<Item: AsRef<OsStr>>) -> Self {
        self.0.args(args);
        self
    }

    /// Waits until the command ends and returns its output.
    pub(crate) fn run(mut self, part: &'static str) -> Result<String> {
        let output = self.0.output().map_err(|_| MISSING)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let log = tail(&String::from_utf8_lossy(&output.stderr), 20);
        Err(Error::Build {
            part,
            remedy: build_remedy(&log),
            log,
        })
    }

    /// Starts the command as a download. The build meets the same failure and reports it, so a failure is ignored here.
    pub(crate) fn start(mut self) -> Download {
        let started = self.0.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Download(started.ok())
    }
}

/// A download that runs beside the build of another part, until the value is dropped.
#[derive(Debug)]
pub(crate) struct Download(Option<Child>);

impl Drop for Download {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // Killing fails if the download has ended, which is the usual case.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// An error with a remedy if Go is missing or too old.
pub(crate) fn require(module: &Path) -> Result<()> {
    // In the folder of the module, an older Go with GOTOOLCHAIN=auto downloads the version of go.mod.
    let mut go = Command::new("go");
    let go = go.arg("version").current_dir(module);
    let output = go.output().map_err(|_| MISSING)?;
    let printed = [output.stdout, output.stderr].concat();
    let found = String::from_utf8_lossy(&printed).trim().to_owned();
    match version(&found) {
        Some(version) if version >= OLDEST => Ok(()),
        _ => Err(Error::OldGo {
            found,
            wanted: format!("{}.{}", OLDEST.0, OLDEST.1),
        }),
    }
}

/// The name that `go build` gives the binary of a main package: the last part of the path that is not a major version.
pub(crate) fn binary_name(package: &str) -> &str {
    let is_version = |part: &&str| {
        part.strip_prefix('v')
            .is_some_and(|number| number.parse::<u32>().is_ok())
    };
    package
        .rsplit('/')
        .find(|part| !is_version(part))
        .unwrap_or(package)
}

fn build_remedy(log: &str) -> &'static str {
    if log.contains("no space left") {
        "free some disk space (the build takes about 6 GB with Go's own cache), or set GOCACHE and POD_AFFINITY_TESTBED_CACHE"
    } else if log.contains("signal: killed") {
        "the kernel probably ended the compiler for lack of memory (dmesg): end other programs"
    } else if log.contains("dial tcp") || log.contains("proxy.golang.org") {
        "check whether the Go module proxy is reachable (go env GOPROXY)"
    } else {
        "see the log"
    }
}

/// Major and minor version in the output of `go version`.
fn version(printed: &str) -> Option<(u32, u32)> {
    let word = printed
        .split_whitespace()
        .find_map(|word| word.strip_prefix("go1."))?;
    let minor = word.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((1, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_go_prints_them() {
        assert_eq!(version("go version go1.26.8 linux/amd64"), Some((1, 26)));
        assert_eq!(version("go version go1.27rc1 linux/amd64"), Some((1, 27)));
        assert_eq!(version("bash: go: command not found"), None);
        assert!(version("go version go1.9 linux/amd64").unwrap() < OLDEST);
    }

    #[test]
    fn a_binary_is_named_as_go_names_it() {
        assert_eq!(binary_name("sigs.k8s.io/kwok/cmd/kwok"), "kwok");
        assert_eq!(binary_name("go.etcd.io/etcd/server/v3"), "server");
        assert_eq!(binary_name("main"), "main");
    }
}
