//! Startup code that the webhook and the controller share.

use anyhow::anyhow;
use kube::{Client, Config};
use runtime::server::{Error, Listening, Port};
use runtime::server_clock::ServerClock;
use std::net::SocketAddr;
use tokio::runtime::Builder;

/// Runs a process on one thread until it ends.
pub(crate) fn block_on(process: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(process);
    // A DNS lookup that hangs must not delay the end of the process.
    runtime.shutdown_background();
    outcome
}

/// Binds a port and logs its address. If the operating system chose the port, the address is also printed on standard output, for
/// the program that started this process.
pub(crate) async fn listen(port: &'static Port, wanted: SocketAddr) -> Result<Listening, Error> {
    let listening = Listening::bind(port, wanted).await?;
    let (name, address) = (port.name, listening.address());
    tracing::info!(%address, "listening: {name}");
    if wanted.port() == 0 {
        println!("{name} {address}");
    }
    Ok(listening)
}

/// A client from KUBECONFIG or the pod's service account. Its responses set the clock.
pub(crate) async fn client(clock: &ServerClock) -> anyhow::Result<Client> {
    let config = Config::infer().await.map_err(connect_error)?;
    clock.client(config).map_err(connect_error)
}

fn connect_error(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!(
        "cannot connect to an API server: {error}; set KUBECONFIG, or run in a pod with a service account token"
    )
}
