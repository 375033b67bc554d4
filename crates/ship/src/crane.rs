//! Copies images to registries with crane, and explains why a registry rejected a push. crane reads the credentials that
//! `docker login` stored.

use crate::destination::Destination;
use crate::tool::{GoTool, output};
use anyhow::{Error, Result, anyhow};
use std::path::Path;

/// crane, with the settings for a registry.
#[derive(Clone, Debug)]
pub(crate) struct Crane {
    pub(crate) program: GoTool,
    insecure: bool,
}

impl Crane {
    pub(crate) fn new(root: &Path, insecure: bool) -> Result<Self> {
        let program = GoTool::built(root, "crane")?;
        Ok(Self { program, insecure })
    }

    /// crane for pushes to a registry, which has answered: a build takes minutes. An answer that rejects the request says nothing about
    /// pushes, because some registries reject reads of a repository that the first push creates.
    pub(crate) fn answered(root: &Path, insecure: bool, to: &Destination) -> Result<Self> {
        let crane = Self::new(root, insecure)?;
        match crane.run(&["digest", &to.tagged("latest")]) {
            Err(error) if rejection(&error.to_string()).is_none() => Err(explain(to.registry(), &error)),
            _ => Ok(crane),
        }
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Result<String> {
        self.program.run(&self.with_flags(arguments))
    }

    fn with_flags<'a>(&self, arguments: &[&'a str]) -> Vec<&'a str> {
        let insecure = self.insecure.then_some("--insecure");
        arguments.iter().copied().chain(insecure).collect()
    }

    /// Copies an image to its destination, under this tag. crane's progress goes to standard error.
    pub(crate) fn copy(&self, from: &str, to: &Destination, tag: &str) -> Result<()> {
        let (to, registry) = (to.tagged(tag), to.registry());
        let mut copy = self.program.command(&self.with_flags(&["copy", from, &to]));
        let copied = output(&mut copy, "").map_err(|error| explain(registry, &error))?;
        eprint!("{}", String::from_utf8_lossy(&copied.stderr));
        Ok(())
    }
}

/// What a registry answers, as a status code or by name, the problem, and the remedy.
const REJECTIONS: [([&str; 2], &str, &str); 5] = [
    (
        ["code 401", "UNAUTHORIZED"],
        "does not accept the credentials",
        "run `docker login REGISTRY`, or set DOCKER_CONFIG to the folder of another config.json",
    ),
    (
        ["code 403", "DENIED"],
        "does not let you push there",
        "ask for the right to write to the repository, or set KO_DOCKER_REPO to one of your own",
    ),
    (
        ["code 405", "UNSUPPORTED"],
        "accepts no pushes",
        "it may be read-only or a mirror; set KO_DOCKER_REPO to another one",
    ),
    (
        ["code 404", "_UNKNOWN"],
        "does not know the repository",
        "create it first if the registry requires this; or KO_DOCKER_REPO is misspelt, or is not a registry",
    ),
    (
        ["code ", "TOOMANYREQUESTS"],
        "rejected the push",
        "try again later, or read the log of the registry",
    ),
];
const NO_ANSWER: (&str, &str) = (
    "cannot be reached",
    "check whether KO_DOCKER_REPO is right and the registry is running; if it uses plain HTTP, add --insecure-registry; \
     if your own CA signed its certificate, set SSL_CERT_FILE to the file of that CA",
);

/// The problem and the remedy of an error that contains the answer of a registry.
fn rejection(cause: &str) -> Option<(&'static str, &'static str)> {
    let mut rejections = REJECTIONS.into_iter();
    let (_, problem, remedy) =
        rejections.find(|(words, ..)| words.iter().any(|word| cause.contains(word)))?;
    Some((problem, remedy))
}

fn explain(registry: &str, error: &Error) -> Error {
    let (problem, remedy) = rejection(&error.to_string()).unwrap_or(NO_ANSWER);
    let remedy = remedy.replace("REGISTRY", registry);
    anyhow!("the registry {registry} {problem} ({error}): {remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    // The texts of crane 0.22.1.
    #[test]
    fn each_rejection_of_a_registry_has_its_own_remedy() {
        let url = "http://127.0.0.1:5000/v2/team/x";
        for (cause, remedy) in [
            (
                format!("HEAD {url}/manifests/v1: unexpected status code 401 Unauthorized"),
                "docker login ghcr.io",
            ),
            (
                format!("GET {url}/manifests/v1: UNAUTHORIZED: authentication required"),
                "docker login ghcr.io",
            ),
            (
                format!("POST {url}/blobs/uploads/: unexpected status code 403 Forbidden: no"),
                "right to write",
            ),
            (
                format!("POST {url}/blobs/uploads/: unexpected status code 405 Method Not Allowed"),
                "read-only or a mirror",
            ),
            (
                format!("POST {url}/blobs/uploads/: unexpected status code 404 Not Found: no"),
                "create it first",
            ),
            (
                format!("POST {url}/blobs/uploads/: unexpected status code 429 Too Many Requests"),
                "try again later",
            ),
            (
                format!("POST {url}/blobs/uploads/: unexpected status code 503 Service Unavailable"),
                "the log of the registry",
            ),
            (
                format!("Get \"{url}\": dial tcp 127.0.0.1:1: connect: connection refused"),
                "--insecure-registry",
            ),
        ] {
            let error = explain("ghcr.io", &anyhow!("{cause}")).to_string();
            assert!(error.contains(remedy) && error.contains(&cause), "{error}");
        }
    }

    #[test]
    fn an_image_that_does_not_exist_yet_is_an_answer() {
        let cause = "Error: GET http://x/v2/team/x/manifests/latest: MANIFEST_UNKNOWN: manifest unknown; unknown tag=latest";
        assert!(rejection(cause).is_some());
    }
}
