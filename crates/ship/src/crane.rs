//! Pushes images with crane, and explains why a registry rejected a push. crane reads the credentials that `docker login` stored.

use crate::archive;
use crate::destination::Destination;
use crate::image::Image;
use crate::tool::{self, Scratch, Tool};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

/// The image was not pushed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Tool(#[from] tool::Error),
    #[error(transparent)]
    Archive(#[from] archive::Error),
    #[error("the registry {registry} {problem} ({cause}): {remedy}")]
    Rejected {
        registry: String,
        problem: &'static str,
        cause: String,
        remedy: String,
    },
}

/// crane, with the settings for a registry.
#[derive(Clone, Debug)]
pub(crate) struct Crane {
    tool: Tool,
    insecure: bool,
}

impl Crane {
    pub(crate) fn new(root: &Path, insecure: bool) -> Result<Self, tool::Error> {
        let tool = Tool::crane(root)?;
        Ok(Self { tool, insecure })
    }

    /// Checks whether the registry answers, because a build takes minutes. An answer that rejects the request says nothing about
    /// pushes: some registries reject reads of a repository that the first push creates.
    pub(crate) fn check(&self, to: &Destination) -> Result<(), Error> {
        let digest = self.run(&["digest", &to.tagged("latest").whole()]);
        match digest {
            Err(tool::Error::Failed { cause, .. }) if code(&cause) == 0 => Err(explain(to.registry(), cause)),
            Err(tool::Error::Failed { .. }) | Ok(_) => Ok(()),
            Err(other) => Err(other.into()),
        }
    }

    /// Pushes the image under each tag.
    pub(crate) fn push(&self, image: &Image, to: &Destination, tags: &[String]) -> Result<(), Error> {
        let layout = Scratch::new("push")?;
        archive::write_layout(&layout.0, image, &["latest".to_owned()])?;
        for tag in tags {
            self.push_layout(&layout.0, to, tag)?;
        }
        Ok(())
    }

    /// Pushes an archive with an OCI layout.
    pub(crate) fn push_archive(&self, archive: &Path, to: &Destination, tag: &str) -> Result<(), Error> {
        let layout = Scratch::new("unpacked")?;
        let unpack = std::fs::File::open(archive).and_then(|file| tar::Archive::new(file).unpack(&layout.0));
        unpack.map_err(|source| tool::Error::Read {
            path: archive.to_owned(),
            source,
        })?;
        self.push_layout(&layout.0, to, tag)
    }

    fn push_layout(&self, layout: &Path, to: &Destination, tag: &str) -> Result<(), Error> {
        let layout = layout.display().to_string();
        match self.run(&["push", &layout, &to.tagged(tag).whole()]) {
            Err(tool::Error::Failed { cause, .. }) => Err(explain(to.registry(), cause)),
            pushed => Ok(pushed.map(drop)?),
        }
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Result<String, tool::Error> {
        let insecure = self.insecure.then_some("--insecure");
        let arguments: Vec<_> = arguments.iter().copied().chain(insecure).collect();
        self.tool.run(&arguments)
    }

    /// Starts an empty registry on this machine.
    pub(crate) fn serve(&self) -> Result<Served, tool::Error> {
        let name = self.tool.name;
        let mut child = Command::new(&self.tool.path)
            .args(["registry", "serve", "--address=127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| tool::Error::Start { name, source })?;
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
        served.address = found.ok_or_else(|| tool::Error::Failed {
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
    /// The reader of the log stays open: without a reader, the process ends when it writes a line.
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

/// The status code in crane's error, or the code of the error that the registry named. 0 without an answer.
fn code(cause: &str) -> u16 {
    const NAMES: [(&str, u16); 6] = [
        ("UNAUTHORIZED", 401),
        ("DENIED", 403),
        ("UNSUPPORTED", 405),
        ("NAME_UNKNOWN", 404),
        ("MANIFEST_UNKNOWN", 404),
        ("TOOMANYREQUESTS", 429),
    ];
    let status = cause
        .split_once("status code ")
        .map(|(_, rest)| &rest[..rest.len().min(3)]);
    let named = || NAMES.iter().find(|(name, _)| cause.contains(name));
    let status = status.and_then(|digits| digits.parse().ok());
    status.or_else(|| Some(named()?.1)).unwrap_or_default()
}

fn explain(registry: &str, cause: String) -> Error {
    let login =
        format!("run `docker login {registry}`, or set DOCKER_CONFIG to the folder of another config.json");
    let (problem, remedy) = match code(&cause) {
        0 => (
            "cannot be reached",
            "check whether KO_DOCKER_REPO is right and the registry is running; if it uses plain HTTP, add --insecure-registry; \
             if your own CA signed its certificate, set SSL_CERT_FILE to the file of that CA",
        ),
        401 => ("does not accept the credentials", login.as_str()),
        403 => (
            "does not let you push there",
            "ask for the right to write to the repository, or set KO_DOCKER_REPO to one of your own",
        ),
        405 => (
            "accepts no pushes",
            "it may be read-only or a mirror; set KO_DOCKER_REPO to another one",
        ),
        404 => (
            "does not know the repository",
            "create it first if the registry requires this; or KO_DOCKER_REPO is misspelt, or is not a registry",
        ),
        429 => ("limits the rate of requests", "try again later"),
        500..600 => ("failed", "try again, and check its log if that does not help"),
        _ => ("rejected the push", "see the cause"),
    };
    Error::Rejected {
        registry: registry.to_owned(),
        problem,
        remedy: remedy.to_owned(),
        cause,
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

    // The texts of crane 0.22.1.
    #[test]
    fn each_rejection_of_a_registry_has_its_own_remedy() {
        let url = "http://127.0.0.1:5000/v2/team/x";
        for (cause, remedy) in [
            (
                format!("Error: HEAD {url}/manifests/v1: unexpected status code 401 Unauthorized"),
                "docker login ghcr.io",
            ),
            (
                format!("Error: GET {url}/manifests/v1: UNAUTHORIZED: authentication required"),
                "docker login ghcr.io",
            ),
            (
                format!("Error: POST {url}/blobs/uploads/: unexpected status code 403 Forbidden: no"),
                "right to write",
            ),
            (
                format!("Error: POST {url}/blobs/uploads/: unexpected status code 405 Method Not Allowed"),
                "read-only or a mirror",
            ),
            (
                format!("Error: POST {url}/blobs/uploads/: unexpected status code 404 Not Found: no"),
                "create it first",
            ),
            (
                format!("Error: POST {url}/blobs/uploads/: unexpected status code 429 Too Many Requests"),
                "try again later",
            ),
            (
                format!("Error: POST {url}/blobs/uploads/: unexpected status code 503 Service Unavailable"),
                "check its log",
            ),
            (
                format!("Error: Get \"{url}\": dial tcp 127.0.0.1:1: connect: connection refused"),
                "--insecure-registry",
            ),
        ] {
            let error = explain("ghcr.io", cause.clone()).to_string();
            assert!(error.contains(remedy) && error.contains(&cause), "{error}");
        }
    }

    #[test]
    fn an_image_that_does_not_exist_yet_is_an_answer() {
        let cause = "Error: GET http://x/v2/team/x/manifests/latest: MANIFEST_UNKNOWN: manifest unknown; unknown tag=latest";
        assert_eq!(code(cause), 404);
    }
}
