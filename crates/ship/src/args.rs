//! The command line and the environment variables; no other module reads them.

use crate::destination;
use crate::manifest::Selection;
use crate::platform::{Libc, Platform, Processor};
use crate::registry::Access;
use crate::release::{MANIFESTS, POLICIES, Version};
use clap::{ArgAction, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

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
    /// Write the files of a release: resolved manifests with the webhook and with policies, the digest of the image, the
    /// bill of materials, checksums.
    Release(ReleaseArgs),
}

/// Arguments of all commands that read manifests.
#[derive(Debug, clap::Args)]
pub(crate) struct ManifestArgs {
    /// File or folder with manifests, or - for standard input. May be given more than once.
    #[arg(
        short,
        long = "filename",
        value_name = "PATH",
        required_unless_present = "kustomize"
    )]
    filename: Vec<PathBuf>,
    /// Folder with a kustomization, which kubectl renders, instead of -f.
    #[arg(short, long, value_name = "FOLDER", conflicts_with_all = ["filename", "recursive"])]
    kustomize: Option<PathBuf>,
    /// Also read the manifests in subfolders.
    #[arg(short = 'R', long)]
    recursive: bool,
}

/// Arguments of all commands that build the image.
#[derive(Debug, clap::Args)]
pub(crate) struct ImageArgs {
    /// Repository below which the image is pushed, such as ghcr.io/me or localhost:5000.
    #[arg(long, env = "KO_DOCKER_REPO", value_name = "REPOSITORY")]
    pub(crate) repo: Option<String>,
    /// Tag of the image; may be given more than once. Default: latest. A release always has its version as a tag.
    #[arg(short, long = "tag", value_name = "TAG", value_parser = destination::tag)]
    tags: Vec<String>,
    /// Whether to push the image.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) push: bool,
    /// Use plain HTTP for the registry. Not needed for a registry on this machine.
    #[arg(long)]
    insecure_registry: bool,
    /// Platform of the image: linux/amd64 or linux/arm64.
    #[arg(long, value_name = "PLATFORM", default_value_t = Processor::Amd64)]
    platform: Processor,
    /// C library that is linked statically.
    #[arg(long, value_enum, default_value_t = Libc::Gnu)]
    libc: Libc,
    /// Also write the image to this folder as an OCI layout.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) oci_layout: Option<PathBuf>,
    /// Also write the image to this file, for `ctr images import`, `kind load image-archive` or `docker load`.
    #[arg(long, value_name = "FILE")]
    pub(crate) tarball: Option<PathBuf>,
    /// Format of the bill of materials.
    #[arg(long, value_enum, default_value_t = Sbom::Spdx)]
    pub(crate) sbom: Sbom,
    /// Path of the bill of materials. Default: ship/sbom.spdx.json in the target folder.
    #[arg(long, value_name = "FILE")]
    pub(crate) sbom_out: Option<PathBuf>,
    /// Use this binary instead of building one.
    #[arg(long, value_name = "FILE", env = "POD_AFFINITY_SHIP_BINARY", hide = true)]
    pub(crate) binary: Option<PathBuf>,
    /// Folder of Docker's config.json.
    #[arg(long, value_name = "FOLDER", env = "DOCKER_CONFIG", hide = true)]
    docker_config: Option<PathBuf>,
    /// Folder of cargo's registry.
    #[arg(long, value_name = "FOLDER", env = "CARGO_HOME", hide = true)]
    cargo_home: Option<PathBuf>,
    /// Timestamp of all files and objects, in seconds. Default: the time of the commit.
    #[arg(long, value_name = "SECONDS", env = "SOURCE_DATE_EPOCH")]
    pub(crate) source_date_epoch: Option<i64>,
}

/// Arguments of `release`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReleaseArgs {
    /// Version, such as v1.2.3.
    #[arg(value_parser = Version::parse)]
    pub(crate) version: Version,
    /// Folder for the files of the release. Default: release-VERSION in the target folder.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: Option<PathBuf>,
    /// Files and folders with the manifests. Default: config and overlays/policies, in the workspace.
    #[arg(short, long = "filename", value_name = "PATH")]
    filename: Vec<PathBuf>,
    /// Folder with a kustomization, which kubectl renders, instead of -f.
    #[arg(short, long, value_name = "FOLDER", conflicts_with = "filename")]
    kustomize: Option<PathBuf>,
    /// Create the release even if files differ from the commit.
    #[arg(long)]
    pub(crate) allow_dirty: bool,
    #[command(flatten)]
    pub(crate) image: ImageArgs,
}

/// A format of the bill of materials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sbom {
    /// SPDX 2.3, in JSON.
    Spdx,
    /// No bill of materials.
    None,
}

impl ManifestArgs {
    pub(crate) fn selection(&self) -> Selection {
        match &self.kustomize {
            Some(folder) => Selection::Kustomization(folder.clone()),
            None => Selection::Files {
                paths: self.filename.clone(),
                recursive: self.recursive,
            },
        }
    }
}

impl ImageArgs {
    pub(crate) fn platform(&self) -> Platform {
        Platform {
            processor: self.platform,
            libc: self.libc,
        }
    }

    /// The tags on the command line, or `latest`.
    pub(crate) fn tags(&self) -> Vec<String> {
        if self.tags.is_empty() {
            vec!["latest".to_owned()]
        } else {
            self.tags.clone()
        }
    }

    pub(crate) fn access(&self) -> Access {
        let folder = self.docker_config.clone().unwrap_or_else(|| home(".docker"));
        Access {
            docker_config: folder.join("config.json"),
            insecure: self.insecure_registry,
        }
    }

    pub(crate) fn cargo_home(&self) -> PathBuf {
        self.cargo_home.clone().unwrap_or_else(|| home(".cargo"))
    }
}

impl ReleaseArgs {
    /// The version, and the tags on the command line.
    pub(crate) fn tags(&self) -> Vec<String> {
        let version = self.version.as_str().to_owned();
        [version].into_iter().chain(self.image.tags.clone()).collect()
    }

    /// The manifests on the command line, or those of this checkout, with the webhook and with policies. Each selection has
    /// the name of its file in the release.
    pub(crate) fn selections(&self, root: &Path) -> Vec<(&'static str, Selection)> {
        let files = |paths| Selection::Files {
            paths,
            recursive: false,
        };
        match (&self.kustomize, self.filename.as_slice()) {
            (Some(folder), _) => vec![(MANIFESTS, Selection::Kustomization(folder.clone()))],
            (None, []) => vec![
                (MANIFESTS, files(vec![root.join("config")])),
                (POLICIES, Selection::Kustomization(root.join("overlays/policies"))),
            ],
            (None, given) => vec![(MANIFESTS, files(given.to_vec()))],
        }
    }
}

fn home(folder: &str) -> PathBuf {
    std::env::home_dir().unwrap_or_default().join(folder)
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
        let image = image("ship build");
        assert_eq!(
            (image.platform().target().as_str(), image.push),
            ("x86_64-unknown-linux-gnu", true)
        );
        assert_eq!(image.tags(), ["latest"]);
    }

    #[test]
    fn tags_add_up() {
        assert_eq!(image("ship build --tag v1 -t stable").tags(), ["v1", "stable"]);
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
        } = parsed("ship apply -f config -f - -- --context x --server-side").unwrap()
        else {
            panic!()
        };
        assert_eq!(kubectl, ["--context", "x", "--server-side"]);
        let selection = manifests.selection();
        assert!(
            matches!(&selection, Selection::Files { paths, .. } if paths.len() == 2),
            "{selection:?}"
        );
    }

    #[test]
    fn manifests_must_be_named() {
        for line in ["ship resolve", "ship apply", "ship delete"] {
            assert!(parsed(line).unwrap_err().contains("--filename <PATH>"), "{line}");
        }
    }

    #[test]
    fn a_kustomization_replaces_files() {
        let Command::Delete { manifests, .. } = parsed("ship delete -k overlays/x").unwrap() else {
            panic!()
        };
        assert_eq!(
            manifests.selection(),
            Selection::Kustomization("overlays/x".into())
        );
        for line in [
            "ship resolve -k x -f y",
            "ship resolve -k x -R",
            "ship release v1.2.3 -k x -f y",
        ] {
            assert!(
                parsed(line).unwrap_err().contains("cannot be used with"),
                "{line}"
            );
        }
    }

    #[test]
    fn a_release_is_of_the_checkouts_manifests_and_of_a_version() {
        let Command::Release(release) = parsed("ship release v1.2.3 --tag latest").unwrap() else {
            panic!()
        };
        assert_eq!(release.tags(), ["v1.2.3", "latest"]);
        let config = Selection::Files {
            paths: vec!["/w/config".into()],
            recursive: false,
        };
        let policies = Selection::Kustomization("/w/overlays/policies".into());
        assert_eq!(
            release.selections(Path::new("/w")),
            [("release.yaml", config), ("release-policies.yaml", policies)]
        );
        let Command::Release(release) = parsed("ship release v1.2.3 -k x").unwrap() else {
            panic!()
        };
        let given = Selection::Kustomization("x".into());
        assert_eq!(release.selections(Path::new("/w")), [("release.yaml", given)]);
        assert!(
            parsed("ship release 1.2")
                .unwrap_err()
                .contains("write it as v1.2.3")
        );
    }

    #[test]
    fn the_docker_configuration_is_read_from_its_default_folder() {
        let access = image("ship build --docker-config /x").access();
        assert_eq!(access.docker_config, PathBuf::from("/x/config.json"));
    }
}
