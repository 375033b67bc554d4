//! The objects of config/ with components, as kustomize renders them, with the version as a label.

use crate::manifest::Manifests;
use crate::tool::{scratch, write};
use crate::values::Version;
use anyhow::Result;
use serde_json::json;
use std::path::{Path, PathBuf};

/// The component of an installation with admission policies.
pub(crate) const WITH_POLICIES: Variant = Variant(&["config"], &["config/components/policies"]);
/// The installation with the webhook.
pub(crate) const WITH_WEBHOOK: Variant = Variant(&["config"], &[]);

/// Folders of resources and of components. Objects in addition to an installation have no resources.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variant(
    pub(crate) &'static [&'static str],
    pub(crate) &'static [&'static str],
);

impl Variant {
    pub(crate) fn rendered(&self, root: &Path, version: &Version) -> Result<Manifests> {
        let scratch = scratch()?;
        let folder = scratch.path().canonicalize()?;
        let kustomization = self.kustomization(&folder, root, version);
        write(&folder.join("kustomization.yaml"), kustomization.as_bytes())?;
        Manifests::rendered(&folder)
    }

    /// A kustomization in the folder `here` that adds the version as a label to each object and pod template. Selectors keep their
    /// labels, because a later release could not change them.
    fn kustomization(&self, here: &Path, root: &Path, version: &Version) -> String {
        // kustomize accepts only relative paths.
        let up = here.components().skip(1).map(|_| "..").collect::<PathBuf>();
        let root = up.join(root.strip_prefix("/").unwrap_or(root));
        let folders = |names: &[&str]| names.iter().map(|name| root.join(name)).collect::<Vec<_>>();
        json!({
            "resources": folders(self.0),
            "components": folders(self.1),
            "labels": [{
                "pairs": {"app.kubernetes.io/version": version.as_str()},
                "includeTemplates": true,
            }],
        })
        .to_string()
    }
}
