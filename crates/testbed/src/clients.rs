//! The administrator's client. A client's connections end with the runtime that made them, and each test has a runtime of its own;
//! but within one, a kubeconfig and a handshake for each question are more than it takes.

use crate::error::{Error, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::fmt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::runtime::{Handle, Id};

/// That of the runtime that asked last.
#[derive(Default)]
pub(crate) struct Kept(Mutex<Option<(Id, Client)>>);

impl Kept {
    /// That of the runtime that asks.
    pub(crate) async fn here(&self, kubeconfig: &Path) -> Result<Client> {
        let here = Handle::current().id();
        if let Some((_, client)) = self.kept().as_ref().filter(|(of, _)| *of == here) {
            return Ok(client.clone());
        }
        let client = client(kubeconfig).await?;
        *self.kept() = Some((here, client.clone()));
        Ok(client)
    }

    /// A later runtime may have the same number.
    pub(crate) fn forget(&self) {
        *self.kept() = None;
    }

    // Whole after a panic: each change is one assignment.
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

/// A client of whom this kubeconfig names.
pub(crate) async fn client(kubeconfig: &Path) -> Result<Client> {
    Client::try_from(config(kubeconfig).await?).map_err(Error::api("making a client"))
}

/// Likewise, for those who make their own.
pub(crate) async fn config(kubeconfig: &Path) -> Result<Config> {
    let options = KubeConfigOptions::default();
    Ok(Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig)?, &options).await?)
}
