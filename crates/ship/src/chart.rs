//! The Helm chart: the folder chart/, and the objects of each variant. The templates of the chart read these objects and change them
//! by the values, so that the chart repeats nothing of config/.

use crate::image::layer::{Entry, pack_files};
use crate::release::Version;
use crate::variant::{self, Variant, WITH_POLICIES, WITH_WEBHOOK};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// The files of the folder chart/.
const SOURCES: [&str; 9] = [
    "Chart.yaml",
    "README.md",
    "values.schema.json",
    "values.yaml",
    "templates/NOTES.txt",
    "templates/_changes.tpl",
    "templates/_check.tpl",
    "templates/_files.tpl",
    "templates/objects.yaml",
];
/// The files of the folder objects/, with the names that the templates use.
const OBJECTS: [(&str, Variant); 9] = [
    ("policies", WITH_POLICIES),
    ("managed", WITH_WEBHOOK),
    ("cert-manager", Variant::base(&["certs/cert-manager"])),
    ("external", Variant::base(&["certs/external"])),
    ("guardrails", Variant::addition(&["config/components/guardrails"])),
    ("monitoring", Variant::addition(&["config/components/monitoring"])),
    (
        "release-all",
        Variant::addition(&["config/components/release-all"]),
    ),
    (
        "reserved-label",
        Variant::addition(&["config/components/reserved-label"]),
    ),
    ("warm-nodes", Variant::addition(&["config/components/warm-nodes"])),
];
/// What the source of the chart has in place of the image and the version.
const IMAGE: &str = "ko://pod-affinity";
const VERSION: &str = "0.0.0";

/// The chart cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{} cannot be read ({source})", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} cannot be written ({source}): choose another path with --out", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("the archive of the chart cannot be written: {0}")]
    Archive(io::Error),
    #[error(transparent)]
    Variant(#[from] variant::Error),
}

/// The files of a chart.
#[derive(Clone, Debug)]
pub(crate) struct Chart(BTreeMap<String, String>);

/// The name of the archive, as `helm package` chooses it.
pub(crate) fn file_name(version: &Version) -> String {
    format!("pod-affinity-{}.tgz", version.plain())
}

/// The version in the name of an archive.
pub(crate) fn version_of(name: &str) -> Option<&str> {
    name.strip_prefix("pod-affinity-")?.strip_suffix(".tgz")
}

impl Chart {
    /// The chart of this version, which installs this image.
    pub(crate) fn new(root: &Path, version: &Version, image: &str) -> Result<Self, Error> {
        let mut files = BTreeMap::new();
        for name in SOURCES {
            let path = root.join("chart").join(name);
            let text = std::fs::read_to_string(&path).map_err(|source| Error::Read { path, source })?;
            files.insert(name.to_owned(), text);
        }
        for name in ["Chart.yaml", "README.md", "values.yaml"] {
            files.entry(name.to_owned()).and_modify(|text| {
                *text = text.replace(IMAGE, image).replace(VERSION, version.plain());
            });
        }
        for (name, variant) in OBJECTS {
            let objects = variant.rendered(root, version)?.joined();
            files.insert(format!("objects/{name}.yaml"), objects);
        }
        Ok(Self(files))
    }

    /// Adds lines to Chart.yaml.
    pub(crate) fn describe(&mut self, lines: &str) {
        self.0.entry("Chart.yaml".to_owned()).or_default().push_str(lines);
    }

    /// The archive, with this time for all files.
    pub(crate) fn packed(&self, time: Timestamp) -> Result<Vec<u8>, Error> {
        let named = self
            .0
            .iter()
            .map(|(name, text)| (format!("pod-affinity/{name}"), text));
        let named: Vec<_> = named.collect();
        let entries = named.iter().map(|(path, text)| Entry {
            path,
            mode: 0o644,
            content: text.as_bytes(),
        });
        pack_files(&entries.collect::<Vec<_>>(), time).map_err(Error::Archive)
    }
}

#[cfg(test)]
mod tests;
