//! The fields of an X.509 certificate that the decisions need. This module reads PEM and decides nothing.
//!
//! Several libraries are necessary: `rustls` reads PEM and `pem` writes PEM, `x509-parser` reads certificates, and `rcgen` reads
//! private keys. `webpki` verifies a whole chain, but reports neither dates nor names.

use jiff::Timestamp;
use pem::{EncodeConfig, LineEnding, Pem};
use rcgen::{KeyPair, PublicKeyData};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use x509_parser::{certificate::X509Certificate, extensions::GeneralName, prelude::FromDer};

/// One parsed certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
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

impl Facts {
    /// The first certificate of a PEM text; `None` if the text has no certificate or the first is unreadable.
    pub fn first(pem: &str) -> Option<Self> {
        let der = CertificateDer::pem_slice_iter(pem.as_bytes()).next()?.ok()?;
        Self::read(&der)
    }

    /// All readable certificates of a PEM text.
    pub fn all(pem: &str) -> Vec<Self> {
        CertificateDer::pem_slice_iter(pem.as_bytes())
            .filter_map(|der| Self::read(&der.ok()?))
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

    /// Whether this private key, as PEM, belongs to the certificate.
    pub fn has_key(&self, key_pem: &str) -> bool {
        KeyPair::from_pem(key_pem).is_ok_and(|key| key.subject_public_key_info() == self.public_key)
    }

    /// Whether `ca` signed the certificate.
    pub fn is_signed_by(&self, ca: &Facts) -> bool {
        signature_holds(&self.der, &ca.der).unwrap_or(false)
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

    fn read(der: &[u8]) -> Option<Self> {
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
