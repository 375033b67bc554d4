//! The webhook process: creates all parts and connects them. The parts are independent of each other.

use crate::args::WebhookArgs;
use crate::start::{block_on, client, listen};
use anyhow::{Context, bail};
use kube::Client;
use runtime::{
    admin,
    metrics::{Registry, Serving},
    readiness::Readiness,
    server_clock::ServerClock,
    shutdown::Shutdown,
    tls::{
        self, ServedCertificate,
        serve::{self, Drain, TlsServer},
        sources::{self, CertificateFiles},
    },
};

/// Runs on one thread, because a response takes microseconds and a replica should be small.
pub(crate) fn run(args: WebhookArgs) -> anyhow::Result<()> {
    block_on(serve(args))
}

async fn serve(args: WebhookArgs) -> anyhow::Result<()> {
    let shutdown = Shutdown::on_signals()?;
    let readiness = Readiness::default();
    let mut registry = Registry::new(env!("CARGO_PKG_VERSION"));
    let metrics = Serving::register(registry.prefixed());
    let router = admission::router(admission::Metrics::register(registry.prefixed()));
    let condition = readiness.condition(tls::CONDITION, "the certificate has not been read yet");
    let certificate = ServedCertificate::new(condition, metrics.clone()).context("TLS cannot be set up")?;
    let source =
        CertificateSource::new(args.files.map(CertificateFiles::from), args.namespace.namespace).await?;
    let port = listen(&serve::PORT, args.listen).await?;
    let admin_port = listen(&admin::PORT, args.admin.admin_listen).await?;
    let server = TlsServer {
        router,
        tls: certificate.config(),
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
        served = serve::serve(port, server) => Ok(served?),
        ended = admin::serve(admin_port, readiness, registry) => Ok(ended?),
        () = source.follow(certificate) => bail!("the task that loads the certificate has ended"),
        () = shutdown.forced() => bail!("ended at once by a second signal; requests may have been lost"),
    }
}

enum CertificateSource {
    Files(CertificateFiles),
    Secret(Client, String),
}

impl CertificateSource {
    async fn new(files: Option<CertificateFiles>, namespace: String) -> anyhow::Result<Self> {
        match files {
            Some(files) => Ok(Self::Files(files)),
            None => Ok(Self::Secret(client(&ServerClock::default()).await?, namespace)),
        }
    }

    async fn follow(self, certificate: ServedCertificate) {
        match self {
            Self::Files(files) => sources::follow_files(&files, certificate).await,
            Self::Secret(client, namespace) => sources::follow_secret(client, &namespace, certificate).await,
        }
    }
}
