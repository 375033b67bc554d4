//! Reads and writes the Lease. Every write carries the resourceVersion of the read that the decision is based on, so if two
//! candidates write, the API server reports a conflict to one candidate.

use super::{LeaseAction, ObservedLease, Terms, acquired, decide, released, renewed};
use crate::{
    api::{error_text, post_params},
    metrics::Leading,
};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{Api, Client, api::ObjectMeta};
use std::pin::pin;
use std::time::Duration;
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// Timeout for releasing the Lease. Together with the leader's last writes, less than terminationGracePeriodSeconds.
const RELEASE: Duration = Duration::from_secs(5);

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
enum Error {
    /// The API server rejected the request or was unreachable.
    #[error("the request for Lease {name} failed: {}", error_text(source))]
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
        let (standing, view) = watch::channel(Standing::Unknown);
        let resign = CancellationToken::new();
        let api = Api::namespaced(client, &candidate.namespace);
        let elector = Elector {
            api,
            candidate,
            metrics,
            standing,
            observed: None,
        };
        let ended = tokio::spawn(elector.run(resign.clone().cancelled_owned()));
        Self {
            leadership: Leadership(view),
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

/// The role of this process in the election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// The process has not read the Lease yet.
    Unknown,
    /// Another process leads.
    Standby,
    /// This process leads until this time; each renewal extends the time.
    Leading(Instant),
    /// The process has left the election.
    Over,
}

/// A view of the [`Standing`]. Clones share the state.
#[derive(Clone, Debug)]
pub struct Leadership(watch::Receiver<Standing>);

impl Leadership {
    /// Whether this process leads now.
    #[cfg(test)]
    fn is_held(&self) -> bool {
        matches!(*self.0.borrow(), Standing::Leading(until) if Instant::now() < until)
    }

    /// Resolves when the process has read the Lease.
    pub async fn known(&mut self) {
        self.reached(|standing| *standing != Standing::Unknown).await;
    }

    /// Resolves when this process leads; stays pending if the election ends first.
    pub async fn acquired(&mut self) {
        self.reached(|standing| matches!(standing, Standing::Leading(_)))
            .await;
    }

    /// Resolves when the leadership ends, and at once if this process does not lead.
    pub async fn lost(&mut self) {
        loop {
            let Standing::Leading(until) = *self.0.borrow_and_update() else {
                return;
            };
            tokio::select! {
                biased;
                // A renewal that came in time wins over a timer that fires late.
                changed = self.0.changed() => if changed.is_err() { return },
                () = sleep_until(until) => return,
            }
        }
    }

    async fn reached(&mut self, standing: impl FnMut(&Standing) -> bool) {
        if self.0.wait_for(standing).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

struct Elector {
    api: Api<Lease>,
    candidate: Candidate,
    metrics: Leading,
    standing: watch::Sender<Standing>,
    observed: Option<ObservedLease>,
}

/// The outcome of an attempt without an error.
enum Attempt {
    /// This process holds the Lease.
    Held,
    /// Another process holds the Lease.
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
            let outcome = timeout(self.patience(), self.attempt()).await;
            let outcome = outcome.unwrap_or(Err(Error::Unanswered(self.candidate.lease)));
            if outcome.is_err() && self.is_leading() {
                // The API server may have applied the write. A standby keeps the time at which it first saw the record.
                self.observed = None;
            }
            self.report(&outcome, started);
            if self.is_lost(&outcome) {
                return;
            }
            tokio::select! {
                () = sleep(self.candidate.terms.retry) => {}
                () = &mut resigned => return self.release().await,
            }
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

    fn report(&self, outcome: &Result<Attempt, Error>, started: Instant) {
        match outcome {
            Ok(Attempt::Held) => self.on_held(started),
            Ok(Attempt::Waiting) => self.on_waiting(),
            Err(error) => {
                self.metrics.lease_errors.inc();
                tracing::warn!(%error, "failed to acquire or renew the Lease; retrying");
            }
        }
    }

    /// Leadership counts from before the request, because other candidates may count from the time when the API server handled it.
    fn on_held(&self, started: Instant) {
        let until = started + self.candidate.terms.renew_deadline;
        let before = self.standing.send_replace(Standing::Leading(until));
        if !matches!(before, Standing::Leading(_)) {
            self.metrics.leading.set(1);
            tracing::info!(identity = self.candidate.identity, "this process leads now");
        }
    }

    fn on_waiting(&self) {
        if *self.standing.borrow() == Standing::Unknown {
            self.standing.send_replace(Standing::Standby);
            let identity = &self.candidate.identity;
            tracing::info!(identity, "another process leads; standing by");
        }
    }

    fn is_lost(&self, outcome: &Result<Attempt, Error>) -> bool {
        let Standing::Leading(until) = *self.standing.borrow() else {
            return false;
        };
        matches!(outcome, Ok(Attempt::Waiting)) || Instant::now() >= until
    }

    fn is_leading(&self) -> bool {
        matches!(*self.standing.borrow(), Standing::Leading(_))
    }

    async fn attempt(&mut self) -> Result<Attempt, Error> {
        let observed = self.observe().await?;
        let Candidate { identity, terms, .. } = &self.candidate;
        let (before, now) = (observed.spec(), Timestamp::now());
        let spec = match decide(&observed, identity, Instant::now()) {
            LeaseAction::Wait => return Ok(Attempt::Waiting),
            LeaseAction::Renew => renewed(&before, now),
            LeaseAction::Acquire => acquired(&before, identity, terms, now),
        };
        self.write(observed.lease, spec).await.map(|()| Attempt::Held)
    }

    /// The leader reuses its last write. Standbys, and a leader whose last attempt failed, read the Lease.
    async fn observe(&mut self) -> Result<ObservedLease, Error> {
        if let Some(observed) = self.observed.as_ref().filter(|_| self.is_leading()) {
            return Ok(observed.clone());
        }
        let found = self.api.get_opt(self.candidate.lease).await;
        let found = found.map_err(|error| self.failed(error))?;
        Ok(self.remember(found.unwrap_or_else(|| self.missing())))
    }

    fn remember(&mut self, lease: Lease) -> ObservedLease {
        let observed = ObservedLease::update(self.observed.take(), lease, Instant::now());
        self.observed.insert(observed).clone()
    }

    async fn write(&mut self, lease: Lease, spec: LeaseSpec) -> Result<(), Error> {
        let wanted = Lease {
            spec: Some(spec),
            ..lease
        };
        let params = post_params();
        let written = if wanted.metadata.resource_version.is_some() {
            self.api.replace(self.candidate.lease, &params, &wanted).await
        } else {
            self.api.create(&params, &wanted).await
        };
        self.remember(written.map_err(|error| self.failed(error))?);
        Ok(())
    }

    async fn release(&mut self) {
        if !self.is_leading() {
            return;
        }
        match timeout(self.patience().min(RELEASE), self.give_back()).await {
            Ok(Ok(())) => tracing::info!("the Lease is released"),
            Ok(Err(error)) => tracing::warn!(%error, "failed to release the Lease; it will expire"),
            Err(_) => tracing::warn!("failed to release the Lease in time; it will expire"),
        }
    }

    async fn give_back(&mut self) -> Result<(), Error> {
        let observed = self.observe().await?;
        let action = decide(&observed, &self.candidate.identity, Instant::now());
        if !matches!(action, LeaseAction::Renew) {
            return Ok(());
        }
        let spec = released(&observed.spec(), Timestamp::now());
        self.write(observed.lease, spec).await
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
mod tests;
