//! The destination of an image: `KO_DOCKER_REPO` in ko's format, and the references in this repository.

use crate::source::PRODUCT;
use anyhow::{Result, ensure};

/// The repository below which the image is pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Destination(String);

impl Destination {
    pub(crate) fn parse(repository: &str) -> Result<Self> {
        let repository = repository.trim().trim_end_matches('/');
        ensure!(
            !repository.is_empty(),
            "KO_DOCKER_REPO is not set: set the repository of the image, as in `export KO_DOCKER_REPO=ghcr.io/me` or \
             `KO_DOCKER_REPO=localhost:5000`, or push nothing with `--push=false`"
        );
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "./:_-".contains(c);
        let path = repository.split_once('/').map_or("", |(_, path)| path);
        ensure!(
            repository.chars().all(allowed) && !path.contains(':') && !path.starts_with('/'),
            "KO_DOCKER_REPO={repository} is not a repository: write HOST[:PORT][/PATH] in lower case, without a scheme, a tag and a \
             digest"
        );
        Ok(Self(repository.to_owned()))
    }

    /// Host and port of the registry.
    pub(crate) fn registry(&self) -> &str {
        let first = self.0.split('/').next().unwrap_or_default();
        if first.contains(['.', ':']) || first == "localhost" {
            return first;
        }
        "docker.io"
    }

    /// Whether the registry is on this machine. crane uses plain HTTP there.
    pub(crate) fn is_local(&self) -> bool {
        let host = self.registry().split(':').next().unwrap_or_default();
        ["localhost", "127.0.0.1"].contains(&host)
    }

    /// The folder of charts, beside the image.
    pub(crate) fn charts(&self) -> String {
        format!("{}/charts", self.0)
    }

    /// The reference of the chart with this version.
    pub(crate) fn chart(&self, version: &str) -> String {
        format!("{}/{PRODUCT}:{version}", self.charts())
    }

    /// The image's reference with a tag.
    pub(crate) fn tagged(&self, tag: &str) -> String {
        format!("{}/{PRODUCT}:{tag}", self.0)
    }

    /// The image's reference with its digest, which never refers to other bytes.
    pub(crate) fn pinned(&self, digest: &str) -> String {
        format!("{}/{PRODUCT}@{digest}", self.0)
    }
}

/// Parses a tag of the command line.
pub(crate) fn tag(text: &str) -> Result<String, String> {
    let first = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let allowed = |c: char| first(c) || ".-".contains(c);
    if text.starts_with(first) && text.chars().all(allowed) && text.len() <= 128 {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "'{text}' is not a valid tag: use up to 128 letters, digits, '_', '.' and '-', beginning with one of the first three"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(repository: &str) -> Destination {
        Destination::parse(repository).unwrap()
    }

    fn error(repository: &str) -> String {
        Destination::parse(repository).unwrap_err().to_string()
    }

    #[test]
    fn image_and_charts_are_below_the_repository() {
        let destination = at("ghcr.io/me/tools/");
        assert_eq!(destination.tagged("v1"), "ghcr.io/me/tools/pod-affinity:v1");
        assert_eq!(
            destination.pinned("sha256:ab"),
            "ghcr.io/me/tools/pod-affinity@sha256:ab"
        );
        assert_eq!(
            destination.chart("1.2.3"),
            "ghcr.io/me/tools/charts/pod-affinity:1.2.3"
        );
    }

    #[test]
    fn the_registry_is_the_host_or_docker_hub() {
        for (repository, registry, local) in [
            ("localhost:5000", "localhost:5000", true),
            ("127.0.0.1:1/x", "127.0.0.1:1", true),
            ("ghcr.io/me", "ghcr.io", false),
            ("me", "docker.io", false),
        ] {
            assert_eq!(
                (at(repository).registry(), at(repository).is_local()),
                (registry, local)
            );
        }
    }

    #[test]
    fn an_unset_or_empty_repository_is_an_error_with_an_example() {
        for nothing in ["", " "] {
            assert!(error(nothing).contains("export KO_DOCKER_REPO="));
        }
    }

    #[test]
    fn an_invalid_repository_is_an_error_with_the_format() {
        for bad in [
            "http://localhost:5000",
            "ghcr.io/me/x:v1",
            "ghcr.io/me@sha256:ab",
            "ghcr.io/Me",
        ] {
            assert!(error(bad).contains("in lower case, without a scheme"), "{bad}");
        }
    }

    #[test]
    fn tags_have_the_format_that_registries_accept() {
        for good in ["latest", "v1.2.3", "_x"] {
            assert_eq!(tag(good).as_deref(), Ok(good));
        }
        for bad in ["", ".x", "-x", "a b", "a:b", &"x".repeat(129)] {
            assert!(tag(bad).is_err(), "{bad}");
        }
    }
}
