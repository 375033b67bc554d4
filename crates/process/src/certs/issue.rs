//! Creates CAs and serving certificates for the names and the time that the caller passes.

use super::{AUTHORITY_LIFE, BACK_DATED, LEAF_LIFE, x509::Facts};
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use thiserror::Error;
use time::OffsetDateTime;

/// The reason why a certificate could not be created.
#[derive(Debug, Error)]
pub enum Error {
    /// The crypto library reported an error.
    #[error("cannot make a certificate: {0}; this is a fault in pod-affinity, please report it")]
    Crypto(#[from] rcgen::Error),
    /// The clock shows a time that a certificate cannot contain.
    #[error("cannot make a certificate for the time {0}: set this machine's clock right")]
    Clock(Timestamp),
}

/// A certificate and its private key, both PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

/// A new self-signed CA.
pub fn authority(now: Timestamp) -> Result<Issued, Error> {
    let key = new_key()?;
    let mut params = lasting(now, after(now, AUTHORITY_LIFE)?)?;
    params.distinguished_name = ca_name(now);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let certificate = params.self_signed(&key)?.pem();
    Ok(Issued {
        certificate,
        key: key.serialize_pem(),
    })
}

/// A new serving certificate, signed by `ca`. The certificate expires with `ca` at the latest.
pub fn leaf(ca: &Issued, names: &[String], now: Timestamp) -> Result<Issued, Error> {
    let signer = Issuer::from_ca_cert_pem(&ca.certificate, KeyPair::from_pem(&ca.key)?)?;
    let key = new_key()?;
    let mut params = lasting(now, leaf_end(ca, now)?)?;
    params.subject_alt_names = CertificateParams::new(names)?.subject_alt_names;
    params.distinguished_name = common_name(names.first().map_or("webhook", String::as_str));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&key, &signer)?.pem();
    Ok(Issued {
        certificate,
        key: key.serialize_pem(),
    })
}

fn new_key() -> Result<KeyPair, Error> {
    Ok(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?)
}

fn leaf_end(ca: &Issued, now: Timestamp) -> Result<Timestamp, Error> {
    let wanted = after(now, LEAF_LIFE)?;
    Ok(Facts::first(&ca.certificate).map_or(wanted, |facts| facts.not_after.min(wanted)))
}

fn lasting(now: Timestamp, until: Timestamp) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::default();
    params.not_before = date(after(now, -BACK_DATED)?)?;
    params.not_after = date(until)?;
    Ok(params)
}

/// Each CA has a unique name, so that a verifier with two CAs never tries the wrong key.
fn ca_name(now: Timestamp) -> DistinguishedName {
    common_name(&format!("pod-affinity webhook authority {}", now.as_second()))
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn after(now: Timestamp, span: SignedDuration) -> Result<Timestamp, Error> {
    now.checked_add(span).map_err(|_| Error::Clock(now))
}

fn date(time: Timestamp) -> Result<OffsetDateTime, Error> {
    OffsetDateTime::from_unix_timestamp(time.as_second()).map_err(|_| Error::Clock(time))
}
