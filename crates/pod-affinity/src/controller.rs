//! The controller process: certificates, configuration and reconciler. Only the leader renews certificates and reconciles.

use crate::{
    args::{Certificates, ControllerArgs},
    identity, rejections,
    start::{client, listen},
};
use anyhow::{anyhow, bail};
use jiff::Timestamp;
use kube::Client;
use placement::{config::Config, keys};
use process::{
    admin,
    certs::keeper::Keeper,
    config_watch::{self, ConfigWatch},
    lease::{Candidate, Election, Leadership, Terms},
    metrics::{Leading, Registry},
    readiness::{Readiness, ReadinessCondition},
    server::SILENCE,
    server_clock::ServerClock,
    shutdown::Shutdown,
    versions,
};
use std::{future::pending, sync::Arc, time::Duration};
use tokio::{runtime::Builder, sync::watch, time::sleep};

/// A busy reconciler must not delay the renewal of the Lease.
const THREADS: usize = 2;
/// Timeout for the reconciler's last writes. With the release of the Lease, far below terminationGracePeriodSeconds.
const LAST_WRITES: Duration = Duration::from_secs(15);

pub(crate) fn run(args: ControllerArgs) -> anyhow::Result<()> {
    let terms = args.election.terms().unwrap_or_else(|unsound| unsound.exit());
    let runtime = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(serve(args, terms));
    // A DNS lookup that hangs must not delay the end of the process.
    runtime.shutdown_background();
    outcome
}

async fn serve(args: ControllerArgs, terms: Terms) -> anyhow::Result<()> {
    let shutdown = Shutdown::on_signals()?;
    let readiness = Readiness::default();
    let mut registry = Registry::new(env!("CARGO_PKG_VERSION"));
    let metrics = Leading::register(registry.prefixed());
    if args.certificates != Certificates::None {
        metrics.register_certificates(registry.prefixed());
    }
    let clock = ServerClock::default();
    let parts = Parts {
        client: client(&clock).await?,
        clock,
        counts: controller::Metrics::register(registry.prefixed()),
        metrics,
        shutdown: shutdown.clone(),
        identity: args.identity.clone().unwrap_or_else(identity::unique),
        terms,
        args,
    };
    let admin_port = listen(&admin::PORT, parts.args.admin.admin_listen).await?;
    let checked = versions::check(parts.client.clone());
    let candidate = candidacy(parts, readiness.clone());
    tokio::select! {
        outcome = candidate => outcome,
        ended = admin::serve(admin_port, readiness, registry, SILENCE) => Ok(ended?),
        () = checked => bail!("the task that checks the versions of the API server and Tekton has ended"),
        () = shutdown.forced() => bail!("ended at once by a second signal; the lease runs out by itself"),
    }
}

/// The settings and clients of the leader.
struct Parts {
    args: ControllerArgs,
    terms: Terms,
    identity: String,
    client: Client,
    clock: ServerClock,
    counts: controller::Metrics,
    metrics: Leading,
    shutdown: Shutdown,
}

/// Takes part in the election, leads when elected, and releases the Lease after the last write.
async fn candidacy(parts: Parts, readiness: Readiness) -> anyhow::Result<()> {
    let configuration = readiness.condition(config_watch::CONDITION, "the ConfigMap has not been read yet");
    let elected = readiness.condition("election", "the Lease has not been seen yet");
    let config = ConfigWatch::start(
        parts.client.clone(),
        &parts.args.namespace.namespace,
        configuration,
        parts.metrics.clone(),
    );
    let election = Election::start(parts.client.clone(), parts.candidate(), parts.metrics.clone());
    let mut leadership = election.leadership();
    let shutdown = parts.shutdown.clone();
    let outcome = tokio::select! {
        () = elevated(&mut leadership, &elected) => lead(parts, config, leadership).await,
        () = shutdown.asked() => Ok(()),
    };
    election.resign().await;
    outcome
}

/// Resolves when this process leads. The process is ready when it has read the Lease, because a standby can lead at any time.
async fn elevated(leadership: &mut Leadership, elected: &ReadinessCondition) {
    leadership.known().await;
    elected.met();
    leadership.acquired().await;
}

async fn lead(parts: Parts, config: ConfigWatch, mut leadership: Leadership) -> anyhow::Result<()> {
    let refused = rejections::report(parts.client.clone(), parts.identity.clone(), config.rejections());
    let certificates = certificates(&parts);
    tokio::select! {
        outcome = reconcile(parts, config) => outcome,
        () = certificates => bail!("the task that keeps the certificates has ended"),
        () = refused => bail!("the task that reports refused configurations has ended"),
        () = leadership.lost() => Err(lost()),
    }
}

fn lost() -> anyhow::Error {
    anyhow!(
        "the Lease {} could not be renewed in time or was taken by another; the process ends, so that nothing is written \
         by two leaders, and stands for election again when it is restarted",
        keys::CONTROLLER_LEASE
    )
}

fn certificates(parts: &Parts) -> impl Future<Output = ()> + Send + use<> {
    let keeper = match parts.args.certificates {
        Certificates::Managed => Some(parts.keeper()),
        Certificates::External => Some(parts.keeper().of_external_certificates()),
        Certificates::None => None,
    };
    async move {
        match keeper {
            Some(keeper) => keeper.run().await,
            None => pending().await,
        }
    }
}

/// Waits for a valid configuration, reconciles until the shutdown, and then waits for the last writes for a limited time.
async fn reconcile(parts: Parts, config: ConfigWatch) -> anyhow::Result<()> {
    let shutdown = parts.shutdown.clone();
    let active = tokio::select! {
        active = config.active() => active,
        () = shutdown.asked() => return Ok(()),
    };
    let overdue = async {
        shutdown.asked().await;
        sleep(LAST_WRITES).await;
    };
    tokio::select! {
        outcome = controller::run(parts.context(active), shutdown.asked()) => Ok(outcome?),
        () = overdue => bail!("the last writes took too long; they are taken up by the next leader"),
    }
}

impl Parts {
    fn candidate(&self) -> Candidate {
        Candidate {
            namespace: self.args.namespace.namespace.clone(),
            lease: keys::CONTROLLER_LEASE,
            identity: self.identity.clone(),
            terms: self.terms.clone(),
        }
    }

    fn keeper(&self) -> Keeper {
        Keeper::new(
            self.client.clone(),
            &self.args.namespace.namespace,
            Arc::new(Timestamp::now),
            self.metrics.clone(),
        )
        .with_settle_time(self.args.certificate_settle_time)
    }

    fn context(self, config: watch::Receiver<Arc<Config>>) -> controller::Context {
        let clock = self.clock;
        controller::Context {
            client: self.client,
            clock: Arc::new(move || clock.now()),
            config,
            image: self.args.placeholder_image,
            metrics: self.counts,
            namespace: self.args.namespace.namespace,
            instance: self.identity,
        }
    }
}
