//! The objects of config/ with components, as kustomize renders them, with the version as a label.

use crate::manifest::{self, Manifests, Selection, files};
use crate::release::Version;
use crate::tool::{self, Scratch};
use crate::workspace::PRODUCT;
use serde_json::json;
use std::path::{Path, PathBuf};

/// The component of an installation with admission policies.
pub(crate) const WITH_POLICIES: Variant = Variant::base(&["config/components/policies"]);
/// The installation with the webhook.
pub(crate) const WITH_WEBHOOK: Variant = Variant::base(&[]);

/// Folders of kustomizations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variant {
    resources: &'static [&'static str],
    components: &'static [&'static str],
}

/// The objects cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Files(#[from] files::Error),
    #[error(transparent)]
    Manifest(#[from] manifest::Error),
    #[error(transparent)]
    Tool(#[from] tool::Error),
}

impl Variant {
    /// An installation.
    pub(crate) const fn base(components: &'static [&'static str]) -> Self {
        Self {
            resources: &["config"],
            components,
        }
    }

    /// Objects in addition to an installation.
    pub(crate) const fn addition(components: &'static [&'static str]) -> Self {
        Self {
            resources: &[],
            components,
        }
    }

    pub(crate) fn rendered(&self, root: &Path, version: &Version) -> Result<Manifests, Error> {
        let scratch = Scratch::new("manifests")?;
        let path = scratch.0.join("kustomization.yaml");
        let written = std::fs::write(&path, self.kustomization(&scratch.0, root, version));
        written.map_err(|source| tool::Error::Scratch { path, source })?;
        let selection = Selection::Kustomization(scratch.0.clone());
        let manifests = Manifests::checked(files::read(&selection)?)?;
        manifests.images(&[PRODUCT])?;
        Ok(manifests)
    }

    /// A kustomization in the folder `here` that adds the version as a label to each object and pod template. Selectors keep their
    /// labels, because a later release could not change them.
    fn kustomization(&self, here: &Path, root: &Path, version: &Version) -> String {
        // kustomize accepts only relative paths.
        let up = here.components().skip(1).map(|_| "..").collect::<PathBuf>();
        let root = up.join(root.strip_prefix("/").unwrap_or(root));
        let folders = |names: &[&str]| names.iter().map(|name| root.join(name)).collect::<Vec<_>>();
        json!({
            "resources": folders(self.resources),
            "components": folders(self.components),
            "labels": [{
                "pairs": {"app.kubernetes.io/version": version.as_str()},
                "includeTemplates": true,
            }],
        })
        .to_string()
    }
}
