//! Parses the output of `cargo tree`, which has one package per line with its depth in front. `cargo tree` shows the
//! features that are enabled for this binary; `cargo metadata` includes the features of tests and tools.

use super::Error;
use std::collections::{BTreeMap, BTreeSet};

/// Package and license, and no field that may contain a bar.
pub(super) const FORMAT: &str = "{p}|{l}";

/// The name and version of a package.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id {
    pub(super) name: String,
    pub(super) version: String,
}

/// The metadata of a package.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Package {
    /// The license as an SPDX expression.
    pub(super) license: Option<String>,
    pub(super) depends_on: BTreeSet<Id>,
}

/// Packages and their dependencies; the first package is the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packages {
    pub(super) root: Id,
    pub(super) all: BTreeMap<Id, Package>,
}

struct Line {
    depth: usize,
    id: Id,
    license: Option<String>,
}

/// Parses the whole output.
pub(super) fn parse(output: &str) -> Result<Packages, Error> {
    let mut all: BTreeMap<Id, Package> = BTreeMap::new();
    let mut path: Vec<Id> = Vec::new();
    for text in output.lines().filter(|line| !line.is_empty()) {
        let Line { depth, id, license } = line(text).ok_or_else(|| Error::Line(text.to_owned()))?;
        path.truncate(depth);
        if let Some(parent) = path.last().and_then(|parent| all.get_mut(parent)) {
            parent.depends_on.insert(id.clone());
        }
        all.entry(id.clone()).or_default().license = license;
        path.push(id);
    }
    let root = path
        .into_iter()
        .next()
        .ok_or_else(|| Error::Line(String::new()))?;
    Ok(Packages { root, all })
}

/// Parses a line such as `2serde v1.0.1 (/path)|MIT/Apache-2.0 (*)`. `(*)` means that an earlier line has the package's own
/// tree.
fn line(text: &str) -> Option<Line> {
    let text = text.strip_suffix(" (*)").unwrap_or(text);
    let (package, license) = text.split_once('|')?;
    let digits = package.find(|c: char| !c.is_ascii_digit())?;
    let (depth, package) = package.split_at(digits);
    let mut words = package.split(' ');
    let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
    Some(Line {
        depth: depth.parse().ok()?,
        id: Id {
            name: name.to_owned(),
            version: version.to_owned(),
        },
        license: Some(expression(license)).filter(|license| !license.is_empty()),
    })
}

/// Converts `MIT/Apache-2.0`, which Cargo formerly used for a choice.
fn expression(license: &str) -> String {
    license.split('/').map(str::trim).collect::<Vec<_>>().join(" OR ")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) const OUTPUT: &str = "0pod-affinity v0.1.0 (/work)|Apache-2.0\n\
        1anyhow v1.0.104|MIT OR Apache-2.0\n\
        1placement v0.1.0 (/work/crates/placement)|Apache-2.0\n\
        2old v0.3.0|MIT/Apache-2.0\n\
        3unlicensed v1.0.0|\n\
        2anyhow v1.0.104|MIT OR Apache-2.0 (*)\n\
        1old v0.3.0|MIT/Apache-2.0 (*)\n";

    pub(in super::super) fn id(name: &str, version: &str) -> Id {
        Id {
            name: name.into(),
            version: version.into(),
        }
    }

    #[test]
    fn depths_become_dependencies() {
        let packages = parse(OUTPUT).unwrap();
        assert_eq!(packages.root, id("pod-affinity", "0.1.0"));
        let of = |id: &Id| {
            let names = packages.all[id].depends_on.iter().map(|id| id.name.as_str());
            names.collect::<Vec<_>>()
        };
        assert_eq!(of(&packages.root), ["anyhow", "old", "placement"]);
        assert_eq!(of(&id("placement", "0.1.0")), ["anyhow", "old"]);
        assert_eq!(of(&id("old", "0.3.0")), ["unlicensed"]);
    }

    #[test]
    fn licenses_are_written_as_spdx_writes_them() {
        let packages = parse(OUTPUT).unwrap();
        assert_eq!(
            packages.all[&id("old", "0.3.0")].license.as_deref(),
            Some("MIT OR Apache-2.0")
        );
        assert_eq!(packages.all[&id("unlicensed", "1.0.0")].license, None);
    }

    #[test]
    fn invalid_output_is_an_error() {
        for wrong in ["", "hello", "0hello|MIT", "x v1|MIT"] {
            assert!(matches!(parse(wrong), Err(Error::Line(_))), "{wrong}");
        }
    }
}
