//! Documents about a release for machines: SLSA provenance, an assessment of vulnerabilities, and security insights. Pure.

use crate::args::ReleaseArgs;
use crate::image::hex;
use crate::product::Source;
use crate::workspace::PRODUCT;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The inputs of the documents.
pub(super) struct Facts<'a> {
    pub(super) args: &'a ReleaseArgs,
    pub(super) source: &'a Source,
    pub(super) rust: &'a str,
    /// The image reference by digest.
    pub(super) reference: &'a str,
    /// The content of Cargo.lock.
    pub(super) lock: &'a str,
}

impl Facts<'_> {
    /// An in-toto statement with SLSA provenance. SLSA build level 1 promises no protection against the owner of the
    /// machine that builds.
    pub(super) fn provenance(&self, digests: &BTreeMap<String, String>) -> Value {
        let (image, digest) = self.reference.split_once("@sha256:").unwrap_or_default();
        let mut subjects = vec![json!({"name": image, "digest": {"sha256": digest}})];
        let files = digests.iter();
        subjects.extend(files.map(|(name, digest)| json!({"name": name, "digest": {"sha256": digest}})));
        let platforms = self.args.platforms.iter().map(ToString::to_string);
        let given = self.args.plugins.iter().map(ToString::to_string);
        json!({
            "_type": "https://in-toto.io/Statement/v1",
            "subject": subjects,
            "predicateType": "https://slsa.dev/provenance/v1",
            "predicate": {
                "buildDefinition": {
                    "buildType": format!("{}/docs/releasing.md", self.args.source_repository),
                    "externalParameters": {
                        "command": "cargo ship release",
                        "version": self.args.version.as_str(),
                        "platforms": platforms.collect::<Vec<_>>(),
                        "libc": self.args.libc.to_string(),
                        "plugin": !self.args.without_plugin,
                        "pluginCompiledElsewhere": given.collect::<Vec<_>>(),
                    },
                    "internalParameters": {"SOURCE_DATE_EPOCH": self.source.provenance.time.as_second()},
                    "resolvedDependencies": self.dependencies(),
                },
                "runDetails": {"builder": {
                    "id": format!("{}/docs/releasing.md#the-builder", self.args.source_repository),
                    "version": {"rust": self.rust, "cargo-ship": env!("CARGO_PKG_VERSION")},
                }},
            },
        })
    }

    fn dependencies(&self) -> Vec<Value> {
        let uri = format!("git+{}", self.args.source_repository);
        let commit = self.source.provenance.revision.as_ref();
        let source = commit.map(|commit| json!({"uri": uri, "digest": {"gitCommit": commit}}));
        let lock = json!({"name": "Cargo.lock", "digest": {"sha256": hex(self.lock.as_bytes())}});
        source.into_iter().chain([lock]).collect()
    }

    /// An `OpenVEX` document with the assessments for the image. `None` without assessments, because the format requires one.
    pub(super) fn vex(&self, assessments: &str) -> Result<Option<Value>, serde_json::Error> {
        let mut statements: Vec<Map<String, Value>> = serde_json::from_str(assessments)?;
        if statements.is_empty() {
            return Ok(None);
        }
        let (_, digest) = self.reference.split_once('@').unwrap_or_default();
        let product = format!("pkg:oci/{PRODUCT}@{}", digest.replace(':', "%3A"));
        for statement in &mut statements {
            statement.insert("products".to_owned(), json!([{"@id": product}]));
        }
        let author = self.args.maintainers.first();
        Ok(Some(json!({
            "@context": "https://openvex.dev/ns/v0.2.0",
            "@id": format!("{}/openvex.json#{digest}", self.args.downloads),
            "author": author.map(|person| format!("{} <{}>", person.name, person.mail)),
            "timestamp": self.source.provenance.time.to_string(),
            "version": 1,
            "statements": statements,
        })))
    }

    /// Security insights, in version 2.0.0 of the format.
    pub(super) fn security_insights(&self) -> String {
        let ReleaseArgs {
            homepage,
            source_repository,
            security_contact,
            ..
        } = self.args;
        let date = self.source.provenance.time.strftime("%Y-%m-%d");
        let license = self.source.workspace.license.as_deref().unwrap_or("unknown");
        let people = self.people();
        format!(
            r#"header:
  schema-version: 2.0.0
  last-updated: "{date}"
  last-reviewed: "{date}"
  url: "{source_repository}/SECURITY-INSIGHTS.yml"
project:
  name: pod-affinity
  homepage: "{homepage}"
  administrators:
{people}  repositories:
    - name: pod-affinity
      url: "{source_repository}"
      comment: The source of all files of the release.
  vulnerability-reporting:
    reports-accepted: true
    bug-bounty-available: false
    comment: "Report in private to {security_contact}"
repository:
  url: "{source_repository}"
  status: active
  accepts-change-request: true
  accepts-automated-change-request: false
  core-team:
{people}  license:
    url: "{source_repository}/LICENSE"
    expression: "{license}"
  security:
    assessments:
      self:
        comment: "SECURITY.md has the threat model and the rights of each process."
"#
        )
    }

    fn people(&self) -> String {
        let mut people = String::new();
        for (number, person) in self.args.maintainers.iter().enumerate() {
            let (name, mail, primary) = (&person.name, &person.mail, number == 0);
            // Writing to a string cannot fail.
            let _ = writeln!(
                people,
                "    - name: \"{name}\"\n      email: \"{mail}\"\n      primary: {primary}"
            );
        }
        people
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use crate::product::tests::source;
    use clap::Parser;

    const ASSESSMENTS: &str = r#"[{"vulnerability": {"name": "CVE-1"}, "status": "under_investigation"}]"#;

    struct Documents {
        provenance: Value,
        vex: Value,
        insights: Value,
    }

    fn documents() -> Documents {
        let line = "ship;release;v1.2.3;--repo=ghcr.io/me;--downloads=https://dl.example/v1.2.3;--homepage=https://example.com;\
            --source-repository=https://git.example/x;--security-contact=mailto:s@example.com;\
            --maintainer=Ann <ann@example.com>;--maintainer=Ben <ben@example.com>";
        let Command::Release(args) = Args::parse_from(line.split(';')).command else {
            panic!()
        };
        let source = source(Some("abc"));
        let facts = Facts {
            args: &args,
            source: &source,
            rust: "1.95.0",
            reference: "ghcr.io/me/pod-affinity@sha256:0123",
            lock: "",
        };
        Documents {
            provenance: facts.provenance(&[("release.yaml".to_owned(), "45".to_owned())].into()),
            vex: facts.vex(ASSESSMENTS).unwrap().unwrap(),
            insights: serde_yaml::from_str(&facts.security_insights()).unwrap(),
        }
    }

    #[test]
    fn the_provenance_names_each_file_the_image_and_the_commit() {
        let provenance = documents().provenance;
        let subjects = &provenance["subject"];
        assert_eq!(subjects[0]["name"], "ghcr.io/me/pod-affinity");
        assert_eq!(subjects[0]["digest"]["sha256"], "0123");
        assert_eq!(subjects[1]["name"], "release.yaml");
        let definition = &provenance["predicate"]["buildDefinition"];
        assert_eq!(
            definition["resolvedDependencies"][0]["digest"]["gitCommit"],
            "abc"
        );
        assert_eq!(definition["externalParameters"]["platforms"][1], "linux/arm64");
    }

    #[test]
    fn the_vex_document_has_the_first_maintainer_as_its_author_and_the_image_as_its_product() {
        let vex = documents().vex;
        let statement = &vex["statements"][0];
        assert_eq!(statement["vulnerability"]["name"], "CVE-1");
        assert_eq!(
            statement["products"][0]["@id"],
            "pkg:oci/pod-affinity@sha256%3A0123"
        );
        assert_eq!(vex["author"], "Ann <ann@example.com>");
        assert_eq!(vex["@id"], "https://dl.example/v1.2.3/openvex.json#sha256:0123");
    }

    #[test]
    fn security_insights_are_yaml_with_all_maintainers_and_the_contact() {
        let insights = documents().insights;
        assert_eq!(
            insights["project"]["administrators"][1]["email"],
            "ben@example.com"
        );
        assert_eq!(insights["repository"]["core-team"][0]["primary"], true);
        let reporting = &insights["project"]["vulnerability-reporting"];
        assert!(
            reporting["comment"]
                .as_str()
                .unwrap()
                .contains("mailto:s@example.com")
        );
    }
}
