//! Caches the administrator's client per runtime. The connections of a client end with the runtime that created the client, and
//! each test has its own runtime. Within a runtime, the cache saves a kubeconfig and a TLS handshake for each request.

use crate::error::{Error, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::fmt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::runtime::{Handle, Id};

/// The client of the runtime that used the cache last.
#[derive(Default)]
pub(crate) struct Kept(Mutex<Option<(Id, Client)>>);

impl Kept {
    /// The client of the current runtime.
    pub(crate) async fn here(&self, kubeconfig: &Path) -> Result<Client> {
        let here = Handle::current().id();
        if let Some((_, client)) = self.kept().as_ref().filter(|(of, _)| *of == here) {
            return Ok(client.clone());
        }
        let client = client(kubeconfig).await?;
        *self.kept() = Some((here, client.clone()));
        Ok(client)
    }

    /// Drops the client, because a later runtime may have the same id.
    pub(crate) fn forget(&self) {
        *self.kept() = None;
    }

    // The value is valid after a panic, because each change is one assignment.
    fn kept(&self) -> MutexGuard<'_, Option<(Id, Client)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = self.kept().as_ref().map(|(of, _)| *of);
        f.debug_tuple("Kept").field(&of).finish()
    }
}

/// A client for the user of this kubeconfig.
pub(crate) async fn client(kubeconfig: &Path) -> Result<Client> {
    Client::try_from(config(kubeconfig).await?).map_err(Error::api("making a client"))
}

/// The configuration for callers that create their own client.
pub(crate) async fn config(kubeconfig: &Path) -> Result<Config> {
    let options = KubeConfigOptions::default();
    Ok(Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig)?, &options).await?)
}
