//! The webhook process: creates all parts and connects them. The parts are independent of each other.

use crate::args::WebhookArgs;
use crate::start::{client, listen};
use anyhow::{Context, bail};
use kube::Client;
use process::{
    admin,
    metrics::{Registry, Serving},
    readiness::Readiness,
    server_clock::ServerClock,
    shutdown::Shutdown,
    tls::{
        serve::{self, Drain, Service},
        sources::{self, Files},
        store::{self, Store},
    },
};
use tokio::runtime::Builder;

/// Runs on one thread, because a response takes microseconds and a replica should be small.
pub(crate) fn run(args: WebhookArgs) -> anyhow::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(serve(args));
    // A DNS lookup that hangs must not delay the end of the process.
    runtime.shutdown_background();
    outcome
}

async fn serve(args: WebhookArgs) -> anyhow::Result<()> {
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
    let source = Source::new(args.files.map(Files::from), args.namespace.namespace).await?;
    let port = listen(&serve::PORT, args.listen).await?;
    let admin_port = listen(&admin::PORT, args.admin.admin_listen).await?;
    let service = Service {
        router,
        tls,
        silence: args.client_silence,
        drain: Drain {
            delay: args.drain_delay,
            deadline: args.drain_deadline,
        },
        shutdown: shutdown.clone(),
        readiness: readiness.clone(),
        metrics,
    };
    tokio::select! {
        served = serve::serve(port, service) => Ok(served?),
        ended = admin::serve(admin_port, readiness, registry, args.client_silence) => Ok(ended?),
        () = source.follow(store) => bail!("the task that loads the certificate has ended"),
        () = shutdown.forced() => bail!("ended at once by a second signal; requests may have been lost"),
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
