//! Reads the path of this checkout and the metadata of the product from cargo.

use cargo_metadata::{Metadata, MetadataCommand};
use std::path::PathBuf;

/// The package whose binary is shipped.
pub(crate) const PRODUCT: &str = "pod-affinity";

/// The checkout.
#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target_directory: PathBuf,
    pub(crate) version: String,
    pub(crate) license: Option<String>,
    pub(crate) repository: Option<String>,
}

/// The current folder is not in a checkout that can be shipped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cargo cannot read this workspace: {0}; call `cargo ship` from within the checkout")]
    Metadata(#[from] cargo_metadata::Error),
    #[error("the workspace at {0} has no package {PRODUCT}: call `cargo ship` from within its checkout")]
    Foreign(PathBuf),
}

/// Reads the metadata from cargo in the current folder.
pub(crate) fn find() -> Result<Workspace, Error> {
    of(MetadataCommand::new().no_deps().exec()?)
}

fn of(metadata: Metadata) -> Result<Workspace, Error> {
    let root = metadata.workspace_root.into_std_path_buf();
    let mut packages = metadata.packages.into_iter();
    let Some(product) = packages.find(|package| package.name.as_str() == PRODUCT) else {
        return Err(Error::Foreign(root));
    };
    Ok(Workspace {
        root,
        target_directory: metadata.target_directory.into_std_path_buf(),
        version: product.version.to_string(),
        license: product.license,
        repository: product.repository,
    })
}
