//! The controller process: certificates, configuration and reconciler. Only the leader renews certificates and reconciles.

use crate::{
    args::{Certificates, ControllerArgs},
    config_events, identity,
    start::{block_on, client, listen},
};
use anyhow::{anyhow, bail};
use kube::Client;
use placement::config::Config;
use runtime::install;
use runtime::{
    admin,
    certs::keeper::Keeper,
    config_watch::{self, ConfigWatch},
    lease::{Candidate, Election, Leadership, Terms},
    metrics::{Leading, Registry},
    readiness::{Readiness, ReadinessCondition},
    server_clock::ServerClock,
    shutdown::Shutdown,
    tekton_namespace::{self, TektonNamespace},
    versions,
};
use std::{future::pending, sync::Arc, time::Duration};
use tokio::{sync::watch, time::sleep};

/// Timeout for the reconciler's last writes. With the release of the Lease, far below terminationGracePeriodSeconds.
const LAST_WRITES: Duration = Duration::from_secs(15);

/// Runs on one thread, because waking other threads for each watch event costs a sixth of the CPU time. No step computes long
/// enough to delay the renewal of the Lease.
pub(crate) fn run(args: ControllerArgs) -> anyhow::Result<()> {
    let terms = args.election.terms().unwrap_or_else(|error| error.exit());
    block_on(serve(args, terms))
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
    let client = client(&clock).await?;
    let tekton_namespace = tekton_namespace::find(client.clone());
    let process = Process {
        client,
        tekton_namespace: tekton_namespace.clone(),
        clock,
        counts: controller::Metrics::register(registry.prefixed()),
        metrics,
        shutdown: shutdown.clone(),
        identity: args.identity.clone().unwrap_or_else(identity::unique),
        terms,
        args,
    };
    let admin_port = listen(&admin::PORT, process.args.admin.admin_listen).await?;
    let checked = versions::check(process.client.clone(), tekton_namespace);
    let candidate = candidacy(process, readiness.clone());
    tokio::select! {
        outcome = candidate => outcome,
        ended = admin::serve(admin_port, readiness, registry) => Ok(ended?),
        () = checked => bail!("the task that checks the versions of the API server and Tekton has ended"),
        () = shutdown.forced() => bail!("ended at once by a second signal; the Lease expires by itself"),
    }
}

/// The settings and clients of the leader.
struct Process {
    args: ControllerArgs,
    terms: Terms,
    identity: String,
    client: Client,
    tekton_namespace: TektonNamespace,
    clock: ServerClock,
    counts: controller::Metrics,
    metrics: Leading,
    shutdown: Shutdown,
}

/// Takes part in the election, leads when elected, and releases the Lease after the last write.
async fn candidacy(process: Process, readiness: Readiness) -> anyhow::Result<()> {
    let configuration = readiness.condition(config_watch::CONDITION, "the ConfigMap has not been read yet");
    let condition = readiness.condition("election", "the Lease has not been read yet");
    let config = ConfigWatch::start(
        process.client.clone(),
        &process.args.namespace.namespace,
        configuration,
        process.metrics.clone(),
    );
    let election = Election::start(
        process.client.clone(),
        process.candidate(),
        process.metrics.clone(),
    );
    let mut leadership = election.leadership();
    let shutdown = process.shutdown.clone();
    let outcome = tokio::select! {
        () = elected(&mut leadership, &condition) => Box::pin(lead(process, config, leadership)).await,
        () = shutdown.started() => Ok(()),
    };
    election.resign().await;
    outcome
}

/// Resolves when this process leads. The process is ready when it has read the Lease, because a standby can lead at any time.
async fn elected(leadership: &mut Leadership, condition: &ReadinessCondition) {
    leadership.known().await;
    condition.met();
    leadership.acquired().await;
}

async fn lead(process: Process, config: ConfigWatch, mut leadership: Leadership) -> anyhow::Result<()> {
    let config_events =
        config_events::report(process.client.clone(), process.identity.clone(), config.faults());
    let certificates = certificates(&process);
    tokio::select! {
        outcome = reconcile(process, config) => outcome,
        () = certificates => bail!("the task that keeps the certificates has ended"),
        () = config_events => bail!("the task that reports faults of the ConfigMap has ended"),
        () = leadership.lost() => Err(lost()),
    }
}

fn lost() -> anyhow::Error {
    anyhow!(
        "the Lease {} could not be renewed in time, or another process acquired the Lease; the process ends, so that two leaders \
         do not write, and takes part in the election again after the restart",
        install::CONTROLLER_LEASE
    )
}

fn certificates(process: &Process) -> impl Future<Output = ()> + Send + use<> {
    let keeper = match process.args.certificates {
        Certificates::Managed => Some(process.keeper()),
        Certificates::External => Some(process.keeper().with_external_certificates()),
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
async fn reconcile(process: Process, config: ConfigWatch) -> anyhow::Result<()> {
    let shutdown = process.shutdown.clone();
    let active = tokio::select! {
        active = config.active() => active,
        () = shutdown.started() => return Ok(()),
    };
    let overdue = async {
        shutdown.started().await;
        sleep(LAST_WRITES).await;
    };
    tokio::select! {
        outcome = controller::run(process.context(active), shutdown.started()) => Ok(outcome?),
        () = overdue => bail!("the last writes took too long; the next leader continues them"),
    }
}

impl Process {
    fn candidate(&self) -> Candidate {
        Candidate {
            namespace: self.args.namespace.namespace.clone(),
            lease: install::CONTROLLER_LEASE,
            identity: self.identity.clone(),
            terms: self.terms.clone(),
        }
    }

    fn keeper(&self) -> Keeper {
        let clock = self.clock.clone();
        Keeper::new(
            self.client.clone(),
            &self.args.namespace.namespace,
            Arc::new(move || clock.now()),
            self.metrics.clone(),
        )
        .with_settle_time(self.args.certificate_settle_time)
    }

    fn context(self, config: watch::Receiver<Arc<Config>>) -> controller::Context {
        let clock = self.clock;
        controller::Context {
            tekton_namespace: self.tekton_namespace,
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
