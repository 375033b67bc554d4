//! The bill of materials of the binary in SPDX, from cargo's dependency tree. Build scripts and procedural macros run only
//! at compile time, are not in the binary, and are not listed.

mod lock;
mod spdx;
mod tree;

use crate::compile::cargo;
use jiff::Timestamp;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The form in which the binary is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Image,
    Archive,
}

/// The image or the archive that the bill describes.
#[derive(Clone, Debug)]
pub(crate) struct Subject<'a> {
    /// The package of this workspace that the binary is built from.
    pub(crate) package: &'a str,
    pub(crate) form: Form,
    pub(crate) version: &'a str,
    /// The digest of the image or the archive, with its algorithm.
    pub(crate) digest: &'a str,
    pub(crate) license: Option<&'a str>,
    pub(crate) time: Timestamp,
    /// The release of Rust, whose standard library is linked in.
    pub(crate) rust: &'a str,
    /// The C library that is linked in statically, such as `glibc 2.36`.
    pub(crate) libc: Option<&'a str>,
}

impl Form {
    /// The word of SPDX.
    fn purpose(self) -> &'static str {
        match self {
            Self::Image => "CONTAINER",
            Self::Archive => "ARCHIVE",
        }
    }
}

impl Subject<'_> {
    fn name(&self) -> String {
        let form = match self.form {
            Form::Image => "image",
            Form::Archive => "archive",
        };
        format!("{} ({form})", self.package)
    }
}

/// The bill of materials cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(
        "cargo tree does not run ({0}): install Rust with rustup, or leave the bill of materials out with `--sbom none`"
    )]
    Cargo(std::io::Error),
    #[error("cargo tree failed: {0}")]
    Tree(String),
    #[error(
        "cargo tree says '{0}', which is not understood; leave the bill of materials out with `--sbom none`"
    )]
    Line(String),
    #[error("{} cannot be read ({source})", path.display())]
    Lock { path: PathBuf, source: std::io::Error },
    #[error("Cargo.lock is not understood: {0}")]
    LockFormat(#[from] toml::de::Error),
    #[error("the bill of materials cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// Writes the bill of materials for a target.
pub(crate) fn spdx(root: &Path, target: &str, subject: &Subject<'_>) -> Result<Vec<u8>, Error> {
    let packages = tree::parse(&cargo_tree(root, subject.package, target)?)?;
    let path = root.join("Cargo.lock");
    let lock = std::fs::read_to_string(&path).map_err(|source| Error::Lock { path, source })?;
    let document = spdx::document(subject, &packages, &lock::checksums(&lock)?);
    let mut json = serde_json::to_vec_pretty(&document)?;
    json.push(b'\n');
    Ok(json)
}

fn cargo_tree(root: &Path, package: &str, target: &str) -> Result<String, Error> {
    let output = Command::new(cargo())
        .args(["tree", "--locked", "--package", package, "--target", target])
        .args([
            "--edges",
            "normal,no-proc-macro",
            "--prefix",
            "depth",
            "--format",
            tree::FORMAT,
        ])
        .current_dir(root)
        .stdin(Stdio::null())
        .output()
        .map_err(Error::Cargo)?;
    if !output.status.success() {
        return Err(Error::Tree(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
