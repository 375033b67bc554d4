//! Startup code that the webhook and the controller share.

use anyhow::anyhow;
use kube::{Client, Config};
use process::server::{Error, Listening, Port};
use process::server_clock::ServerClock;
use std::net::SocketAddr;

/// Binds a port and logs its address. If the operating system chose the port, the address is also printed on standard output, for
/// the program that started this process.
pub(crate) async fn listen(port: &'static Port, asked: SocketAddr) -> Result<Listening, Error> {
    let listening = Listening::bind(port, asked).await?;
    let (name, address) = (port.name, listening.address());
    tracing::info!(%address, "listening: {name}");
    if asked.port() == 0 {
        println!("{name} {address}");
    }
    Ok(listening)
}

/// A client from KUBECONFIG or the pod's service account. Its responses set the clock.
pub(crate) async fn client(clock: &ServerClock) -> anyhow::Result<Client> {
    let config = Config::infer().await.map_err(no_way)?;
    clock.client(config).map_err(no_way)
}

fn no_way(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("no way to an API server: {error}; set KUBECONFIG, or run in a pod with a service account token")
}
