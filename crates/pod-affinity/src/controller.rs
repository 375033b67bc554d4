//! The controller process: the certificates, the configuration and the reconciler, run by the leader alone.

use crate::{
    args::{Certificates, ControllerArgs, ElectionTerms},
    identity, rejections,
    webhook::{announce, client},
};
use anyhow::{anyhow, bail};
use jiff::Timestamp;
use kube::Client;
use placement::{config::Config, keys};
use process::{
    admin::Admin,
    certs::keeper::Keeper,
    config_watch::{self, ConfigWatch},
    http_limits::SILENCE,
    lease::{
        Terms,
        elector::{Candidate, Election},
        leadership::Leadership,
    },
    metrics::{Leading, Registry},
    readiness::{Condition, Readiness},
    server_clock::ServerClock,
    shutdown::Shutdown,
    versions,
};
use std::{future::pending, sync::Arc, time::Duration};
use tokio::{runtime::Builder, sync::watch, time::sleep};

/// Reconciling must not keep the lease from being renewed.
const THREADS: usize = 2;
/// For the reconciler's last writes; with the lease's release well within terminationGracePeriodSeconds.
const LAST_WRITES: Duration = Duration::from_secs(15);

pub(crate) fn run(args: ControllerArgs) -> anyhow::Result<()> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(serve(args));
    // A name lookup that hangs must not hold up the end.
    runtime.shutdown_background();
    outcome
}

async fn serve(args: ControllerArgs) -> anyhow::Result<()> {
    let ControllerArgs {
        admin,
        placeholder_image,
        namespace,
        identity,
        certificates,
        certificate_settle_time,
        election: ElectionTerms(terms),
    } = args;
    let shutdown = Shutdown::on_signals()?;
    let readiness = Readiness::default();
    let mut registry = Registry::new(env!("CARGO_PKG_VERSION"));
    let metrics = Leading::register(registry.prefixed());
    if certificates != Certificates::None {
        metrics.register_certificates(registry.prefixed());
    }
    let clock = ServerClock::default();
    let context = Parts {
        client: client(&clock).await?,
        clock,
        counts: controller::Metrics::register(registry.prefixed()),
        metrics,
        shutdown: shutdown.clone(),
        namespace: namespace.namespace,
        image: placeholder_image,
        identity: identity.unwrap_or_else(identity::unique),
        certificates,
        certificate_settle_time,
        terms,
    };
    let admin_server = Admin::bind(admin.admin_listen).await?;
    announce("admin", admin.admin_listen, admin_server.address());
    let judged = versions::judge(context.client.clone());
    let candidate = candidacy(context, readiness.clone());
    tokio::select! {
        outcome = candidate => outcome,
        ended = admin_server.serve(readiness, registry, SILENCE) => Ok(ended?),
        () = judged => bail!("the task that checks the versions of the API server and Tekton has ended"),
        () = shutdown.forced() => bail!("ended at once by a second signal; the lease runs out by itself"),
    }
}

/// What the leader needs.
struct Parts {
    client: Client,
    clock: ServerClock,
    counts: controller::Metrics,
    metrics: Leading,
    shutdown: Shutdown,
    namespace: String,
    image: String,
    identity: String,
    certificates: Certificates,
    certificate_settle_time: Duration,
    terms: Terms,
}

/// Stands for election, leads once elected, and gives the lease up after the last write.
async fn candidacy(parts: Parts, readiness: Readiness) -> anyhow::Result<()> {
    let configuration = readiness.condition(config_watch::CONDITION, "the ConfigMap has not been read yet");
    let elected = readiness.condition("election", "the Lease has not been seen yet");
    let config = ConfigWatch::start(
        parts.client.clone(),
        &parts.namespace,
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

/// Ready as soon as the Lease was seen: a standby that can take over at any time is what it is meant to be.
async fn elevated(leadership: &mut Leadership, elected: &Condition) {
    leadership.known().await;
    elected.met();
    leadership.acquired().await;
}

async fn lead(parts: Parts, config: ConfigWatch, mut leadership: Leadership) -> anyhow::Result<()> {
    let refused = rejections::tell(parts.client.clone(), parts.identity.clone(), config.rejections());
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
    let keeper = match parts.certificates {
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

/// Waits for a configuration, reconciles until asked to end, and then for the last writes, but not for ever.
async fn reconcile(parts: Parts, mut config: ConfigWatch) -> anyhow::Result<()> {
    let shutdown = parts.shutdown.clone();
    let in_force = tokio::select! {
        in_force = config.in_force() => in_force,
        () = shutdown.asked() => return Ok(()),
    };
    let overdue = async {
        shutdown.asked().await;
        sleep(LAST_WRITES).await;
    };
    tokio::select! {
        outcome = controller::run(parts.context(in_force), shutdown.asked()) => Ok(outcome?),
        () = overdue => bail!("the last writes took too long; they are taken up by the next leader"),
    }
}

impl Parts {
    fn candidate(&self) -> Candidate {
        Candidate {
            namespace: self.namespace.clone(),
            lease: keys::CONTROLLER_LEASE,
            identity: self.identity.clone(),
            terms: self.terms.clone(),
        }
    }

    fn keeper(&self) -> Keeper {
        Keeper::new(
            self.client.clone(),
            &self.namespace,
            Arc::new(Timestamp::now),
            self.metrics.clone(),
        )
        .with_settle_time(self.certificate_settle_time)
    }

    fn context(self, config: watch::Receiver<Arc<Config>>) -> controller::Context {
        let Self {
            client,
            clock,
            counts,
            image,
            namespace,
            identity,
            metrics: _,
            shutdown: _,
            certificates: _,
            certificate_settle_time: _,
            terms: _,
        } = self;
        controller::Context {
            client,
            clock: Arc::new(move || clock.now()),
            config,
            image,
            metrics: counts,
            namespace,
            instance: identity,
        }
    }
}
