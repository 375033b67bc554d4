//! Issues X.509 certificates for the names and the time that the caller passes, and reads the fields that the decisions need.
//!
//! Several libraries are necessary: `rcgen` issues certificates and reads private keys, `rustls` reads PEM and `pem` writes PEM, and
//! `x509-parser` reads certificates. `webpki` verifies a whole chain, but reports neither dates nor names.

use super::{BACK_DATED, CA_LIFE, LEAF_LIFE};
use jiff::{SignedDuration, Timestamp};
use pem::{EncodeConfig, LineEnding, Pem};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use thiserror::Error;
use time::OffsetDateTime;
use x509_parser::{certificate::X509Certificate, extensions::GeneralName, prelude::FromDer};

/// The reason why a certificate could not be created.
#[derive(Debug, Error)]
pub enum Error {
    /// The crypto library reported an error.
    #[error("cannot create a certificate: {0}; this is a fault in pod-affinity, please report it")]
    Crypto(#[from] rcgen::Error),
    /// The clock shows a time that a certificate cannot contain.
    #[error("cannot create a certificate for the time {0}: correct the clock of this machine")]
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
pub fn issue_ca(now: Timestamp) -> Result<Issued, Error> {
    let key = new_key()?;
    let mut params = valid_from(now, after(now, CA_LIFE)?)?;
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
pub fn issue_leaf(ca: &Issued, names: &[String], now: Timestamp) -> Result<Issued, Error> {
    let signer = Issuer::from_ca_cert_pem(&ca.certificate, KeyPair::from_pem(&ca.key)?)?;
    let key = new_key()?;
    let mut params = valid_from(now, leaf_end(ca, now)?)?;
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
    Ok(Certificate::first(&ca.certificate).map_or(wanted, |ca| ca.not_after.min(wanted)))
}

fn valid_from(now: Timestamp, until: Timestamp) -> Result<CertificateParams, Error> {
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

/// One parsed certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    der: Vec<u8>,
    /// Start of the validity.
    pub not_before: Timestamp,
    /// End of the validity.
    pub not_after: Timestamp,
    /// Whether the certificate may sign other certificates.
    pub is_ca: bool,
    /// DNS names of the certificate.
    pub names: Vec<String>,
    public_key: Vec<u8>,
}

impl Certificate {
    /// The first certificate of a PEM text; `None` if the text has no certificate or the first is unreadable.
    pub fn first(pem: &str) -> Option<Self> {
        let der = CertificateDer::pem_slice_iter(pem.as_bytes()).next()?.ok()?;
        Self::parse(&der)
    }

    /// All readable certificates of a PEM text.
    pub fn all(pem: &str) -> Vec<Self> {
        CertificateDer::pem_slice_iter(pem.as_bytes())
            .filter_map(|der| Self::parse(&der.ok()?))
            .collect()
    }

    /// Whether the certificate has expired at `now`.
    pub fn has_expired_at(&self, now: Timestamp) -> bool {
        now >= self.not_after
    }

    /// The time when two thirds of the lifetime are over.
    pub fn renewal(&self) -> Timestamp {
        let life = self.not_after.duration_since(self.not_before);
        self.not_after.checked_sub(life / 3).unwrap_or(self.not_after)
    }

    /// Whether this private key, as PEM, belongs to the certificate. Other blocks may come before the key, such as the `EC PARAMETERS`
    /// of openssl.
    pub fn has_key(&self, key_pem: &str) -> bool {
        let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).ok();
        let key = key.and_then(|der| KeyPair::try_from(&der).ok());
        key.is_some_and(|key| key.subject_public_key_info() == self.public_key)
    }

    /// Whether `ca` signed the certificate.
    pub fn is_signed_by(&self, ca: &Certificate) -> bool {
        signature_holds(&self.der, &ca.der).unwrap_or(false)
    }

    /// Whether one of `cas` signed the certificate, or an intermediate CA of the chain that one of them signed.
    pub fn is_trusted_by(&self, cas: &[Certificate], chain: &[Certificate]) -> bool {
        let mut signed = self;
        // Each intermediate CA is used once at most.
        for _ in 0..=chain.len() {
            if cas.iter().any(|ca| signed.is_signed_by(ca)) {
                return true;
            }
            let signer = chain.iter().find(|ca| ca.is_ca && signed.is_signed_by(ca));
            let Some(signer) = signer else { return false };
            signed = signer;
        }
        false
    }

    /// Whether the certificate has all these DNS names.
    pub fn covers(&self, names: &[String]) -> bool {
        names.iter().all(|name| self.names.contains(name))
    }

    /// The certificate as PEM.
    pub fn pem(&self) -> String {
        let unix = EncodeConfig::new().set_line_ending(LineEnding::LF);
        pem::encode_config(&Pem::new("CERTIFICATE", self.der.as_slice()), unix)
    }

    fn parse(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let validity = certificate.validity();
        Some(Self {
            der: der.to_vec(),
            not_before: Timestamp::from_second(validity.not_before.timestamp()).ok()?,
            not_after: Timestamp::from_second(validity.not_after.timestamp()).ok()?,
            is_ca: certificate.is_ca(),
            names: dns_names(&certificate),
            public_key: certificate.public_key().raw.to_vec(),
        })
    }
}

fn dns_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(alternative)) = certificate.subject_alternative_name() else {
        return Vec::new();
    };
    let dns = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    };
    alternative.value.general_names.iter().filter_map(dns).collect()
}

fn signature_holds(leaf: &[u8], ca: &[u8]) -> Option<bool> {
    let (_, leaf) = X509Certificate::from_der(leaf).ok()?;
    let (_, ca) = X509Certificate::from_der(ca).ok()?;
    let named = leaf.issuer() == ca.subject();
    Some(named && leaf.verify_signature(Some(ca.public_key())).is_ok())
}
