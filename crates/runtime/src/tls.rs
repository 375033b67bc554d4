//! The webhook's TLS port, with certificate reload while connections are open, and a shutdown that loses no call.
//!
//! This file has the served certificate: a certificate and its key are checked before use, and a refused pair leaves the served
//! certificate unchanged.

pub mod serve;
pub mod sources;

use crate::{
    certs::x509::Certificate,
    metrics::{LoadOutcome, Serving},
    readiness::ReadinessCondition,
};
use axum_server::tls_rustls::RustlsConfig;
use jiff::Timestamp;
use rustls::{
    ServerConfig,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{NoServerSessionStorage, ResolvesServerCertUsingSni},
    sign::{CertifiedKey, SingleCertAndKey},
};
use std::{fmt, sync::Arc};
use thiserror::Error;

/// Name of the readiness condition.
pub const CONDITION: &str = "certificate";

/// The served certificate. New connections get a new certificate at once; a handshake in progress ends with the previous one.
#[derive(Debug)]
pub struct ServedCertificate {
    config: RustlsConfig,
    is_served: bool,
    offered: Option<Offered>,
    problem: Option<String>,
    condition: ReadinessCondition,
    metrics: Serving,
}

#[derive(Debug)]
struct Offered {
    pair: PemPair,
    accepted: bool,
}

impl ServedCertificate {
    /// Starts without a certificate: every handshake fails.
    pub fn new(condition: ReadinessCondition, metrics: Serving) -> Result<Self, rustls::Error> {
        Ok(Self {
            config: RustlsConfig::from_config(Arc::new(without_certificate()?)),
            is_served: false,
            offered: None,
            problem: None,
            condition,
            metrics,
        })
    }

    /// The TLS configuration of the server. Clones share the certificate.
    pub fn config(&self) -> RustlsConfig {
        self.config.clone()
    }

    /// Serves this pair from now on if the pair is valid. The pair in use is ignored; a refused pair is checked again, because the
    /// clock may have been wrong.
    pub fn offer(&mut self, pair: PemPair, now: Timestamp) {
        let offered = self.offered.as_ref().filter(|offered| offered.pair == pair);
        let earlier = offered.map(|offered| offered.accepted);
        if earlier == Some(true) {
            return;
        }
        let checked = pair.check(self.config.get_inner().crypto_provider(), now);
        self.offered = Some(Offered {
            pair,
            accepted: checked.is_ok(),
        });
        match checked {
            Ok((key, not_after)) => self.serve(key, not_after),
            Err(error) if earlier.is_none() => {
                self.refuse(&format!("the serving certificate is refused: {error}"));
            }
            Err(_) => {}
        }
    }

    /// Reports why the source has no valid pair; the served pair stays.
    pub fn report_problem(&mut self, problem: &str) {
        if self.problem.as_deref() == Some(problem) {
            return;
        }
        self.problem = Some(problem.to_owned());
        if self.is_served {
            tracing::warn!(problem, "the last good certificate stays in use");
        } else {
            tracing::info!(problem, "waiting for a serving certificate");
            self.condition.unmet(problem);
        }
    }

    fn serve(&mut self, key: CertifiedKey, not_after: Timestamp) {
        let mut config = ServerConfig::clone(&self.config.get_inner());
        config.cert_resolver = Arc::new(SingleCertAndKey::from(key));
        self.config.reload_from_config(Arc::new(config));
        tracing::info!(%not_after, "a new certificate is served");
        self.is_served = true;
        self.problem = None;
        self.metrics.certificate_load(LoadOutcome::Accepted);
        self.metrics.certificate_expiry.set(not_after.as_second());
        self.condition.met();
    }

    /// Reports and counts a certificate that cannot be served; the served pair stays.
    fn refuse(&mut self, problem: &str) {
        if self.problem.as_deref() != Some(problem) {
            self.metrics.certificate_load(LoadOutcome::Refused);
        }
        self.report_problem(problem);
    }
}

/// Session resumption is off: the API server keeps its connections, and a resumed session would outlive its certificate.
fn without_certificate() -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = builder
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(ResolvesServerCertUsingSni::new()));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// A certificate chain and its private key, as PEM texts.
#[derive(Clone, PartialEq, Eq)]
pub struct PemPair {
    /// The serving certificate, and its intermediate certificates if present.
    pub chain: String,
    /// The private key of the serving certificate.
    pub key: String,
}

/// The reason why a pair is refused.
#[derive(Debug, Error)]
pub enum UnusablePair {
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

impl PemPair {
    /// Checks that the pair can be served at `now`. Returns the key for rustls, and when the certificate expires. A certificate that is
    /// not valid yet passes, because the API server's clock decides whether the certificate is valid.
    fn check(
        &self,
        provider: &CryptoProvider,
        now: Timestamp,
    ) -> Result<(CertifiedKey, Timestamp), UnusablePair> {
        let leaf = Certificate::first(&self.chain).ok_or(UnusablePair::NoCertificate)?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|_| UnusablePair::NoKey)?;
        let key =
            CertifiedKey::from_der(self.certificates()?, key, provider).map_err(UnusablePair::Mismatch)?;
        if leaf.has_expired_at(now) {
            return Err(UnusablePair::Expired(leaf.not_after));
        }
        Ok((key, leaf.not_after))
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, UnusablePair> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(self.chain.as_bytes()).collect();
        read.map_err(|_| UnusablePair::NoCertificate)
    }
}

/// Hides the private key.
impl fmt::Debug for PemPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PemPair")
            .field("chain", &self.chain.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
