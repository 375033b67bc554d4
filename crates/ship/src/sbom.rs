//! The bill of materials of a binary in SPDX, from cargo's dependency tree. Build scripts and procedural macros run only
//! at compile time, are not in the binary, and are not listed. Tools that scan Cargo.lock list them, and the dependencies of tests.

use crate::compile::{Program, Rustc, cargo};
use crate::source::Source;
use crate::tool::printed;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::Command;

const UNKNOWN: &str = "NOASSERTION";
const SUBJECT: &str = "SPDXRef-Subject";

/// The image or the archive that the bill describes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) program: Program,
    /// The Rust target.
    pub(crate) target: &'a str,
    /// The SHA-256 of the image or the archive, in hexadecimal.
    pub(crate) sha256: &'a str,
    /// The version of glibc, if it is linked in statically.
    pub(crate) glibc: Option<&'a str>,
}

/// Writes the bill of materials.
pub(crate) fn spdx(source: &Source, rustc: &Rustc, subject: &Subject<'_>) -> Result<String> {
    let (package_name, _) = subject.program.names();
    let mut tree = Command::new(cargo());
    tree.args("tree --locked --edges normal,no-proc-macro --prefix none --format {p}|{l}".split(' '))
        .args(["--package", package_name, "--target", subject.target])
        .current_dir(&source.root);
    let mut packages = vec![package("rust-std", &rustc.release, "MIT OR Apache-2.0")];
    let glibc = |version| package("glibc", version, "LGPL-2.1-or-later");
    packages.extend(subject.glibc.map(glibc));
    packages.extend(crates(&printed(&mut tree, "install Rust with rustup")?)?);
    Ok(format!("{:#}\n", document(source, subject, packages)))
}

/// The packages in lines such as `serde v1.0.1 (/path)|MIT/Apache-2.0 (*)`.
fn crates(tree: &str) -> Result<Vec<Value>> {
    let lines: BTreeSet<_> = tree.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    let lines = lines.into_iter().filter(|line| !line.is_empty());
    let known =
        |line| from_line(line).with_context(|| format!("cargo tree prints the unknown line '{line}'"));
    lines.map(known).collect()
}

fn from_line(line: &str) -> Option<Value> {
    let (id, license) = line.split_once('|')?;
    let mut words = id.split(' ');
    let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
    // Cargo formerly used a slash for a choice.
    let license: Vec<_> = license.split('/').map(str::trim).collect();
    let mut package = package(name, version, &license.join(" OR "));
    package["externalRefs"] = json!([{
        "referenceCategory": "PACKAGE-MANAGER",
        "referenceType": "purl",
        "referenceLocator": format!("pkg:cargo/{name}@{version}"),
    }]);
    Some(package)
}

fn document(source: &Source, subject: &Subject<'_>, mut packages: Vec<Value>) -> Value {
    let (_, binary) = subject.program.names();
    let name = format!("{binary}-{}", source.version);
    let contained = packages
        .iter()
        .map(|package| related(SUBJECT, "CONTAINS", &package["SPDXID"]));
    let described = related("SPDXRef-DOCUMENT", "DESCRIBES", &json!(SUBJECT));
    let relationships: Vec<_> = [described].into_iter().chain(contained).collect();
    let mut whole = package(binary, &source.version, &source.license);
    whole["SPDXID"] = json!(SUBJECT);
    whole["checksums"] = json!([{"algorithm": "SHA256", "checksumValue": subject.sha256}]);
    packages.insert(0, whole);
    json!({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": format!("https://spdx.org/spdxdocs/{name}-{}", subject.sha256),
        "creationInfo": {
            "created": source.commit.time.to_string(),
            "creators": [concat!("Tool: cargo-ship-", env!("CARGO_PKG_VERSION"))],
        },
        "packages": packages,
        "relationships": relationships,
    })
}

fn package(name: &str, version: &str, license: &str) -> Value {
    let forbidden = |c: char| !c.is_ascii_alphanumeric() && c != '.';
    json!({
        "SPDXID": format!("SPDXRef-{name}-{version}").replace(forbidden, "-"),
        "name": name,
        "versionInfo": version,
        "downloadLocation": UNKNOWN,
        "filesAnalyzed": false,
        "licenseDeclared": if license.is_empty() { UNKNOWN } else { license },
    })
}

fn related(from: &str, how: &str, to: &Value) -> Value {
    json!({"spdxElementId": from, "relationshipType": how, "relatedSpdxElement": to})
}

/// The version of glibc in a static binary, from the text that glibc contains for its own version output.
pub(crate) fn glibc(binary: &[u8]) -> Option<String> {
    const PREFIX: &[u8] = b"stable release version ";
    let start = binary.windows(PREFIX.len()).position(|window| window == PREFIX)? + PREFIX.len();
    let of_version = |byte: &&u8| byte.is_ascii_digit() || **byte == b'.';
    let version: Vec<u8> = binary[start..].iter().take_while(of_version).copied().collect();
    let version = String::from_utf8(version).ok()?;
    Some(version.trim_end_matches('.').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::tests::source;

    const TREE: &str = "pod-affinity v0.1.0 (/checkout)|Apache-2.0\nanyhow v1.0.104|MIT OR Apache-2.0\nold_c+d v0.3.0|MIT/Apache-2.0\n\
        unlicensed v1.0.0|\nanyhow v1.0.104|MIT OR Apache-2.0 (*)\n";

    fn bill() -> Value {
        let subject = Subject {
            program: Program::Image,
            target: "x86_64-unknown-linux-gnu",
            sha256: "abc",
            glibc: None,
        };
        document(&source(None), &subject, crates(TREE).unwrap())
    }

    fn package(name: &str) -> Value {
        let bill = bill();
        let mut packages = bill["packages"].as_array().unwrap().iter().skip(1);
        packages.find(|package| package["name"] == name).cloned().unwrap()
    }

    #[test]
    fn the_bill_describes_the_image_by_its_digest() {
        let bill = bill();
        assert_eq!(bill["relationships"][0]["relatedSpdxElement"], SUBJECT);
        assert_eq!(bill["packages"][0]["checksums"][0]["checksumValue"], "abc");
        assert_eq!(bill["packages"].as_array().unwrap().len(), 5);
    }

    #[test]
    fn a_crate_has_version_license_and_locator() {
        let anyhow = package("anyhow");
        assert_eq!(anyhow["versionInfo"], "1.0.104");
        assert_eq!(anyhow["licenseDeclared"], "MIT OR Apache-2.0");
        assert_eq!(
            anyhow["externalRefs"][0]["referenceLocator"],
            "pkg:cargo/anyhow@1.0.104"
        );
        assert_eq!(package("old_c+d")["licenseDeclared"], "MIT OR Apache-2.0");
        assert_eq!(package("unlicensed")["licenseDeclared"], UNKNOWN);
    }

    #[test]
    fn the_subject_contains_every_package_and_ids_have_the_characters_of_spdx() {
        let bill = bill();
        let id = |package: &Value| package["SPDXID"].as_str().unwrap().to_owned();
        let packages: BTreeSet<_> = bill["packages"].as_array().unwrap().iter().map(id).collect();
        let related = bill["relationships"].as_array().unwrap().iter();
        let related: BTreeSet<_> = related
            .map(|related| related["relatedSpdxElement"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(packages, related);
        assert!(packages.contains("SPDXRef-old-c-d-0.3.0"), "{packages:?}");
    }

    #[test]
    fn an_unknown_line_of_cargo_is_an_error() {
        for wrong in ["hello", "hello|MIT", "x 1|MIT"] {
            assert!(crates(wrong).unwrap_err().to_string().contains(wrong), "{wrong}");
        }
    }

    #[test]
    fn the_version_of_glibc_is_read_from_its_own_text() {
        let words = b"\0GNU C Library (Debian) stable release version 2.36.\nCopyright";
        assert_eq!(glibc(words).as_deref(), Some("2.36"));
        assert_eq!(glibc(b"stable"), None);
    }
}
