//! The Helm chart: the folder chart/, and the objects of each variant. The templates of the chart read these objects and change them
//! by the values, so that the chart repeats nothing of config/.

use crate::archive::{file, packed};
use crate::tool::{self, read};
use crate::values::Version;
use crate::variant::{Variant, WITH_POLICIES, WITH_WEBHOOK};
use anyhow::Result;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::path::Path;

/// The folders with the files of the chart.
const FOLDERS: [&str; 2] = ["", "templates/"];
/// The files of the folder objects/, with the names that the templates use.
const OBJECTS: [(&str, Variant); 9] = [
    ("policies", WITH_POLICIES),
    ("managed", WITH_WEBHOOK),
    ("cert-manager", Variant(&["config"], &["certs/cert-manager"])),
    ("external", Variant(&["config"], &["certs/external"])),
    ("guardrails", Variant(&[], &["config/components/guardrails"])),
    ("monitoring", Variant(&[], &["config/components/monitoring"])),
    ("release-all", Variant(&[], &["config/components/release-all"])),
    (
        "reserved-label",
        Variant(&[], &["config/components/reserved-label"]),
    ),
    ("warm-nodes", Variant(&[], &["config/components/warm-nodes"])),
];
/// What the source of the chart has in place of the image and the version.
const IMAGE: &str = "ko://pod-affinity";
const VERSION: &str = "0.0.0";

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
    pub(crate) fn new(root: &Path, version: &Version, image: &str) -> Result<Self> {
        let mut files = BTreeMap::new();
        for folder in FOLDERS {
            for path in tool::files(&root.join("chart").join(folder))? {
                let name = path.file_name().unwrap_or_default().display();
                files.insert(format!("{folder}{name}"), read(&path)?);
            }
        }
        for name in ["Chart.yaml", "README.md", "values.yaml"] {
            files.entry(name.to_owned()).and_modify(|text| {
                *text = text.replace(IMAGE, image).replace(VERSION, version.plain());
            });
        }
        for (name, variant) in OBJECTS {
            let objects = variant.rendered(root, version)?;
            files.insert(format!("objects/{name}.yaml"), objects.0);
        }
        Ok(Self(files))
    }

    /// Adds lines to Chart.yaml.
    pub(crate) fn describe(&mut self, lines: &str) {
        self.0.entry("Chart.yaml".to_owned()).or_default().push_str(lines);
    }

    /// The archive, with this time for all files.
    pub(crate) fn packed(self, time: Timestamp) -> Result<Vec<u8>> {
        let files = self.0.into_iter();
        let files = files.map(|(name, text)| file(format!("pod-affinity/{name}"), text));
        packed(&files.collect::<Vec<_>>(), time)
    }
}

#[cfg(test)]
mod tests;
