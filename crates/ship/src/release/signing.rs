//! Signatures by cosign with a key, without a transparency log: a log needs access to the internet and publishes the name of each
//! file.

use super::{CHECKSUMS, PROVENANCE, bundle_of};
use crate::tool::{Error, Scratch, Tool};
use std::io;
use std::path::Path;

/// cosign reads these settings from the internet, and they name a transparency log.
const OFFLINE: [&str; 3] = ["--tlog-upload=false", "--use-signing-config=false", "--yes"];
/// There is no entry in a transparency log that a verification could check.
const WITHOUT_LOG: &str = "--insecure-ignore-tlog=true";
const SLSA: &str = "slsaprovenance1";

/// cosign with a private key.
#[derive(Debug)]
pub(crate) struct Signer {
    cosign: Tool,
    key: String,
}

impl Signer {
    pub(crate) fn new(root: &Path, key: &Path) -> Result<Self, Error> {
        let key = key.display().to_string();
        let cosign = Tool::cosign(root)?;
        Ok(Self { cosign, key })
    }

    /// Signs the checksums, which cover all other files.
    pub(crate) fn sign_files(&self, folder: &Path) -> Result<(), Error> {
        let [file, bundle] = paths(folder, CHECKSUMS);
        let call = ["sign-blob", &file, "--key", &self.key, "--bundle", &bundle];
        self.cosign.run(&[&call[..], &OFFLINE].concat()).map(drop)
    }

    /// Signs a pushed image or chart.
    pub(crate) fn sign(&self, reference: &str, insecure: bool) -> Result<(), Error> {
        let insecure = format!("--allow-insecure-registry={insecure}");
        let sign = ["sign", "--recursive", reference, "--key", &self.key, &insecure];
        self.cosign.run(&[&sign[..], &OFFLINE].concat()).map(drop)
    }

    /// Signs the pushed index with its images, and attaches the provenance to the index.
    pub(crate) fn sign_image(&self, folder: &Path, reference: &str, insecure: bool) -> Result<(), Error> {
        self.sign(reference, insecure)?;
        let insecure = format!("--allow-insecure-registry={insecure}");
        let common = ["--key", &self.key, &insecure];
        let scratch = Scratch::new("predicate")?;
        let (statement, file) = (folder.join(PROVENANCE), scratch.0.join("predicate.json"));
        write_predicate(&statement, &file).map_err(|source| Error::Read {
            path: statement,
            source,
        })?;
        let file = file.display().to_string();
        let attest = ["attest", "--type", SLSA, "--predicate", &file, reference];
        self.cosign
            .run(&[&attest[..], &common, &OFFLINE].concat())
            .map(drop)
    }
}

/// cosign with a public key.
#[derive(Debug)]
pub(crate) struct Verifier {
    cosign: Tool,
    key: String,
}

impl Verifier {
    pub(crate) fn new(root: &Path, key: &Path) -> Result<Self, Error> {
        let key = key.display().to_string();
        let cosign = Tool::cosign(root)?;
        Ok(Self { cosign, key })
    }

    /// Checks the signature of the checksums.
    pub(crate) fn verify_files(&self, folder: &Path) -> Result<(), Error> {
        let [file, bundle] = paths(folder, CHECKSUMS);
        let call = [
            "verify-blob",
            &file,
            "--key",
            &self.key,
            "--bundle",
            &bundle,
            WITHOUT_LOG,
        ];
        self.cosign.run(&call).map(drop)
    }

    /// Checks the signature and the provenance of the image in its registry.
    pub(crate) fn verify_image(&self, reference: &str, insecure: bool) -> Result<(), Error> {
        self.verify(&["verify"], reference, insecure)?;
        self.verify(&["verify-attestation", "--type", SLSA], reference, insecure)
    }

    /// Checks the signature of the chart in its registry.
    pub(crate) fn verify_chart(&self, reference: &str, insecure: bool) -> Result<(), Error> {
        self.verify(&["verify"], reference, insecure)
    }

    fn verify(&self, verb: &[&str], reference: &str, insecure: bool) -> Result<(), Error> {
        let insecure = format!("--allow-insecure-registry={insecure}");
        let common = ["--key", &self.key, WITHOUT_LOG, &insecure, reference];
        self.cosign.run(&[verb, &common].concat()).map(drop)
    }
}

fn paths(folder: &Path, file: &str) -> [String; 2] {
    [file.to_owned(), bundle_of(file)].map(|name| folder.join(name).display().to_string())
}

/// Writes the predicate of a statement. cosign adds the statement around the predicate.
fn write_predicate(statement: &Path, to: &Path) -> io::Result<()> {
    let statement: serde_json::Value = serde_json::from_slice(&std::fs::read(statement)?)?;
    std::fs::write(to, statement["predicate"].to_string())
}
