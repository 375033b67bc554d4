//! Renews the stored certificates, and makes API servers trust a new CA before the webhook serves a certificate of this CA. Only
//! the leader runs this code; if two processes run it at once, the Secret's resourceVersion lets only one process write.
//!
//! The order of a lossless rotation: a new CA is stored beside the old CA, both configurations trust both CAs, API servers get
//! time to read the configurations, and only then a leaf of the new CA is stored.

use super::{
    Renewal, RenewalReason, StoredCertificates, bundle, decide,
    publish::{self, CONFIGURATIONS, WebhookConfigurations},
    service_names, wanted_bundle,
    x509::{self, Issued, issue_ca, issue_leaf},
};
use crate::api;
use crate::install::CERTIFICATE_SECRET;
use crate::metrics::{CertificatePart, Leading};
use futures::{
    Stream, StreamExt,
    stream::{self, BoxStream},
};
use jiff::Timestamp;
use k8s_openapi::api::{admissionregistration::v1::MutatingWebhookConfiguration, core::v1::Secret};
use kube::{
    Api, Client, Resource,
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;
use std::{fmt::Debug, pin::pin, sync::Arc, time::Duration};
use thiserror::Error;
use tokio::time::{Instant, sleep, timeout};

/// Interval of checks without watch events, so that the process notices a jump of the clock.
const CHECK_EVERY: Duration = Duration::from_mins(1);
/// Default of how long API servers may take to act on a changed `caBundle`.
pub const SETTLE_TIME: Duration = Duration::from_secs(10);
/// Pause between two checks, so that a conflict with another writer causes few requests.
const PAUSE: Duration = Duration::from_millis(500);
/// Pause after an error.
const RETRY: Duration = Duration::from_secs(5);
/// Timeout for all requests of one check, so that an API server without a response does not block later checks.
const PASS_DEADLINE: Duration = Duration::from_secs(30);
/// Maximum number of watch events that one check handles.
const BURST: usize = 16;
/// Maximum number of steps in a pass. A healthy pass takes no more steps than CA, bundle, leaf and the last check.
const STEPS_AT_MOST: usize = 5;

/// Returns the current time. A parameter, so that tests can let years pass.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The reason why a check of the certificates failed.
#[derive(Debug, Error)]
pub enum Error {
    /// The Secret cannot be read.
    #[error("cannot read Secret {CERTIFICATE_SECRET}: {}; check the controller's Role", api::error_text(.0))]
    Read(#[source] Box<kube::Error>),
    /// The Secret does not exist, and the controller's Role does not allow to create Secrets.
    #[error("Secret {CERTIFICATE_SECRET} does not exist; apply the manifests again")]
    Missing,
    /// The Secret cannot be written.
    #[error("cannot write Secret {CERTIFICATE_SECRET}: {}; check the controller's Role", api::error_text(.0))]
    Write(#[source] Box<kube::Error>),
    /// A webhook configuration cannot be read or patched.
    #[error(transparent)]
    Publish(#[from] publish::Error),
    /// No certificate could be created.
    #[error(transparent)]
    Issue(#[from] x509::Error),
    /// The API server did not respond in time.
    #[error("the API server did not respond within {PASS_DEADLINE:?}")]
    NoResponse,
    /// The check did not end within the maximum number of steps.
    #[error(
        "the certificates in Secret {CERTIFICATE_SECRET} keep changing; another client may be writing it"
    )]
    Unstable,
}

/// Manages the certificates of one installation.
pub struct Keeper {
    client: Client,
    namespace: String,
    names: Vec<String>,
    clock: Clock,
    metrics: Leading,
    settle_time: Duration,
    /// When all API servers act on the current `caBundle`.
    settled_at: Option<Instant>,
    has_injector: bool,
    external: bool,
}

impl Keeper {
    /// A keeper for the Secret in this namespace.
    pub fn new(client: Client, namespace: &str, clock: Clock, metrics: Leading) -> Self {
        let names = service_names(namespace);
        let namespace = namespace.to_owned();
        Self {
            client,
            namespace,
            names,
            clock,
            metrics,
            settle_time: SETTLE_TIME,
            settled_at: None,
            has_injector: false,
            external: false,
        }
    }

    /// Changes the keeper to write no certificates: it only makes our namespace the owner of the webhook configurations.
    #[must_use]
    pub fn with_external_certificates(self) -> Self {
        Self {
            external: true,
            ..self
        }
    }

    /// Sets how long API servers may take to act on a changed `caBundle`.
    #[must_use]
    pub fn with_settle_time(self, settle_time: Duration) -> Self {
        Self { settle_time, ..self }
    }

    /// Runs checks until the future is dropped.
    pub async fn run(mut self) {
        let mut changes = pin!(self.changes().ready_chunks(BURST));
        loop {
            let done = timeout(PASS_DEADLINE, self.pass())
                .await
                .unwrap_or(Err(Error::NoResponse));
            let next = done.unwrap_or_else(|error| self.on_error(&error));
            sleep(PAUSE).await;
            // An event and the timeout both start the next check.
            let _ = timeout(next, changes.next()).await;
        }
    }

    /// Checks the certificates and writes all changes. Returns the latest time until the next check.
    pub async fn pass(&mut self) -> Result<Duration, Error> {
        let mut trust = WebhookConfigurations::read(self.client.clone(), &self.namespace).await?;
        let next = self.renew(&mut trust).await?;
        // After the certificates: runs need those, and not the owner.
        trust.set_owner().await?;
        Ok(next)
    }

    async fn renew(&mut self, trust: &mut WebhookConfigurations) -> Result<Duration, Error> {
        if self.external || self.finds_injector(trust) {
            return Ok(CHECK_EVERY);
        }
        let mut secret = self.secret().await?;
        for _ in 0..STEPS_AT_MOST {
            match self
                .step(&StoredCertificates::from_secret(&secret), trust)
                .await?
            {
                PassStep::Rest(next) => return Ok(next),
                PassStep::Store(changed) => secret = self.store(secret, changed).await?,
            }
        }
        Err(Error::Unstable)
    }

    async fn step(
        &mut self,
        stored: &StoredCertificates,
        trust: &mut WebhookConfigurations,
    ) -> Result<PassStep, Error> {
        let now = (self.clock)();
        match decide(stored, &self.names, now) {
            Renewal::Ca(why) => self.renew_ca(stored, trust, why, now),
            Renewal::Bundle => Ok(self.renew_bundle(stored, now)),
            Renewal::Leaf(why) => {
                self.publish(stored, trust).await?;
                self.renew_leaf(stored, why, now)
            }
            Renewal::NotNeeded => self
                .publish(stored, trust)
                .await
                .map(|()| PassStep::Rest(CHECK_EVERY)),
        }
    }

    fn renew_ca(
        &self,
        stored: &StoredCertificates,
        trust: &WebhookConfigurations,
        why: RenewalReason,
        now: Timestamp,
    ) -> Result<PassStep, Error> {
        tracing::info!(%why, "the webhook's CA {why}: creating a new one");
        let Issued { certificate, key } = issue_ca(now)?;
        self.metrics.renewal(CertificatePart::Ca);
        // Keeps the CAs in `caBundle`: if the Secret was lost, replicas may still serve a certificate that one of these CAs signed.
        let bundle = bundle(&certificate, &[&stored.ca, &stored.bundle, &trust.trusted()], now);
        Ok(PassStep::Store(StoredCertificates {
            ca: certificate,
            ca_key: key,
            bundle,
            ..stored.clone()
        }))
    }

    fn renew_bundle(&self, stored: &StoredCertificates, now: Timestamp) -> PassStep {
        self.metrics.renewal(CertificatePart::Bundle);
        PassStep::Store(StoredCertificates {
            bundle: wanted_bundle(stored, now),
            ..stored.clone()
        })
    }

    fn renew_leaf(
        &self,
        stored: &StoredCertificates,
        why: RenewalReason,
        now: Timestamp,
    ) -> Result<PassStep, Error> {
        if let Some(rest) = self.unsettled() {
            return Ok(PassStep::Rest(rest));
        }
        tracing::info!(%why, "the webhook's serving certificate {why}: creating a new one");
        let ca = Issued {
            certificate: stored.ca.clone(),
            key: stored.ca_key.clone(),
        };
        let Issued { certificate, key } = issue_leaf(&ca, &self.names, now)?;
        self.metrics.renewal(CertificatePart::Leaf);
        Ok(PassStep::Store(StoredCertificates {
            leaf: certificate,
            leaf_key: key,
            ..stored.clone()
        }))
    }

    /// On a first installation API servers trust no CA, so they need no time to act on a change. A new keeper also waits, because
    /// the previous leader may have published a moment ago.
    async fn publish(
        &mut self,
        stored: &StoredCertificates,
        trust: &mut WebhookConfigurations,
    ) -> Result<(), Error> {
        let first = trust.trusted().is_empty();
        // Unknown until the API server has answered: the API server may act on a change although its answer is lost.
        let settled_at = self.settled_at.take();
        let changed = trust.publish(&stored.bundle).await?;
        let given = if first { Duration::ZERO } else { self.settle_time };
        let settled_at = settled_at.filter(|_| !changed);
        self.settled_at = settled_at.or_else(|| Some(Instant::now() + given));
        Ok(())
    }

    fn unsettled(&self) -> Option<Duration> {
        let rest = self.settled_at?.saturating_duration_since(Instant::now());
        Some(rest).filter(|rest| !rest.is_zero())
    }

    /// Whether another controller manages the certificates; logged when this starts.
    fn finds_injector(&mut self, trust: &WebhookConfigurations) -> bool {
        let injector = trust.injector();
        let was_logged = std::mem::replace(&mut self.has_injector, injector.is_some());
        if let Some(annotation) = injector.filter(|_| !was_logged) {
            tracing::info!(
                annotation,
                "certificates are not managed: an annotation of a webhook configuration says that another controller injects them"
            );
        }
        injector.is_some()
    }

    async fn secret(&self) -> Result<Secret, Error> {
        let failed = |error| Error::Read(Box::new(error));
        let found = self.secrets().get_opt(CERTIFICATE_SECRET).await;
        found.map_err(failed)?.ok_or(Error::Missing)
    }

    /// Writes with the resourceVersion of the read, so a concurrent change causes a conflict and is never overwritten.
    async fn store(&self, secret: Secret, stored: StoredCertificates) -> Result<Secret, Error> {
        let changed = Secret {
            data: Some(stored.into_data()),
            ..secret
        };
        let written = self
            .secrets()
            .replace(CERTIFICATE_SECRET, &api::post_params(), &changed)
            .await;
        written.map_err(|error| Error::Write(Box::new(error)))
    }

    /// Changes of the watched objects. Every pass checks all objects, so the events do not name the changed object.
    fn changes(&self) -> impl Stream<Item = ()> + use<> {
        let secret = (!self.external).then(|| changes_of(self.secrets(), CERTIFICATE_SECRET));
        let configuration = |name| {
            changes_of(
                Api::<MutatingWebhookConfiguration>::all(self.client.clone()),
                name,
            )
        };
        stream::select_all(secret.into_iter().chain(CONFIGURATIONS.map(configuration)))
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn on_error(&self, error: &Error) -> Duration {
        if error.is_conflict() {
            return Duration::ZERO;
        }
        self.metrics.certificate_errors.inc();
        tracing::error!(%error, "failed to check or renew the webhook's certificates; retrying");
        RETRY
    }
}

impl Error {
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Write(source)
            if matches!(source.as_ref(), kube::Error::Api(status) if status.is_conflict()))
    }
}

enum PassStep {
    Rest(Duration),
    Store(StoredCertificates),
}

fn changes_of<K>(api: Api<K>, name: &str) -> BoxStream<'static, ()>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    watcher::watch_object(api, name)
        .default_backoff()
        .map(log_error)
        .boxed()
}

fn log_error<K>(event: Result<Option<K>, watcher::Error>) {
    if let Err(error) = event {
        let error = api::watch_error_text(&error);
        tracing::warn!(
            error,
            "a watch of the certificates or webhook configurations failed; it is being restarted"
        );
    }
}

#[cfg(test)]
mod tests;
