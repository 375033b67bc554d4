//! Documents about a release: notes from the changelog, SLSA provenance, an assessment of vulnerabilities, and security insights.

use super::Release;
use crate::archive::sha256;
use crate::args::ReleaseArgs;
use crate::image::digest;
use crate::source::{PRODUCT, Source};
use crate::values::{Person, Version};
use anyhow::Result;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The SLSA provenance of all other files and the image.
const PROVENANCE: &str = "provenance.intoto.json";

impl Release<'_> {
    /// Adds the documents, and returns the predicate of the provenance. The provenance lists all other files, so it comes last.
    pub(super) fn add_documents(&mut self, image: &str) -> Result<String> {
        let (args, source) = (self.args, self.source.clone());
        let notes = notes(&self.read("CHANGELOG.md")?, &args.version);
        self.add("release-notes.md", notes)?;
        if let Some(vex) = vex(args, &source, image, &self.read("docs/vulnerabilities.json")?)? {
            self.add("openvex.json", format!("{vex:#}\n"))?;
        }
        self.add("SECURITY-INSIGHTS.yml", security_insights(args, &source))?;
        let lock = sha256(self.read("Cargo.lock")?.as_bytes());
        let predicate = predicate(args, &source, &self.rustc.release, &lock);
        let statement = statement(image, &self.checksums, &predicate);
        self.add(PROVENANCE, format!("{statement:#}\n"))?;
        Ok(predicate.to_string())
    }
}

/// The section of the version in the changelog, or the section of unreleased changes.
fn notes(changelog: &str, version: &Version) -> String {
    let section = |title: &str| {
        let mut sections = changelog
            .split("\n## ")
            .skip(1)
            .filter_map(|section| section.split_once('\n'));
        // A date may follow the version.
        let (_, text) = sections.find(|(head, _)| head.split_whitespace().next() == Some(title))?;
        Some(text.trim()).filter(|text| !text.is_empty())
    };
    let titles = [version.as_str(), version.plain(), "Unreleased"];
    let changes = titles.into_iter().find_map(section);
    format!("# {}\n\n{}\n", version.as_str(), changes.unwrap_or("No changes."))
}

/// An in-toto statement about the image and all other files.
fn statement(image: &str, checksums: &BTreeMap<String, String>, predicate: &Value) -> Value {
    let (name, digest) = image.split_once("@sha256:").unwrap_or_default();
    let files = checksums
        .iter()
        .map(|(name, digest)| (name.as_str(), digest.as_str()));
    let subjects = [(name, digest)].into_iter().chain(files);
    let subjects = subjects.map(|(name, digest)| json!({"name": name, "digest": {"sha256": digest}}));
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects.collect::<Vec<_>>(),
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": predicate,
    })
}

/// SLSA provenance. SLSA build level 1 promises no protection against the owner of the machine that builds.
fn predicate(args: &ReleaseArgs, source: &Source, rust: &str, lock: &str) -> Value {
    let page = format!("{}/docs/releasing.md", args.source_repository);
    let platforms: Vec<_> = args.platforms.iter().map(ToString::to_string).collect();
    let given = args.plugins.iter().map(|(platform, _)| platform.to_string());
    let commit = source.commit.revision.as_ref().map(
        |commit| json!({"uri": format!("git+{}", args.source_repository), "digest": {"gitCommit": commit}}),
    );
    let lock = json!({"name": "Cargo.lock", "digest": {"sha256": lock}});
    json!({
        "buildDefinition": {
            "buildType": page,
            "externalParameters": {
                "command": "cargo ship release",
                "version": args.version.as_str(),
                "platforms": platforms,
                "plugin": !args.without_plugin,
                "pluginCompiledElsewhere": given.collect::<Vec<_>>(),
            },
            "internalParameters": {"SOURCE_DATE_EPOCH": source.commit.time.as_second()},
            "resolvedDependencies": commit.into_iter().chain([lock]).collect::<Vec<_>>(),
        },
        "runDetails": {"builder": {
            "id": format!("{page}#the-builder"),
            "version": {"rust": rust, "cargo-ship": env!("CARGO_PKG_VERSION")},
        }},
    })
}

/// An `OpenVEX` document with the assessments for the image. `None` without assessments, because the format requires one.
fn vex(args: &ReleaseArgs, source: &Source, image: &str, assessments: &str) -> Result<Option<Value>> {
    let mut statements: Vec<Map<String, Value>> = serde_json::from_str(assessments)?;
    if statements.is_empty() {
        return Ok(None);
    }
    let digest = digest(image);
    let product = format!("pkg:oci/{PRODUCT}@{}", digest.replace(':', "%3A"));
    for statement in &mut statements {
        statement.insert("products".to_owned(), json!([{"@id": product}]));
    }
    let author = args.maintainers.first();
    Ok(Some(json!({
        "@context": "https://openvex.dev/ns/v0.2.0",
        "@id": format!("{}/openvex.json#{digest}", args.downloads),
        "author": author.map(|person| format!("{} <{}>", person.name, person.mail)),
        "timestamp": source.commit.time.to_string(),
        "version": 1,
        "statements": statements,
    })))
}

/// Security insights, in version 2.0.0 of the format. JSON is valid YAML.
fn security_insights(args: &ReleaseArgs, source: &Source) -> String {
    let person = |(number, person): (usize, &Person)| json!({"name": person.name, "email": person.mail, "primary": number == 0});
    let maintainers: Value = args.maintainers.iter().enumerate().map(person).collect();
    include_str!("security-insights.yml")
        .replace("${DATE}", &source.commit.time.strftime("%Y-%m-%d").to_string())
        .replace("${SOURCE}", &args.source_repository)
        .replace("${HOMEPAGE}", &args.homepage)
        .replace("${CONTACT}", &args.security_contact)
        .replace("${LICENSE}", &source.license)
        .replace("${MAINTAINERS}", &maintainers.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use crate::source::tests::source;
    use clap::Parser;

    const ASSESSMENTS: &str = r#"[{"vulnerability": {"name": "CVE-1"}, "status": "under_investigation"}]"#;
    const IMAGE: &str = "ghcr.io/me/pod-affinity@sha256:0123";
    const CHANGELOG: &str = "# Changelog\n\n## Unreleased\n\n- new\n\n## v1.0.0 (2026-01-01)\n\n- old\n";

    fn args() -> Box<ReleaseArgs> {
        let line = "ship;release;v1.2.3;--repo=ghcr.io/me;--downloads=https://dl.example/v1.2.3;--homepage=https://example.com;\
            --source-repository=https://git.example/x;--security-contact=mailto:s@example.com;\
            --maintainer=Ann \"A\" <ann@example.com>;--maintainer=Ben <ben@example.com>";
        match Args::parse_from(line.split(';')).command {
            Command::Release(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_provenance_names_each_file_the_image_and_the_commit() {
        let predicate = predicate(&args(), &source(Some("abc")), "1.95.0", "12");
        let statement = statement(
            IMAGE,
            &[("release.yaml".to_owned(), "45".to_owned())].into(),
            &predicate,
        );
        let subjects = &statement["subject"];
        assert_eq!(subjects[0]["name"], "ghcr.io/me/pod-affinity");
        assert_eq!(subjects[0]["digest"]["sha256"], "0123");
        assert_eq!(subjects[1]["name"], "release.yaml");
        let definition = &statement["predicate"]["buildDefinition"];
        assert_eq!(
            definition["resolvedDependencies"][0]["digest"]["gitCommit"],
            "abc"
        );
        assert_eq!(definition["externalParameters"]["platforms"][1], "linux/arm64");
    }

    #[test]
    fn the_vex_document_has_the_first_maintainer_as_its_author_and_the_image_as_its_product() {
        let vex = |assessments: &str| vex(&args(), &source(None), IMAGE, assessments).unwrap();
        assert_eq!(vex("[]"), None);
        let vex = vex(ASSESSMENTS).unwrap();
        let statement = &vex["statements"][0];
        assert_eq!(statement["vulnerability"]["name"], "CVE-1");
        assert_eq!(
            statement["products"][0]["@id"],
            "pkg:oci/pod-affinity@sha256%3A0123"
        );
        assert_eq!(vex["author"], "Ann \"A\" <ann@example.com>");
        assert_eq!(vex["@id"], "https://dl.example/v1.2.3/openvex.json#sha256:0123");
    }

    #[test]
    fn security_insights_are_yaml_with_all_maintainers_and_the_contact() {
        let insights = security_insights(&args(), &source(None));
        assert!(!insights.contains("${"), "{insights}");
        let insights: Value = serde_yaml::from_str(&insights).unwrap();
        assert_eq!(insights["project"]["administrators"][0]["name"], "Ann \"A\"");
        assert_eq!(
            insights["project"]["administrators"][1]["email"],
            "ben@example.com"
        );
        assert_eq!(insights["repository"]["core-team"][0]["primary"], true);
        let comment = &insights["project"]["vulnerability-reporting"]["comment"];
        assert!(comment.as_str().unwrap().contains("mailto:s@example.com"));
    }

    #[test]
    fn notes_are_the_section_of_the_version_or_the_unreleased_changes() {
        let notes = |version: &str| notes(CHANGELOG, &Version::parse(version).unwrap());
        assert_eq!(notes("v1.0.0"), "# v1.0.0\n\n- old\n");
        assert_eq!(notes("v1.1.0"), "# v1.1.0\n\n- new\n");
    }
}
