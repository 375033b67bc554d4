//! A certificate chain and its key, which are checked before use. Pure.

use crate::certs::x509::Facts;
use jiff::Timestamp;
use rustls::{
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use std::fmt;
use thiserror::Error;

/// The PEM texts.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    /// The serving certificate, and its intermediate certificates if present.
    pub chain: String,
    /// The private key of the serving certificate.
    pub key: String,
}

/// A pair that can be served.
#[derive(Clone, Debug)]
pub struct Usable {
    /// The certificate and key for rustls.
    pub key: CertifiedKey,
    /// When the certificate expires.
    pub not_after: Timestamp,
}

/// The reason why a pair is refused.
#[derive(Debug, Error)]
pub enum Refusal {
    /// The chain has no readable certificate.
    #[error("it holds no readable certificate")]
    NoCertificate,
    /// The private key is unreadable.
    #[error("it holds no readable private key")]
    NoKey,
    /// The private key belongs to another certificate.
    #[error("certificate and private key do not go together: {0}")]
    Mismatch(#[source] rustls::Error),
    /// The certificate has expired.
    #[error("the certificate expired at {0}")]
    Expired(Timestamp),
}

impl Pair {
    /// Checks that the pair can be served at `now`. A certificate that is not valid yet passes, because the API server's clock
    /// decides whether the certificate is valid.
    pub fn check(&self, provider: &CryptoProvider, now: Timestamp) -> Result<Usable, Refusal> {
        let facts = Facts::first(&self.chain).ok_or(Refusal::NoCertificate)?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|_| Refusal::NoKey)?;
        let key = CertifiedKey::from_der(self.certificates()?, key, provider).map_err(Refusal::Mismatch)?;
        if facts.has_expired_at(now) {
            return Err(Refusal::Expired(facts.not_after));
        }
        Ok(Usable {
            key,
            not_after: facts.not_after,
        })
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, Refusal> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(self.chain.as_bytes()).collect();
        read.map_err(|_| Refusal::NoCertificate)
    }
}

/// Hides the private key.
impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair")
            .field("chain", &self.chain.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certs::issue::{Issued, authority, leaf};
    use jiff::SignedDuration;
    use rustls::crypto::aws_lc_rs::default_provider;

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    fn pair() -> Pair {
        let Issued { certificate, key } =
            leaf(&authority(now()).unwrap(), &["a.b.svc".into()], now()).unwrap();
        Pair {
            chain: certificate,
            key,
        }
    }

    fn refusal(pair: &Pair, now: Timestamp) -> String {
        pair.check(&default_provider(), now).unwrap_err().to_string()
    }

    #[test]
    fn a_fresh_pair_is_usable_and_reports_when_it_expires() {
        let usable = pair().check(&default_provider(), now()).unwrap();
        assert_eq!(usable.not_after, now() + crate::certs::LEAF_LIFE);
    }

    #[test]
    fn halves_of_two_pairs_are_refused() {
        let mixed = Pair {
            key: pair().key,
            ..pair()
        };
        assert!(refusal(&mixed, now()).starts_with("certificate and private key do not go together"));
    }

    #[test]
    fn rubbish_is_refused_part_by_part() {
        let rubbish = || "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned();
        assert_eq!(
            refusal(
                &Pair {
                    chain: rubbish(),
                    ..pair()
                },
                now()
            ),
            "it holds no readable certificate"
        );
        assert_eq!(
            refusal(
                &Pair {
                    chain: String::new(),
                    ..pair()
                },
                now()
            ),
            "it holds no readable certificate"
        );
        assert_eq!(
            refusal(
                &Pair {
                    key: rubbish(),
                    ..pair()
                },
                now()
            ),
            "it holds no readable private key"
        );
    }

    #[test]
    fn an_expired_pair_is_refused_and_one_from_the_future_is_not() {
        let later = now() + SignedDuration::from_hours(31 * 24);
        assert!(refusal(&pair(), later).starts_with("the certificate expired at 20"));
        assert!(
            pair()
                .check(&default_provider(), now() - SignedDuration::from_hours(48))
                .is_ok()
        );
    }
}
