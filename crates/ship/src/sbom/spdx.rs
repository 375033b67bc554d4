//! The bill of materials as an SPDX 2.3 document. Pure: the same image gives the same bytes.

use super::tree::{Id, Package, Packages};
use super::{Form, Subject};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const SUBJECT: &str = "SPDXRef-Image";
const UNKNOWN: &str = "NOASSERTION";

/// The document.
pub(super) fn document(
    subject: &Subject<'_>,
    packages: &Packages,
    checksums: &BTreeMap<Id, String>,
) -> Value {
    let Subject {
        package,
        version,
        digest,
        time,
        ..
    } = subject;
    let short = digest.trim_start_matches("sha256:");
    json!({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": format!("{package}-{version}"),
        "documentNamespace": format!("https://spdx.org/spdxdocs/{package}-{version}-{short}"),
        "creationInfo": {
            "created": time.to_string(),
            "creators": [concat!("Tool: cargo-ship-", env!("CARGO_PKG_VERSION"))],
        },
        "packages": described(subject, packages, checksums),
        "relationships": relationships(subject, packages),
    })
}

fn described(subject: &Subject<'_>, packages: &Packages, checksums: &BTreeMap<Id, String>) -> Vec<Value> {
    let mut described = vec![described_subject(subject)];
    described.extend(
        linked(subject)
            .iter()
            .map(|(id, license)| package(id, Some(license), None)),
    );
    let crates = packages.all.iter().map(|(id, package)| {
        let Package {
            license,
            depends_on: _,
        } = package;
        from_cargo(id, license.as_deref(), checksums.get(id))
    });
    described.extend(crates);
    described
}

fn described_subject(subject: &Subject<'_>) -> Value {
    let id = Id {
        name: subject.name(),
        version: subject.version.to_owned(),
    };
    let sha256 = subject.digest.trim_start_matches("sha256:");
    let mut described = package(&id, subject.license, Some(sha256));
    described["SPDXID"] = json!(SUBJECT);
    described["primaryPackagePurpose"] = json!(subject.form.purpose());
    if subject.form == Form::Image {
        let digest = subject.digest.replace(':', "%3A");
        described["externalRefs"] = json!([purl(&format!("pkg:oci/{}@{digest}", subject.package))]);
    }
    described
}

/// Libraries that are linked in and are not crates.
fn linked(subject: &Subject<'_>) -> Vec<(Id, &'static str)> {
    let id = |name: &str, version: &str| Id {
        name: name.to_owned(),
        version: version.to_owned(),
    };
    let mut linked = vec![(id("rust-std", subject.rust), "MIT OR Apache-2.0")];
    if let Some(libc) = subject.libc {
        let (name, version) = libc.split_once(' ').unwrap_or((libc, ""));
        let license = if name == "musl" {
            "MIT"
        } else {
            "LGPL-2.1-or-later"
        };
        linked.push((id(name, version), license));
    }
    linked
}

fn from_cargo(id: &Id, license: Option<&str>, checksum: Option<&String>) -> Value {
    let mut package = package(id, license, checksum.map(String::as_str));
    package["externalRefs"] = json!([purl(&format!("pkg:cargo/{}@{}", id.name, id.version))]);
    package
}

fn package(id: &Id, license: Option<&str>, sha256: Option<&str>) -> Value {
    let license = license.unwrap_or(UNKNOWN);
    let mut package = json!({
        "SPDXID": reference(id),
        "name": id.name,
        "downloadLocation": UNKNOWN,
        "filesAnalyzed": false,
        "licenseConcluded": UNKNOWN,
        "licenseDeclared": license,
        "copyrightText": UNKNOWN,
    });
    if !id.version.is_empty() {
        package["versionInfo"] = json!(id.version);
    }
    if let Some(sha256) = sha256 {
        package["checksums"] = json!([{"algorithm": "SHA256", "checksumValue": sha256}]);
    }
    package
}

fn purl(locator: &str) -> Value {
    json!({
        "referenceCategory": "PACKAGE-MANAGER",
        "referenceType": "purl",
        "referenceLocator": locator,
    })
}

fn relationships(subject: &Subject<'_>, packages: &Packages) -> Vec<Value> {
    let related = |from: &str, how: &str, to: &str| json!({"spdxElementId": from, "relationshipType": how, "relatedSpdxElement": to});
    let mut relationships = vec![
        related("SPDXRef-DOCUMENT", "DESCRIBES", SUBJECT),
        related(SUBJECT, "CONTAINS", &reference(&packages.root)),
    ];
    let linked = linked(subject)
        .into_iter()
        .map(|(id, _)| related(&reference(&packages.root), "STATIC_LINK", &reference(&id)));
    relationships.extend(linked);
    for (id, package) in &packages.all {
        let depends = package
            .depends_on
            .iter()
            .map(|other| related(&reference(id), "DEPENDS_ON", &reference(other)));
        relationships.extend(depends);
    }
    relationships
}

/// An SPDX id. SPDX allows letters, digits, '.' and '-'.
fn reference(id: &Id) -> String {
    let allowed = |c: char| {
        if c.is_ascii_alphanumeric() || c == '.' {
            c
        } else {
            '-'
        }
    };
    let name = format!("{}-{}", id.name, id.version);
    format!("SPDXRef-{}", name.chars().map(allowed).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sbom::tree::{
        self,
        tests::{OUTPUT, id},
    };
    use jiff::Timestamp;
    use std::collections::BTreeSet;

    fn bill() -> Value {
        let subject = Subject {
            package: "pod-affinity",
            form: Form::Image,
            version: "1.2.3",
            digest: "sha256:abc",
            license: Some("Apache-2.0"),
            time: Timestamp::UNIX_EPOCH,
            rust: "1.95.0",
            libc: Some("glibc 2.36"),
        };
        let checksums = [(id("anyhow", "1.0.104"), "5e".to_owned())].into();
        document(&subject, &tree::parse(OUTPUT).unwrap(), &checksums)
    }

    fn package(name: &str) -> Value {
        let bill = bill();
        let mut packages = bill["packages"].as_array().unwrap().iter();
        packages.find(|package| package["name"] == name).cloned().unwrap()
    }

    #[test]
    fn the_bill_is_of_the_image_by_its_digest() {
        assert_eq!(bill()["relationships"][0]["relatedSpdxElement"], SUBJECT);
        let image = package("pod-affinity (image)");
        assert_eq!(image["checksums"][0]["checksumValue"], "abc");
        assert_eq!(
            image["externalRefs"][0]["referenceLocator"],
            "pkg:oci/pod-affinity@sha256%3Aabc"
        );
    }

    #[test]
    fn a_crate_has_version_license_checksum_and_locator() {
        let anyhow = package("anyhow");
        assert_eq!(anyhow["versionInfo"], "1.0.104");
        assert_eq!(anyhow["licenseDeclared"], "MIT OR Apache-2.0");
        assert_eq!(anyhow["checksums"][0]["checksumValue"], "5e");
        assert_eq!(
            anyhow["externalRefs"][0]["referenceLocator"],
            "pkg:cargo/anyhow@1.0.104"
        );
        assert_eq!(package("unlicensed")["licenseDeclared"], UNKNOWN);
    }

    #[test]
    fn linked_libraries_that_are_not_crates_are_listed() {
        assert_eq!(package("rust-std")["versionInfo"], "1.95.0");
        assert_eq!(package("glibc")["licenseDeclared"], "LGPL-2.1-or-later");
    }

    #[test]
    fn every_relationship_is_between_listed_elements() {
        let bill = bill();
        let listed: BTreeSet<&str> = bill["packages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|package| package["SPDXID"].as_str().unwrap())
            .chain(["SPDXRef-DOCUMENT"])
            .collect();
        assert_eq!(listed.len(), bill["packages"].as_array().unwrap().len() + 1);
        for relationship in bill["relationships"].as_array().unwrap() {
            for end in ["spdxElementId", "relatedSpdxElement"] {
                assert!(
                    listed.contains(relationship[end].as_str().unwrap()),
                    "{relationship}"
                );
            }
        }
    }

    #[test]
    fn names_are_written_with_what_spdx_allows() {
        assert_eq!(reference(&id("a_b+c", "1.0.0+x")), "SPDXRef-a-b-c-1.0.0-x");
    }
}
