//! A port: bound before it is served, so that its address is known and a port that is taken ends the start.

use std::{io, net::SocketAddr};
use thiserror::Error;
use tokio::net::TcpListener;

/// What a port is for.
#[derive(Debug)]
pub struct Port {
    /// Its name.
    pub name: &'static str,
    /// What is served there, as error messages say it.
    pub serves: &'static str,
    /// The flag that sets its address.
    pub flag: &'static str,
}

/// Why a port is not served.
#[derive(Debug, Error)]
pub enum Error {
    /// Binding failed.
    #[error("cannot listen on {address} for {}: {source}; choose another {}", port.serves, port.flag)]
    Bind {
        /// The port.
        port: &'static Port,
        /// The address that the flag has.
        address: SocketAddr,
        /// What the system reported.
        source: io::Error,
    },
    /// Serving failed.
    #[error("the server for {} ended: {source}", port.serves)]
    Serve {
        /// The port.
        port: &'static Port,
        /// What the system reported.
        source: io::Error,
    },
}

/// A bound port that is not served yet.
#[derive(Debug)]
pub struct Listening {
    pub(crate) port: &'static Port,
    pub(crate) listener: TcpListener,
    address: SocketAddr,
}

impl Listening {
    /// Binds the port; port 0 takes any that is free.
    pub async fn bind(port: &'static Port, address: SocketAddr) -> Result<Self, Error> {
        let failed = |source| Error::Bind {
            port,
            address,
            source,
        };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self {
            port,
            listener,
            address,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
