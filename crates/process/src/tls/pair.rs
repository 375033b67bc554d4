//! A certificate chain and its key: read and checked before anything is served with it. Pure.

use crate::certs::x509::Facts;
use jiff::Timestamp;
use rustls::{
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use std::fmt;
use thiserror::Error;

/// PEM as it was read.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    /// The serving certificate, and the chain above it if there is one.
    pub chain: String,
    /// Its private key.
    pub key: String,
}

/// A pair that can be served.
#[derive(Clone, Debug)]
pub struct Usable {
    /// What rustls needs.
    pub key: CertifiedKey,
    /// When it expires.
    pub not_after: Timestamp,
}

/// Why a pair is not served.
#[derive(Debug, Error)]
pub enum Refusal {
    /// No certificate in it.
    #[error("it holds no readable certificate")]
    NoCertificate,
    /// No key in it.
    #[error("it holds no readable private key")]
    NoKey,
    /// The two do not fit.
    #[error("certificate and private key do not go together: {0}")]
    Mismatch(#[source] rustls::Error),
    /// Too old.
    #[error("the certificate expired at {0}")]
    Expired(Timestamp),
}

impl Pair {
    /// Checks that the pair can be served at `now`. A certificate that is not valid yet passes, because the API server's clock
    /// decides that.
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

/// Never shows the key.
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
