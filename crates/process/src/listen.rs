//! A port is bound before it is served: the address is known early, and a port that is in use ends the start.

use std::{io, net::SocketAddr};
use thiserror::Error;
use tokio::net::TcpListener;

/// A port of the process.
#[derive(Debug)]
pub struct Port {
    /// Name of the port.
    pub name: &'static str,
    /// The purpose of the port, for error messages.
    pub serves: &'static str,
    /// The flag that sets the address.
    pub flag: &'static str,
}

/// The reason why a port is not served.
#[derive(Debug, Error)]
pub enum Error {
    /// Binding failed.
    #[error("cannot listen on {address} for {}: {source}; choose another {}", port.serves, port.flag)]
    Bind {
        /// The port.
        port: &'static Port,
        /// The address from the flag.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Serving failed.
    #[error("the server for {} ended: {source}", port.serves)]
    Serve {
        /// The port.
        port: &'static Port,
        /// The error of the operating system.
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
    /// Binds the port; port 0 selects any free port.
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

    /// The bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
