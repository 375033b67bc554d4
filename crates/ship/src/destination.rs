//! The destination of an image: `KO_DOCKER_REPO` in ko's format, and the references in this repository.

use crate::workspace::PRODUCT;
use oci_spec::distribution::{ParseError, Reference};

/// The repository name if nothing is pushed and none is set. ko uses the same name.
const LOCAL: &str = "ko.local";
/// ko loads images into a daemon for these names; `cargo ship` does not support this.
const DAEMONS: [&str; 2] = [LOCAL, "kind.local"];

/// A repository in a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Destination(Reference);

/// The destination is missing or invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error(
        "KO_DOCKER_REPO is not set: set the repository of the image, as in `export KO_DOCKER_REPO=ghcr.io/me` or \
         `KO_DOCKER_REPO=localhost:5000`, or push nothing with `--push=false`"
    )]
    Unset,
    #[error(
        "KO_DOCKER_REPO={0} requests a container daemon, which `cargo ship` does not use: write an archive with `--push=false \
         --tarball image.tar` and load it with `kind load image-archive image.tar`, `ctr images import` or `docker load`"
    )]
    Daemon(String),
    #[error("KO_DOCKER_REPO={0} begins with a scheme: leave it out, as in `localhost:5000/team`")]
    Scheme(String),
    #[error("KO_DOCKER_REPO={0} names a tag or a digest: set only the repository, and the tag with --tag")]
    Tagged(String),
    #[error(
        "KO_DOCKER_REPO={repository} is not a repository ({problem}): write HOST[:PORT][/PATH] in lower case"
    )]
    Malformed { repository: String, problem: ParseError },
}

impl Destination {
    /// The image's repository below the given repository.
    pub(crate) fn parse(repository: Option<&str>) -> Result<Self, Error> {
        let given = repository
            .map(|text| text.trim().trim_end_matches('/'))
            .unwrap_or_default();
        match given {
            "" => Err(Error::Unset),
            daemon if DAEMONS.contains(&daemon) => Err(Error::Daemon(daemon.to_owned())),
            scheme if scheme.contains("://") => Err(Error::Scheme(scheme.to_owned())),
            repository => Self::below(repository),
        }
    }

    /// The destination of an image that is not pushed.
    pub(crate) fn local(repository: Option<&str>) -> Result<Self, Error> {
        match Self::parse(repository) {
            Err(Error::Unset | Error::Daemon(_)) => Self::below(LOCAL),
            parsed => parsed,
        }
    }

    fn below(repository: &str) -> Result<Self, Error> {
        let host_with_port = repository.split('/').next().unwrap_or_default();
        if repository.contains('@') || repository[host_with_port.len()..].contains(':') {
            return Err(Error::Tagged(repository.to_owned()));
        }
        let reference = format!("{repository}/{PRODUCT}").parse();
        reference.map(Self).map_err(|problem| Error::Malformed {
            repository: repository.to_owned(),
            problem,
        })
    }

    /// Host and port of the registry.
    pub(crate) fn registry(&self) -> &str {
        self.0.registry()
    }

    /// Whether the registry is on this machine. crane uses plain HTTP there.
    pub(crate) fn is_local(&self) -> bool {
        let (host, _port) = self.registry().split_once(':').unwrap_or((self.registry(), ""));
        ["localhost", "127.0.0.1"].contains(&host)
    }

    /// The folder of charts, beside the image.
    pub(crate) fn charts(&self) -> String {
        let (registry, repository) = (self.0.registry(), self.0.repository());
        let above = repository.strip_suffix(PRODUCT).unwrap_or_default();
        format!("{registry}/{above}charts")
    }

    /// The reference of the chart with this version.
    pub(crate) fn chart(&self, version: &str) -> String {
        format!("{}/{PRODUCT}:{version}", self.charts())
    }

    /// The image's reference with a tag.
    pub(crate) fn tagged(&self, tag: &str) -> Reference {
        let (registry, repository) = self.owned();
        Reference::with_tag(registry, repository, tag.to_owned())
    }

    /// The image's reference with its digest, which never refers to other bytes.
    pub(crate) fn pinned(&self, digest: &str) -> Reference {
        let (registry, repository) = self.owned();
        Reference::with_digest(registry, repository, digest.to_owned())
    }

    fn owned(&self) -> (String, String) {
        (self.0.registry().to_owned(), self.0.repository().to_owned())
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
        Destination::parse(Some(repository)).unwrap()
    }

    fn error(repository: &str) -> String {
        Destination::parse(Some(repository)).unwrap_err().to_string()
    }

    #[test]
    fn charts_are_beside_the_image() {
        for (repository, chart) in [
            ("ghcr.io/me", "ghcr.io/me/charts/pod-affinity:1.2.3"),
            ("localhost:5000", "localhost:5000/charts/pod-affinity:1.2.3"),
        ] {
            assert_eq!(
                Destination::parse(Some(repository)).unwrap().chart("1.2.3"),
                chart
            );
        }
    }

    #[test]
    fn registries_on_this_machine_are_known() {
        for (repository, local) in [
            ("localhost:5000", true),
            ("127.0.0.1:1/x", true),
            ("ghcr.io/me", false),
        ] {
            assert_eq!(
                Destination::parse(Some(repository)).unwrap().is_local(),
                local,
                "{repository}"
            );
        }
    }

    #[test]
    fn the_image_is_below_the_repository_with_its_plain_name() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (repository, image) in [
            ("localhost:5000", "localhost:5000/pod-affinity"),
            ("ghcr.io/me/tools/", "ghcr.io/me/tools/pod-affinity"),
            ("me", "docker.io/me/pod-affinity"),
        ] {
            assert_eq!(at(repository).tagged("v1").whole(), format!("{image}:v1"));
            assert_eq!(
                at(repository).pinned(&digest).whole(),
                format!("{image}@{digest}")
            );
        }
    }

    #[test]
    fn an_unset_or_empty_repository_is_an_error_with_an_example() {
        for nothing in [None, Some(""), Some(" ")] {
            let error = Destination::parse(nothing).unwrap_err();
            assert_eq!(error, Error::Unset);
            assert!(error.to_string().contains("export KO_DOCKER_REPO="), "{error}");
        }
    }

    #[test]
    fn a_container_daemon_is_an_error_with_the_alternative() {
        assert!(error("kind.local").contains("kind load image-archive"));
    }

    #[test]
    fn an_invalid_repository_is_an_error_that_says_why() {
        assert!(error("http://localhost:5000").contains("begins with a scheme"));
        assert!(error("ghcr.io/me/x:v1").contains("--tag"));
        assert!(error("ghcr.io/me@sha256:ab").contains("--tag"));
        assert!(error("ghcr.io/Me").contains("lower case"));
    }

    #[test]
    fn an_image_that_is_not_pushed_needs_no_repository() {
        for nothing in [None, Some("kind.local")] {
            let local = Destination::local(nothing).unwrap();
            assert_eq!(local.tagged("x").whole(), "ko.local/pod-affinity:x");
        }
        assert_eq!(Destination::local(Some("ghcr.io/me")).unwrap(), at("ghcr.io/me"));
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
