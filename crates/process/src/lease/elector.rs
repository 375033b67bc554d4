//! Reads and writes the Lease. Every write carries the resourceVersion of the read that the decision is based on, so if two
//! candidates write, the API server reports a conflict to one candidate.

use super::{
    Terms,
    decide::{Decision, Observation, acquired, decide, released, renewed},
    leadership::{Leadership, Standing},
};
use crate::{metrics::Leading, params, words};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{Api, Client, api::ObjectMeta};
use std::pin::pin;
use std::time::Duration;
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Timeout for releasing the Lease. Together with the leader's last writes, less than terminationGracePeriodSeconds.
const FAREWELL: Duration = Duration::from_secs(5);

/// A process that may lead, and its Lease.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub lease: &'static str,
    /// Name of this process in the Lease; must be unique.
    pub identity: String,
    /// The durations of the election.
    pub terms: Terms,
}

/// The reason why an attempt failed.
#[derive(Debug, Error)]
pub enum Error {
    /// The API server rejected the request or was unreachable.
    #[error("the request for Lease {name} failed: {}", words::of(source))]
    Api {
        /// The Lease.
        name: &'static str,
        /// The error of the request.
        source: Box<kube::Error>,
    },
    /// The API server did not answer.
    #[error("the API server did not answer the request for Lease {0} in time")]
    Unanswered(&'static str),
}

/// A running candidate.
#[derive(Debug)]
pub struct Election {
    leadership: Leadership,
    resign: CancellationToken,
    ended: JoinHandle<()>,
}

impl Election {
    /// Tries to acquire the Lease, then renews it.
    pub fn start(client: Client, candidate: Candidate, metrics: Leading) -> Self {
        let (standing, seen) = watch::channel(Standing::Unknown);
        let resign = CancellationToken::new();
        let api = Api::namespaced(client, &candidate.namespace);
        let elector = Elector {
            api,
            candidate,
            metrics,
            standing,
            seen: None,
        };
        let ended = tokio::spawn(elector.run(resign.clone().cancelled_owned()));
        Self {
            leadership: Leadership::new(seen),
            resign,
            ended,
        }
    }

    /// A view of the current leadership.
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Releases the Lease, so that the next leader starts before the Lease expires. Call this after the leader's last write.
    pub async fn resign(self) {
        self.resign.cancel();
        // If the task has panicked, the Lease expires.
        let _ = self.ended.await;
    }
}

struct Elector {
    api: Api<Lease>,
    candidate: Candidate,
    metrics: Leading,
    standing: watch::Sender<Standing>,
    seen: Option<Seen>,
}

/// The Lease, and the observation of its record.
type Seen = (Lease, Observation);

enum Attempt {
    Held,
    Waiting,
}

impl Elector {
    async fn run(mut self, resigned: impl Future<Output = ()>) {
        self.campaign(resigned).await;
        self.metrics.leading.set(0);
        self.standing.send_replace(Standing::Over);
    }

    /// Ends when this process loses or releases the Lease. A pending request is completed first: after an aborted write the state
    /// of the Lease would be unknown, and the next leader would have to wait until the Lease expires.
    async fn campaign(&mut self, resigned: impl Future<Output = ()>) {
        let mut resigned = pin!(resigned);
        loop {
            let started = Instant::now();
            let outcome = self.timed_attempt().await;
            self.note(&outcome, started);
            if self.is_lost(&outcome) {
                return;
            }
            tokio::select! {
                () = sleep(self.candidate.terms.retry) => {}
                () = &mut resigned => return self.release().await,
            }
        }
    }

    async fn timed_attempt(&mut self) -> Result<Attempt, Error> {
        let lease = self.candidate.lease;
        match timeout(self.patience(), self.attempt()).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Error::Unanswered(lease)),
        }
    }

    /// Timeout of an attempt: half of the renew deadline, so that a second attempt fits; and never beyond the deadline.
    fn patience(&self) -> Duration {
        let half = self.candidate.terms.renew_deadline / 2;
        match *self.standing.borrow() {
            Standing::Leading(until) => until.saturating_duration_since(Instant::now()).min(half),
            Standing::Unknown | Standing::Standby | Standing::Over => half,
        }
    }

    fn note(&self, outcome: &Result<Attempt, Error>, started: Instant) {
        match outcome {
            Ok(Attempt::Held) => self.held_since(started),
            Ok(Attempt::Waiting) => self.waiting(),
            Err(error) => {
                self.metrics.lease_errors.inc();
                tracing::warn!(%error, "failed to acquire or renew the Lease; retrying");
            }
        }
    }

    /// Leadership counts from before the request, because other candidates may count from the time when the API server handled it.
    fn held_since(&self, started: Instant) {
        let before = self
            .standing
            .send_replace(Standing::Leading(started + self.candidate.terms.renew_deadline));
        if !matches!(before, Standing::Leading(_)) {
            self.metrics.leading.set(1);
            tracing::info!(identity = self.candidate.identity, "this process leads now");
        }
    }

    fn waiting(&self) {
        if *self.standing.borrow() == Standing::Unknown {
            self.standing.send_replace(Standing::Standby);
            tracing::info!(
                identity = self.candidate.identity,
                "another process leads; standing by"
            );
        }
    }

    fn is_lost(&self, outcome: &Result<Attempt, Error>) -> bool {
        let Standing::Leading(until) = *self.standing.borrow() else {
            return false;
        };
        matches!(outcome, Ok(Attempt::Waiting)) || Instant::now() >= until
    }

    async fn attempt(&mut self) -> Result<Attempt, Error> {
        let (lease, seen) = self.observed().await?;
        let spec = lease.spec.clone().unwrap_or_default();
        match decide(&seen, &self.candidate.identity, Instant::now()) {
            Decision::Wait => Ok(Attempt::Waiting),
            Decision::Renew => self.write(lease, renewed(&spec, Timestamp::now())).await,
            Decision::Acquire => self.write(lease, self.taken(&spec)).await,
        }
    }

    /// The leader reuses its last write. Standbys, and a leader whose write failed, read the Lease.
    async fn observed(&mut self) -> Result<Seen, Error> {
        if let Some(seen) = self.seen.as_ref().filter(|_| self.is_leading()) {
            return Ok(seen.clone());
        }
        let found = self.api.get_opt(self.candidate.lease).await;
        let found = found.map_err(|error| self.failed(error))?;
        Ok(self.see(found.unwrap_or_else(|| self.missing())))
    }

    fn see(&mut self, lease: Lease) -> Seen {
        let before = self.seen.take().map(|(_, observation)| observation);
        let spec = lease.spec.clone().unwrap_or_default();
        let seen = (lease, Observation::update(before, spec, Instant::now()));
        self.seen.insert(seen).clone()
    }

    fn is_leading(&self) -> bool {
        matches!(*self.standing.borrow(), Standing::Leading(_))
    }

    async fn write(&mut self, lease: Lease, spec: LeaseSpec) -> Result<Attempt, Error> {
        let exists = lease.metadata.resource_version.is_some();
        let wanted = Lease {
            spec: Some(spec),
            ..lease
        };
        let params = params::post();
        let written = if exists {
            self.api.replace(self.candidate.lease, &params, &wanted).await
        } else {
            self.api.create(&params, &wanted).await
        };
        self.written(written)
    }

    fn written(&mut self, written: kube::Result<Lease>) -> Result<Attempt, Error> {
        match written {
            Ok(lease) => {
                self.see(lease);
                Ok(Attempt::Held)
            }
            Err(error) => {
                self.forget_version();
                Err(self.failed(error))
            }
        }
    }

    /// Makes a leader read the Lease again after a failed write. A standby keeps the time at which it first saw the record.
    fn forget_version(&mut self) {
        if self.is_leading() {
            self.seen = None;
        }
    }

    async fn release(&mut self) {
        let is_leading = self.is_leading();
        let Some((lease, _)) = self.seen.take().filter(|_| is_leading) else {
            return;
        };
        let spec = released(&lease.spec.clone().unwrap_or_default(), Timestamp::now());
        match timeout(self.patience().min(FAREWELL), self.write(lease, spec)).await {
            Ok(Ok(_)) => tracing::info!("the lease is given up"),
            Ok(Err(error)) => tracing::warn!(%error, "the lease could not be given up; it will run out"),
            Err(_) => tracing::warn!("the lease could not be given up in time; it will run out"),
        }
    }

    fn taken(&self, before: &LeaseSpec) -> LeaseSpec {
        acquired(
            before,
            &self.candidate.identity,
            &self.candidate.terms,
            Timestamp::now(),
        )
    }

    fn missing(&self) -> Lease {
        let metadata = ObjectMeta {
            name: Some(self.candidate.lease.to_owned()),
            ..ObjectMeta::default()
        };
        Lease { metadata, spec: None }
    }

    fn failed(&self, error: kube::Error) -> Error {
        Error::Api {
            name: self.candidate.lease,
            source: Box::new(error),
        }
    }
}

#[cfg(test)]
#[path = "elector_tests.rs"]
mod tests;
