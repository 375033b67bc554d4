//! The serving certificate of the webhook and the CA that signs it: when each is renewed, and how API servers trust a new CA
//! before the webhook serves a certificate of this CA.
//!
//! This file has the stored certificates and the decisions: no clock, no IO, no new keys. Only [`keeper`] reads and writes, and only the
//! leader runs it. [`crate::tls`] serves the certificate.
//!
//! This module is hand-written, because cert-manager is a separate controller, which users may install instead
//! (`--certificates=external`), and no crate renews the certificate of a webhook together with its `caBundle`.

pub mod keeper;
pub mod publish;
pub mod x509;

use crate::install;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use std::collections::BTreeMap;
use std::fmt;
use strum::Display;
use x509::Certificate;

/// Lifetime of a CA.
pub const CA_LIFE: SignedDuration = SignedDuration::from_hours(365 * 24);
/// Lifetime of a serving certificate.
pub const LEAF_LIFE: SignedDuration = SignedDuration::from_hours(30 * 24);
/// How far `NotBefore` lies in the past, so that an API server whose clock is behind accepts a new certificate.
pub const BACK_DATED: SignedDuration = SignedDuration::from_hours(1);

/// The DNS names of the webhook's Service. The API server verifies the first name.
pub fn service_names(namespace: &str) -> Vec<String> {
    let service = format!("{}.{namespace}.svc", install::WEBHOOK_SERVICE);
    let qualified = format!("{service}.cluster.local");
    vec![service, qualified]
}

/// Key of the CA's certificate.
pub const CA_CERTIFICATE: &str = "ca.crt";
/// Key of the CA's private key.
pub const CA_KEY: &str = "ca.key";
/// Key of all CAs that may have signed a served certificate: the current CA first.
pub const CA_BUNDLE: &str = "ca-bundle.crt";
/// Key of the serving certificate.
pub const CERTIFICATE: &str = "tls.crt";
/// Key of the serving certificate's private key.
pub const KEY: &str = "tls.key";

/// The content of the Secret, each part as PEM; a missing part is empty.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StoredCertificates {
    /// [`CA_CERTIFICATE`].
    pub ca: String,
    /// [`CA_KEY`].
    pub ca_key: String,
    /// [`CA_BUNDLE`].
    pub bundle: String,
    /// [`CERTIFICATE`].
    pub leaf: String,
    /// [`KEY`].
    pub leaf_key: String,
}

impl StoredCertificates {
    /// Reads a Secret. Bytes that are not UTF-8 count as missing, because PEM is text.
    pub fn from_secret(secret: &Secret) -> Self {
        let text = |key: &str| {
            secret
                .data
                .as_ref()
                .and_then(|data| text(data, key))
                .unwrap_or_default()
        };
        Self {
            ca: text(CA_CERTIFICATE),
            ca_key: text(CA_KEY),
            bundle: text(CA_BUNDLE),
            leaf: text(CERTIFICATE),
            leaf_key: text(KEY),
        }
    }

    /// The Secret's `data`. Other keys are dropped.
    pub fn into_data(self) -> BTreeMap<String, ByteString> {
        let Self {
            ca,
            ca_key,
            bundle,
            leaf,
            leaf_key,
        } = self;
        [
            (CA_CERTIFICATE, ca),
            (CA_KEY, ca_key),
            (CA_BUNDLE, bundle),
            (CERTIFICATE, leaf),
            (KEY, leaf_key),
        ]
        .into_iter()
        .filter(|(_, pem)| !pem.is_empty())
        .map(|(key, pem)| (key.to_owned(), ByteString(pem.into_bytes())))
        .collect()
    }
}

/// Shows the length of each part and hides the content.
impl fmt::Debug for StoredCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredCertificates")
            .field("ca", &self.ca.len())
            .field("ca_key", &self.ca_key.len())
            .field("bundle", &self.bundle.len())
            .field("leaf", &self.leaf.len())
            .field("leaf_key", &self.leaf_key.len())
            .finish()
    }
}

fn text(data: &BTreeMap<String, ByteString>, key: &str) -> Option<String> {
    String::from_utf8(data.get(key)?.0.clone()).ok()
}

/// The part of the stored certificates to renew next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// No change is needed.
    NotNeeded,
    /// The stored bundle differs from the bundle of the stored CAs.
    Bundle,
    /// The current CA issues a new serving certificate.
    Leaf(RenewalReason),
    /// A new CA is needed. The serving certificate stays until API servers trust the new CA.
    Ca(RenewalReason),
}

/// The reason why a certificate is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum RenewalReason {
    /// The Secret has no certificate.
    #[strum(to_string = "is missing")]
    Missing,
    /// The certificate cannot be parsed, or is of the wrong kind.
    #[strum(to_string = "cannot be read")]
    Corrupt,
    /// The private key is missing or belongs to another certificate.
    #[strum(to_string = "does not belong to the stored private key")]
    KeyMismatch,
    /// The validity starts in the future: the clock was ahead when the certificate was issued.
    #[strum(to_string = "is not valid yet")]
    NotYetValid,
    /// The certificate has expired.
    #[strum(to_string = "has expired")]
    Expired,
    /// Two thirds of the lifetime are over.
    #[strum(to_string = "is in the last third of its lifetime")]
    Due,
    /// An earlier CA, which API servers still trust, signed the certificate.
    #[strum(to_string = "was signed by an earlier CA")]
    EarlierCa,
    /// No stored CA signed the certificate.
    #[strum(to_string = "was not signed by any stored CA")]
    Foreign,
    /// The certificate lacks DNS names of the Service.
    #[strum(to_string = "does not name the Service's DNS names")]
    WrongNames,
}

/// Checks the CA first, because a serving certificate is only valid with a valid CA.
pub fn decide(stored: &StoredCertificates, names: &[String], now: Timestamp) -> Renewal {
    match ca(stored, now) {
        Err(why) => Renewal::Ca(why),
        Ok(_) if stored.bundle != wanted_bundle(stored, now) => Renewal::Bundle,
        Ok(ca) => match leaf(stored, &ca, names, now) {
            Err(why) => Renewal::Leaf(why),
            Ok(()) => Renewal::NotNeeded,
        },
    }
}

/// The bundle of the stored CAs at `now`.
pub fn wanted_bundle(stored: &StoredCertificates, now: Timestamp) -> String {
    bundle(&stored.ca, &[&stored.bundle], now)
}

/// Whether a replica may serve the stored leaf: a trusted CA signed the leaf, or an intermediate CA that is stored with the leaf, and
/// the leaf has the right names.
///
/// Accepts more than [`decide`]: a leaf that is due for renewal or that an earlier CA signed can still be served, and the API
/// server's clock decides whether a leaf is valid yet.
pub fn can_serve(stored: &StoredCertificates, names: &[String], now: Timestamp) -> Result<(), RenewalReason> {
    let leaf = unexpired(&stored.leaf, &stored.leaf_key, now)?;
    // A CA of the user may be the second certificate of `ca.crt`.
    let trusted = [
        Certificate::all(&wanted_bundle(stored, now)),
        Certificate::all(&stored.ca),
    ]
    .concat();
    ensure(
        leaf.is_trusted_by(&trusted, &Certificate::all(&stored.leaf)),
        RenewalReason::Foreign,
    )?;
    named(&leaf, names)
}

fn ca(stored: &StoredCertificates, now: Timestamp) -> Result<Certificate, RenewalReason> {
    let ca = valid(&stored.ca, &stored.ca_key, now)?;
    ensure(ca.is_ca, RenewalReason::Corrupt)?;
    fresh(&ca, now).map(|()| ca)
}

fn leaf(
    stored: &StoredCertificates,
    ca: &Certificate,
    names: &[String],
    now: Timestamp,
) -> Result<(), RenewalReason> {
    let leaf = valid(&stored.leaf, &stored.leaf_key, now)?;
    if !leaf.is_signed_by(ca) {
        let is_known = leaf.is_trusted_by(&Certificate::all(&stored.bundle), &[]);
        ensure(is_known, RenewalReason::Foreign)?;
        return Err(RenewalReason::EarlierCa);
    }
    named(&leaf, names)?;
    fresh(&leaf, now)
}

fn valid(certificate: &str, key: &str, now: Timestamp) -> Result<Certificate, RenewalReason> {
    let certificate = unexpired(certificate, key, now)?;
    ensure(now >= certificate.not_before, RenewalReason::NotYetValid).map(|()| certificate)
}

fn unexpired(certificate: &str, key: &str, now: Timestamp) -> Result<Certificate, RenewalReason> {
    ensure(!certificate.is_empty(), RenewalReason::Missing)?;
    let certificate = Certificate::first(certificate).ok_or(RenewalReason::Corrupt)?;
    ensure(certificate.has_key(key), RenewalReason::KeyMismatch)?;
    ensure(!certificate.has_expired_at(now), RenewalReason::Expired).map(|()| certificate)
}

fn fresh(certificate: &Certificate, now: Timestamp) -> Result<(), RenewalReason> {
    ensure(now < certificate.renewal(), RenewalReason::Due)
}

fn named(leaf: &Certificate, names: &[String]) -> Result<(), RenewalReason> {
    ensure(leaf.covers(names), RenewalReason::WrongNames)
}

fn ensure(holds: bool, otherwise: RenewalReason) -> Result<(), RenewalReason> {
    holds.then_some(()).ok_or(otherwise)
}

/// Maximum number of earlier CAs. The oldest CAs are dropped first, so that the bundle stays small after many repairs.
const EARLIER_AT_MOST: usize = 3;

/// The CAs that API servers trust, as PEM: `current` first, then the CAs in `earlier` that have not expired, without duplicates.
///
/// A replica may still serve a certificate of an earlier CA. A CA that is not valid yet also stays: such a CA is harmless, and after a
/// jump of this machine's clock the CA may be valid for all other machines.
fn bundle(current: &str, earlier: &[&str], now: Timestamp) -> String {
    let mut trusted: Vec<Certificate> = Certificate::first(current).into_iter().collect();
    let kept = earlier.iter().flat_map(|pem| Certificate::all(pem));
    for ca in kept.filter(|ca| ca.is_ca && !ca.has_expired_at(now)) {
        if !trusted.contains(&ca) {
            trusted.push(ca);
        }
    }
    trusted.truncate(1 + EARLIER_AT_MOST);
    trusted.iter().map(Certificate::pem).collect()
}

#[cfg(test)]
pub(crate) mod tests;
