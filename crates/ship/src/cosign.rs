//! Signatures by cosign with a key, without a transparency log: a log needs access to the internet and publishes the name of each
//! file.

use crate::tool::{GoTool, scratch, write};
use anyhow::Result;
use std::path::Path;

/// The checksums of all other files of a release, in the format of `sha256sum --check`.
pub(crate) const CHECKSUMS: &str = "checksums.txt";
pub(crate) const CHECKSUMS_SIGNATURE: &str = "checksums.txt.sigstore.json";
/// cosign reads these settings from the internet, and they name a transparency log.
const OFFLINE: [&str; 3] = ["--tlog-upload=false", "--use-signing-config=false", "--yes"];
/// There is no entry in a transparency log that a verification could check.
const WITHOUT_LOG: [&str; 1] = ["--insecure-ignore-tlog=true"];
const SLSA: &str = "--type=slsaprovenance1";

/// cosign with a key: a private one for signatures, a public one for checks.
#[derive(Debug)]
pub(crate) struct Cosign {
    program: GoTool,
    key: String,
    insecure: String,
}

impl Cosign {
    pub(crate) fn new(root: &Path, key: &Path, insecure: bool) -> Result<Self> {
        Ok(Self {
            program: GoTool::built(root, "cosign")?,
            key: format!("--key={}", key.display()),
            insecure: format!("--allow-insecure-registry={insecure}"),
        })
    }

    fn run(&self, arguments: &[&str], more: &[&str]) -> Result<()> {
        self.program
            .run(&[arguments, &[&self.key], more].concat())
            .map(drop)
    }

    fn of_files(&self, verb: &str, folder: &Path, more: &[&str]) -> Result<()> {
        let file = folder.join(CHECKSUMS).display().to_string();
        let bundle = format!("--bundle={}", folder.join(CHECKSUMS_SIGNATURE).display());
        self.run(&[verb, &file, &bundle], more)
    }

    /// Signs the checksums, which cover all other files.
    pub(crate) fn sign_files(&self, folder: &Path) -> Result<()> {
        self.of_files("sign-blob", folder, &OFFLINE)
    }

    /// Checks the signature of the checksums.
    pub(crate) fn verify_files(&self, folder: &Path) -> Result<()> {
        self.of_files("verify-blob", folder, &WITHOUT_LOG)
    }

    /// Signs a pushed image or chart.
    pub(crate) fn sign(&self, reference: &str) -> Result<()> {
        self.run(&["sign", "--recursive", reference, &self.insecure], &OFFLINE)
    }

    /// Attaches a SLSA provenance to a pushed image. cosign adds the statement around the predicate.
    pub(crate) fn attest(&self, reference: &str, predicate: &str) -> Result<()> {
        let scratch = scratch()?;
        let file = scratch.path().join("predicate.json");
        write(&file, predicate.as_bytes())?;
        let predicate = format!("--predicate={}", file.display());
        self.run(&["attest", SLSA, &predicate, reference, &self.insecure], &OFFLINE)
    }

    /// Checks the signature of an image or a chart in its registry.
    pub(crate) fn verify(&self, reference: &str) -> Result<()> {
        self.run(&["verify", reference, &self.insecure], &WITHOUT_LOG)
    }

    /// Checks the provenance of an image in its registry.
    pub(crate) fn verify_provenance(&self, reference: &str) -> Result<()> {
        self.run(
            &["verify-attestation", SLSA, reference, &self.insecure],
            &WITHOUT_LOG,
        )
    }
}
