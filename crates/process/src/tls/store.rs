//! The served certificate. An invalid pair is refused and leaves the served certificate unchanged.

use super::pair::{Pair, Refusal, Usable};
use crate::{
    metrics::{Outcome, Serving},
    readiness::Condition,
};
use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use rustls::{
    ServerConfig,
    crypto::{CryptoProvider, aws_lc_rs},
    server::{ClientHello, NoServerSessionStorage, ResolvesServerCert},
    sign::CertifiedKey,
};
use std::sync::Arc;

/// Name of the readiness condition.
pub const CONDITION: &str = "certificate";

/// The served certificate. All configurations from [`Store::server_config`] use a new certificate at once.
#[derive(Debug)]
pub struct Store {
    provider: Arc<CryptoProvider>,
    served: Arc<Served>,
    offered: Option<Offered>,
    lacking: Option<String>,
    condition: Condition,
    metrics: Serving,
}

#[derive(Debug)]
struct Offered {
    pair: Pair,
    accepted: bool,
}

#[derive(Debug, Default)]
struct Served(ArcSwapOption<CertifiedKey>);

impl Store {
    /// A store without a certificate.
    pub fn new(condition: Condition, metrics: Serving) -> Self {
        let provider = Arc::new(aws_lc_rs::default_provider());
        Self {
            provider,
            served: Arc::default(),
            offered: None,
            lacking: None,
            condition,
            metrics,
        }
    }

    /// The TLS configuration of the server. Session resumption is off: the API server keeps its connections, and a resumed session
    /// would outlive the certificate that it began with.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, rustls::Error> {
        let builder = ServerConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()?;
        let mut config = builder
            .with_no_client_auth()
            .with_cert_resolver(self.served.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    /// Serves this pair from now on if the pair is valid. The pair in use is ignored; a refused pair is checked again, because the
    /// clock may have been wrong.
    pub fn offer(&mut self, pair: Pair, now: Timestamp) {
        let known = self
            .offered
            .as_ref()
            .filter(|offered| offered.pair == pair)
            .map(|offered| offered.accepted);
        if known == Some(true) {
            return;
        }
        let checked = pair.check(&self.provider, now);
        self.offered = Some(Offered {
            pair,
            accepted: checked.is_ok(),
        });
        match (checked, known) {
            (Ok(usable), _) => self.serve(usable),
            (Err(refusal), None) => self.refuse(&refusal),
            (Err(_), Some(_)) => {}
        }
    }

    /// Reports that the source has no valid pair; the served pair stays.
    pub fn lack(&mut self, why: &str) {
        if self.lacking.as_deref() == Some(why) {
            return;
        }
        self.lacking = Some(why.to_owned());
        if self.is_empty() {
            tracing::info!(why, "waiting for a serving certificate");
            self.condition.unmet(why);
        } else {
            tracing::warn!(why, "the last good certificate stays in use");
        }
    }

    fn serve(&mut self, usable: Usable) {
        let Usable { key, not_after } = usable;
        tracing::info!(%not_after, "a new certificate is served");
        self.served.0.store(Some(Arc::new(key)));
        self.lacking = None;
        self.metrics.certificate_load(Outcome::Accepted);
        self.metrics.certificate_expiry.set(not_after.as_second());
        self.condition.met();
    }

    fn refuse(&mut self, refusal: &Refusal) {
        self.metrics.certificate_load(Outcome::Refused);
        self.lack(&format!("the serving certificate is refused: {refusal}"));
    }

    fn is_empty(&self) -> bool {
        self.served.0.load().is_none()
    }
}

impl ResolvesServerCert for Served {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.load_full()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certs::{LEAF_LIFE, issue};
    use crate::readiness::Readiness;

    fn pair(now: Timestamp) -> Pair {
        let leaf = issue::leaf(&issue::authority(now).unwrap(), &["a.b.svc".into()], now).unwrap();
        Pair {
            chain: leaf.certificate,
            key: leaf.key,
        }
    }

    /// At the start the clock was a month ahead; then it is corrected, and the Secret is not written again.
    #[test]
    fn a_pair_that_only_the_clock_refused_is_taken_when_the_clock_is_right_again() {
        let (now, readiness, metrics) = (Timestamp::UNIX_EPOCH, Readiness::default(), Serving::default());
        let mut store = Store::new(readiness.condition(CONDITION, "none yet"), metrics.clone());
        let pair = pair(now);
        for _ in 0..3 {
            store.offer(pair.clone(), now + LEAF_LIFE);
        }
        assert!(
            readiness
                .to_string()
                .contains("the certificate expired at 1970-01-31"),
            "{readiness}"
        );
        assert_eq!(metrics.certificate_loads(Outcome::Refused), 1);
        store.offer(pair, now);
        assert!(readiness.is_ready());
    }

    #[test]
    fn what_is_served_already_stays_when_the_source_is_lost() {
        let (now, readiness) = (Timestamp::UNIX_EPOCH, Readiness::default());
        let mut store = Store::new(readiness.condition(CONDITION, "none yet"), Serving::default());
        store.offer(pair(now), now);
        store.lack("the Secret does not exist");
        assert!(readiness.is_ready() && !store.is_empty());
    }
}
