//! The command line.

use crate::destination;
use crate::values::{DarwinPlugin, Person, Platform, Version, address, darwin_plugin, person, platform};
use clap::{ArgAction, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// Builds pod-affinity's image without a container daemon, pushes it, and writes its digest into manifests, as ko does for
/// Go.
#[derive(Debug, Parser)]
#[command(name = "cargo ship", bin_name = "cargo ship", arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Build and push the image, and print only its reference by digest on standard output.
    Build(ImageArgs),
    /// Build and push the image that manifests refer to as `ko://pod-affinity`, and print the manifests with its reference
    /// by digest.
    Resolve {
        #[command(flatten)]
        manifests: ManifestArgs,
        #[command(flatten)]
        image: ImageArgs,
    },
    /// Resolve the manifests, and pass the result to `kubectl apply`.
    Apply {
        #[command(flatten)]
        manifests: ManifestArgs,
        #[command(flatten)]
        image: ImageArgs,
        /// Arguments for kubectl, such as `-- --context staging`.
        #[arg(last = true, value_name = "KUBECTL ARGUMENTS")]
        kubectl: Vec<OsString>,
    },
    /// Pass the manifests to `kubectl delete`, which deletes objects by their names. Build nothing.
    Delete {
        #[command(flatten)]
        manifests: ManifestArgs,
        /// Arguments for kubectl, such as `-- --context staging`.
        #[arg(last = true, value_name = "KUBECTL ARGUMENTS")]
        kubectl: Vec<OsString>,
    },
    /// Build and push the image, and write a Helm chart that installs the image by digest.
    Chart {
        /// The archive of the chart.
        #[arg(long, value_name = "FILE", default_value = "pod-affinity.tgz")]
        out: PathBuf,
        #[command(flatten)]
        image: ImageArgs,
    },
    /// Write the files of a release: the image for all platforms, manifests, the Helm chart, the kubectl plugin, bills of materials,
    /// provenance, checksums and signatures.
    Release(Box<ReleaseArgs>),
    /// Check the files of a release, as docs/releasing.md describes it for users.
    Verify(VerifyArgs),
}

/// Arguments of all commands that read manifests.
#[derive(Debug, clap::Args)]
pub(crate) struct ManifestArgs {
    /// File or folder with manifests. May be given more than once.
    #[arg(
        short,
        long = "filename",
        value_name = "PATH",
        required_unless_present = "kustomize"
    )]
    pub(crate) filename: Vec<PathBuf>,
    /// Folder with a kustomization, which kubectl renders, instead of -f.
    #[arg(short, long, value_name = "FOLDER", conflicts_with = "filename")]
    pub(crate) kustomize: Option<PathBuf>,
}

/// Arguments of all commands that build the image.
#[derive(Debug, clap::Args)]
pub(crate) struct ImageArgs {
    /// Repository below which the image is pushed, such as ghcr.io/me or localhost:5000.
    #[arg(long, env = "KO_DOCKER_REPO", value_name = "REPOSITORY")]
    pub(crate) repo: Option<String>,
    /// Tag of the image. May be given more than once.
    #[arg(short, long = "tag", value_name = "TAG", value_parser = destination::tag, default_value = "latest")]
    pub(crate) tags: Vec<String>,
    /// Whether to push the image.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) push: bool,
    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
    /// Platform of the image: linux/amd64 or linux/arm64.
    #[arg(long, value_name = "PLATFORM", value_parser = platform, default_value = "linux/amd64")]
    pub(crate) platform: Platform,
    /// Also write the image to this file, for `ctr images import`, `kind load image-archive`, or `docker load` of Docker 25 and newer.
    #[arg(long, value_name = "FILE")]
    pub(crate) tarball: Option<PathBuf>,
    /// Use this binary instead of building one.
    #[arg(long, value_name = "FILE", env = "POD_AFFINITY_SHIP_BINARY", hide = true)]
    pub(crate) binary: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) time: TimeArgs,
}

/// Arguments of all commands that connect to a registry.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct RegistryArgs {
    /// Use plain HTTP for the registry, so others on the network can read your password. Not needed for a registry on this machine.
    #[arg(long)]
    pub(crate) insecure_registry: bool,
}

/// Arguments of all commands that compile.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct TimeArgs {
    /// Timestamp of all files and objects, in seconds. Default: the time of the commit.
    #[arg(long, value_name = "SECONDS", env = "SOURCE_DATE_EPOCH")]
    pub(crate) source_date_epoch: Option<i64>,
}

/// Arguments of `release`. No address has a default, because a release with a wrong address cannot be corrected.
#[derive(Debug, clap::Args)]
pub(crate) struct ReleaseArgs {
    /// Version, such as v1.2.3.
    #[arg(value_parser = Version::parse)]
    pub(crate) version: Version,
    /// Folder for the files of the release.
    #[arg(long, value_name = "FOLDER", default_value = "dist")]
    pub(crate) out: PathBuf,
    /// Repository below which users find the image, such as ghcr.io/me.
    #[arg(long, env = "KO_DOCKER_REPO", value_name = "REPOSITORY")]
    pub(crate) repo: String,
    /// Address of the folder from which users download the files of this release.
    #[arg(long, value_name = "URL", value_parser = address)]
    pub(crate) downloads: String,
    /// Address of the project's page.
    #[arg(long, value_name = "URL", value_parser = address)]
    pub(crate) homepage: String,
    /// Address of the source repository.
    #[arg(long, value_name = "URL", value_parser = address)]
    pub(crate) source_repository: String,
    /// Address at which users report vulnerabilities: a URL, or mailto:ADDRESS.
    #[arg(long, value_name = "URL", value_parser = address)]
    pub(crate) security_contact: String,
    /// Name and mail address of a maintainer, as in "Ann <ann@example.com>". May be given more than once.
    #[arg(long = "maintainer", value_name = "NAME <MAIL>", required = true, value_parser = person)]
    pub(crate) maintainers: Vec<Person>,
    /// Platform of the image and the plugin. May be given more than once.
    #[arg(long = "platform", value_name = "PLATFORM", value_parser = platform, default_values = ["linux/amd64", "linux/arm64"])]
    pub(crate) platforms: Vec<Platform>,
    /// Leave out the kubectl plugin, which needs cargo-zigbuild.
    #[arg(long)]
    pub(crate) without_plugin: bool,
    /// The kubectl plugin for macOS, compiled on a machine with macOS: darwin/amd64=FILE or darwin/arm64=FILE. May be given more
    /// than once.
    #[arg(long = "plugin", value_name = "PLATFORM=FILE", value_parser = darwin_plugin, conflicts_with = "without_plugin")]
    pub(crate) plugins: Vec<DarwinPlugin>,
    /// Private key of cosign that signs the files, and the image if the image is pushed. `COSIGN_PASSWORD` has its password.
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Push the image and the chart with the version as their tag.
    #[arg(long)]
    pub(crate) push: bool,
    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
    /// Create the release even if files differ from the commit, git cannot read the commit, or the package has another version.
    #[arg(long)]
    pub(crate) allow_dirty: bool,
    /// Folder with binaries, such as pod-affinity-amd64, instead of a build.
    #[arg(long, value_name = "FOLDER", env = "POD_AFFINITY_SHIP_BINARIES", hide = true)]
    pub(crate) binaries: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) time: TimeArgs,
}

/// Arguments of `verify`.
#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    /// Folder with the files of a release.
    #[arg(default_value = "dist")]
    pub(crate) folder: PathBuf,
    /// Public key of cosign. Without a key, no signature is checked.
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Check also the image and the chart in the registry.
    #[arg(long = "registry")]
    pub(crate) in_registry: bool,
    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parsed(line: &str) -> Result<Command, String> {
        let parsed = Args::try_parse_from(line.split(' '));
        parsed.map(|args| args.command).map_err(|error| error.to_string())
    }

    fn image(line: &str) -> ImageArgs {
        match parsed(line).unwrap() {
            Command::Build(image) => image,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definition_of_the_arguments_is_valid() {
        Args::command().debug_assert();
    }

    #[test]
    fn an_image_is_for_amd64_and_pushed_as_latest_unless_said_otherwise() {
        let default = image("ship build");
        assert_eq!(
            (default.platform.to_string().as_str(), default.push),
            ("linux/amd64", true)
        );
        assert_eq!(default.tags, ["latest"]);
        assert_eq!(image("ship build --tag v1 -t stable").tags, ["v1", "stable"]);
    }

    #[test]
    fn pushing_is_switched_as_in_ko() {
        for (flag, push) in [("--push", true), ("--push=true", true), ("--push=false", false)] {
            assert_eq!(image(&format!("ship build {flag}")).push, push);
        }
    }

    #[test]
    fn arguments_after_the_dashes_are_for_kubectl() {
        let Command::Apply {
            kubectl, manifests, ..
        } = parsed("ship apply -f config -f x.yaml -- --context x --server-side").unwrap()
        else {
            panic!()
        };
        assert_eq!(kubectl, ["--context", "x", "--server-side"]);
        assert_eq!(manifests.filename.len(), 2);
    }

    #[test]
    fn manifests_must_be_named() {
        for line in ["ship resolve", "ship apply", "ship delete"] {
            assert!(parsed(line).unwrap_err().contains("--filename <PATH>"), "{line}");
        }
    }

    #[test]
    fn a_kustomization_replaces_files() {
        assert!(parsed("ship delete -k overlays/x").is_ok());
        assert!(
            parsed("ship resolve -k x -f y")
                .unwrap_err()
                .contains("cannot be used with")
        );
    }

    #[test]
    fn a_release_needs_all_addresses() {
        let error = parsed("ship release v1.2.3").unwrap_err();
        for flag in [
            "--repo",
            "--downloads",
            "--homepage",
            "--source-repository",
            "--security-contact",
            "--maintainer",
        ] {
            assert!(error.contains(flag), "{error}");
        }
        assert!(
            parsed("ship release 1.2")
                .unwrap_err()
                .contains("write it as v1.2.3")
        );
    }
}
