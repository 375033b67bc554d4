//! Keeps the stored certificates in order and the API server's trust ahead of them. The leader alone runs this; if two
//! processes run it at once, the Secret's resourceVersion lets only one of them write.
//!
//! The order that makes a rotation lossless: a new CA is stored beside the old one, both configurations trust both CAs, the API
//! servers get some time to read the configurations, and only then a leaf signed by the new CA is stored.

use super::{
    decide::{Decision, Why, decide, wanted_bundle},
    issue::{self, Issued},
    publish::{self, CONFIGURATIONS, Configurations},
    service_names,
    stored::Stored,
};
use crate::metrics::{Leading, Part};
use crate::{params, words};
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
use placement::keys::CERTIFICATE_SECRET;
use serde::de::DeserializeOwned;
use std::{fmt::Debug, pin::pin, sync::Arc, time::Duration};
use thiserror::Error;
use tokio::time::{Instant, sleep, timeout};

/// Between two checks without any event, so that a jump of the clock is noticed.
const CHECK_EVERY: Duration = Duration::from_mins(1);
/// How long API servers may take to act on a changed `caBundle`, by default.
pub const SETTLE_TIME: Duration = Duration::from_secs(10);
/// Between two checks, so that a conflict with another writer stays cheap.
const PAUSE: Duration = Duration::from_millis(500);
/// After an error.
const RETRY: Duration = Duration::from_secs(5);
/// For all requests of one check: an API server that does not answer must not stop the checks for good.
const PASS_DEADLINE: Duration = Duration::from_secs(30);
/// Events that one check handles at most.
const BURST: usize = 16;
/// CA, bundle, leaf and the last check: no healthy pass takes more steps.
const STEPS_AT_MOST: usize = 5;

/// Returns the time; a parameter, so that tests can let years pass.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Why the certificates are not in order.
#[derive(Debug, Error)]
pub enum Error {
    /// The Secret is not readable.
    #[error("cannot read Secret {CERTIFICATE_SECRET}: {}; check the controller's Role", words::of(.0))]
    Read(#[source] Box<kube::Error>),
    /// The Secret does not exist, and no Role of ours may create one.
    #[error("Secret {CERTIFICATE_SECRET} does not exist; apply config/400-secret.yaml")]
    Missing,
    /// The Secret is not writable.
    #[error("cannot write Secret {CERTIFICATE_SECRET}: {}; check the controller's Role", words::of(.0))]
    Write(#[source] Box<kube::Error>),
    /// The API server cannot be made to trust the CA.
    #[error(transparent)]
    Publish(#[from] publish::Error),
    /// No certificate could be created.
    #[error(transparent)]
    Issue(#[from] issue::Error),
    /// The API server did not answer.
    #[error("the API server did not answer within {PASS_DEADLINE:?}")]
    Unanswered,
    /// The decisions never ended.
    #[error(
        "the certificates in Secret {CERTIFICATE_SECRET} keep changing; another client may be writing it"
    )]
    Restless,
}

/// Keeps the certificates of one installation.
pub struct Keeper {
    client: Client,
    namespace: String,
    names: Vec<String>,
    clock: Clock,
    metrics: Leading,
    settle_time: Duration,
    /// When all API servers act on what is trusted now.
    settled_at: Option<Instant>,
    leaves_alone: bool,
    external: bool,
}

impl Keeper {
    /// A keeper of the Secret in this namespace.
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
            leaves_alone: false,
            external: false,
        }
    }

    /// The same, but it writes no certificate: it only makes our namespace the owner of the webhook configurations.
    #[must_use]
    pub fn of_external_certificates(self) -> Self {
        Self {
            external: true,
            ..self
        }
    }

    /// The same, but it gives API servers this long to act on a changed `caBundle`.
    #[must_use]
    pub fn with_settle_time(self, settle_time: Duration) -> Self {
        Self { settle_time, ..self }
    }

    /// Keeps on until it is dropped.
    pub async fn run(mut self) {
        let mut changes = pin!(self.changes().ready_chunks(BURST));
        loop {
            let done = timeout(PASS_DEADLINE, self.pass())
                .await
                .unwrap_or(Err(Error::Unanswered));
            let next = done.unwrap_or_else(|error| self.failed(&error));
            sleep(PAUSE).await;
            // Either outcome means the same: check again.
            let _ = timeout(next, changes.next()).await;
        }
    }

    /// One check and all that follows from it; returns when to check again at the latest.
    pub async fn pass(&mut self) -> Result<Duration, Error> {
        let mut trust = Configurations::read(self.client.clone(), &self.namespace).await?;
        trust.belong().await?;
        if self.external || self.has_injector(&trust) {
            return Ok(CHECK_EVERY);
        }
        let mut secret = self.secret().await?;
        for _ in 0..STEPS_AT_MOST {
            match self.step(&Stored::of(&secret), &mut trust).await? {
                Step::Rest(next) => return Ok(next),
                Step::Store(changed) => secret = self.store(secret, changed).await?,
            }
        }
        Err(Error::Restless)
    }

    async fn step(&mut self, stored: &Stored, trust: &mut Configurations) -> Result<Step, Error> {
        let now = (self.clock)();
        match decide(stored, &self.names, now) {
            Decision::RenewCa(why) => self.renewed_ca(stored, trust, why, now),
            Decision::MendBundle => Ok(self.mended_bundle(stored, now)),
            Decision::RenewLeaf(why) => {
                self.publish(stored, trust).await?;
                self.renewed_leaf(stored, why, now)
            }
            Decision::Keep => self
                .publish(stored, trust)
                .await
                .map(|()| Step::Rest(CHECK_EVERY)),
        }
    }

    fn renewed_ca(
        &self,
        stored: &Stored,
        trust: &Configurations,
        why: Why,
        now: Timestamp,
    ) -> Result<Step, Error> {
        tracing::info!(%why, "the webhook's CA {why}: creating a new one");
        let Issued { certificate, key } = issue::authority(now)?;
        self.metrics.renewal(Part::Ca);
        // What the API server trusts now may be all that is left of a lost Secret, while replicas still serve its certificate.
        let bundle =
            super::bundle::bundle(&certificate, &[&stored.ca, &stored.bundle, &trust.trusted()], now);
        Ok(Step::Store(Stored {
            ca: certificate,
            ca_key: key,
            bundle,
            ..stored.clone()
        }))
    }

    fn mended_bundle(&self, stored: &Stored, now: Timestamp) -> Step {
        self.metrics.renewal(Part::Bundle);
        Step::Store(Stored {
            bundle: wanted_bundle(stored, now),
            ..stored.clone()
        })
    }

    fn renewed_leaf(&self, stored: &Stored, why: Why, now: Timestamp) -> Result<Step, Error> {
        if let Some(rest) = self.unsettled() {
            return Ok(Step::Rest(rest));
        }
        tracing::info!(%why, "the webhook's serving certificate {why}: making a new one");
        let ca = Issued {
            certificate: stored.ca.clone(),
            key: stored.ca_key.clone(),
        };
        let Issued { certificate, key } = issue::leaf(&ca, &self.names, now)?;
        self.metrics.renewal(Part::Leaf);
        Ok(Step::Store(Stored {
            leaf: certificate,
            leaf_key: key,
            ..stored.clone()
        }))
    }

    /// On a first installation the API servers trusted no CA before, so they need no time to act on a change. When this keeper
    /// begins, the leader before it may have published a moment ago.
    async fn publish(&mut self, stored: &Stored, trust: &mut Configurations) -> Result<(), Error> {
        let first = trust.trusted().is_empty();
        let changed = trust.publish(&stored.bundle).await?;
        if changed || self.settled_at.is_none() {
            let given = if first { Duration::ZERO } else { self.settle_time };
            self.settled_at = Some(Instant::now() + given);
        }
        Ok(())
    }

    fn unsettled(&self) -> Option<Duration> {
        let rest = self.settled_at?.saturating_duration_since(Instant::now());
        Some(rest).filter(|rest| !rest.is_zero())
    }

    /// Whether another controller keeps the certificates; logged when it begins to.
    fn has_injector(&mut self, trust: &Configurations) -> bool {
        let injector = trust.injector();
        let noted = std::mem::replace(&mut self.leaves_alone, injector.is_some());
        if let Some(annotation) = injector.filter(|_| !noted) {
            tracing::info!(
                annotation,
                "certificates are left alone: a webhook configuration says that another injects them"
            );
        }
        injector.is_some()
    }

    async fn secret(&self) -> Result<Secret, Error> {
        let failed = |error| Error::Read(Box::new(error));
        let found = self.secrets().get_opt(CERTIFICATE_SECRET).await;
        found.map_err(failed)?.ok_or(Error::Missing)
    }

    /// The object goes back with the resourceVersion it was read with, so a concurrent change is never overwritten.
    async fn store(&self, secret: Secret, stored: Stored) -> Result<Secret, Error> {
        let changed = Secret {
            data: Some(stored.into_data()),
            ..secret
        };
        let written = self
            .secrets()
            .replace(CERTIFICATE_SECRET, &params::post(), &changed)
            .await;
        written.map_err(|error| Error::Write(Box::new(error)))
    }

    /// Changes of the objects that the keeper checks. Which one changed does not matter: every pass checks all.
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

    fn failed(&self, error: &Error) -> Duration {
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

enum Step {
    Rest(Duration),
    Store(Stored),
}

fn changes_of<K>(api: Api<K>, name: &str) -> BoxStream<'static, ()>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    watcher::watch_object(api, name)
        .default_backoff()
        .map(noted)
        .boxed()
}

fn noted<K>(event: Result<Option<K>, watcher::Error>) {
    if let Err(error) = event {
        let error = words::of_watch(&error);
        tracing::warn!(
            error,
            "a watch of the certificates or webhook configurations failed; it is being restarted"
        );
    }
}

#[cfg(test)]
#[path = "keeper_tests.rs"]
mod tests;
