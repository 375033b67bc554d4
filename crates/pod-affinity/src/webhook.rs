//! The webhook process: every part is made here and joined; none of them knows another.

use crate::args::WebhookArgs;
use anyhow::{Context, anyhow, bail};
use kube::{Client, Config};
use process::{
    admin::Admin,
    metrics::{Registry, Serving},
    readiness::Readiness,
    server_clock::ServerClock,
    shutdown::Shutdown,
    tls::{
        serve::{Drain, Listening, Service},
        sources::{self, Files},
        store::{self, Store},
    },
};
use std::net::SocketAddr;
use tokio::runtime::Builder;

/// One thread: an answer takes microseconds, and a replica is meant to be small.
pub(crate) fn run(args: WebhookArgs) -> anyhow::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(serve(args));
    // A name lookup that hangs must not hold up the end.
    runtime.shutdown_background();
    outcome
}

async fn serve(args: WebhookArgs) -> anyhow::Result<()> {
    let WebhookArgs {
        listen,
        admin,
        drain_delay,
        drain_deadline,
        client_silence,
        files,
        namespace,
    } = args;
    let shutdown = Shutdown::on_signals()?;
    let readiness = Readiness::default();
    let mut registry = Registry::new(env!("CARGO_PKG_VERSION"));
    let metrics = Serving::register(registry.prefixed());
    let router = admission::router(admission::Metrics::register(registry.prefixed()));
    let store = Store::new(
        readiness.condition(store::CONDITION, "not looked for yet"),
        metrics.clone(),
    );
    let tls = store.server_config().context("TLS cannot be set up")?;
    let source = Source::new(files.map(Files::from), namespace.namespace).await?;

    let listening = Listening::bind(listen).await?;
    announce("webhook", listen, listening.address());
    let admin_server = Admin::bind(admin.admin_listen).await?;
    announce("admin", admin.admin_listen, admin_server.address());

    let drain = Drain {
        delay: drain_delay,
        deadline: drain_deadline,
    };
    let service = Service {
        router,
        tls,
        silence: client_silence,
        drain,
        shutdown: shutdown.clone(),
        readiness: readiness.clone(),
        metrics,
    };
    tokio::select! {
        served = listening.serve(service) => Ok(served?),
        ended = admin_server.serve(readiness, registry, client_silence) => Ok(ended?),
        () = source.follow(store) => bail!("the task that loads the certificate has ended"),
        () = shutdown.forced() => bail!("ended at once by a second signal; requests may have been lost"),
    }
}

/// Tells where a port is; on standard output too if the system chose it, for whoever started this process.
pub(crate) fn announce(what: &str, asked: SocketAddr, address: SocketAddr) {
    tracing::info!(%address, "listening: {what}");
    if asked.port() == 0 {
        println!("{what} {address}");
    }
}

enum Source {
    Files(Files),
    Secret(Client, String),
}

impl Source {
    async fn new(files: Option<Files>, namespace: String) -> anyhow::Result<Self> {
        match files {
            Some(files) => Ok(Self::Files(files)),
            None => Ok(Self::Secret(client(&ServerClock::default()).await?, namespace)),
        }
    }

    async fn follow(self, store: Store) {
        match self {
            Self::Files(files) => sources::follow_files(&files, store).await,
            Self::Secret(client, namespace) => sources::follow_secret(client, &namespace, store).await,
        }
    }
}

/// From KUBECONFIG, or from the pod's own service account. Its answers set the clock.
pub(crate) async fn client(clock: &ServerClock) -> anyhow::Result<Client> {
    let hint = "set KUBECONFIG, or run in a pod with a service account token";
    let config = Config::infer()
        .await
        .map_err(|error| anyhow!("no way to an API server: {error}; {hint}"))?;
    clock
        .client(config)
        .map_err(|error| anyhow!("no way to an API server: {error}; {hint}"))
}
