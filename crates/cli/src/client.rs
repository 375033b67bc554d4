//! The cluster that the user means: kubeconfig, context and namespace, found as kubectl finds them.

use crate::args::ClusterArgs;
use crate::ask::{Server, chain};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use thiserror::Error;

/// Why there is no client.
#[derive(Debug, Error)]
pub(crate) enum Unusable {
    /// The configuration.
    #[error("the kubeconfig cannot be used: {0}")]
    Kubeconfig(String),
    /// The client made from it.
    #[error("no client can be made from the kubeconfig: {0}")]
    Client(String),
}

/// A cluster and the namespace to look at.
pub(crate) struct Cluster {
    pub(crate) server: Server,
    pub(crate) namespace: String,
    pub(crate) url: String,
}

/// Makes ready to ask; asks nothing yet.
pub(crate) async fn cluster(args: &ClusterArgs) -> Result<Cluster, Unusable> {
    // Refused only if somebody was first, and nobody was.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let config = config(args).await?;
    let namespace = args
        .namespace
        .clone()
        .unwrap_or_else(|| config.default_namespace.clone());
    let url = config.cluster_url.to_string();
    let client = Client::try_from(config).map_err(|error| Unusable::Client(chain(&error)))?;
    let server = Server {
        client,
        limit: args.request_timeout.0,
    };
    Ok(Cluster {
        server,
        namespace,
        url,
    })
}

async fn config(args: &ClusterArgs) -> Result<Config, Unusable> {
    let options = KubeConfigOptions {
        context: args.context.clone(),
        ..KubeConfigOptions::default()
    };
    let read = match &args.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let config = match read {
        Ok(kubeconfig) => Config::from_custom_kubeconfig(kubeconfig, &options).await,
        // In a pod there is none.
        Err(error) => return Config::incluster().map_err(|_| Unusable::Kubeconfig(chain(&error))),
    };
    let mut config = config.map_err(|error| Unusable::Kubeconfig(chain(&error)))?;
    // A question that fails is told at once; it is the user who tries again.
    config.default_retry = false;
    Ok(config)
}
