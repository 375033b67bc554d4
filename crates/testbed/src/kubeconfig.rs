//! Kubeconfig files, with a client certificate for the parts and with a token for ServiceAccounts; and the administrator's client.
//!
//! The client is cached per runtime: the connections of a client end with the runtime that created the client, and each test has its
//! own runtime. Within a runtime, the cache saves a TLS handshake for each request.

use crate::error::{Error, Result};
use crate::pki::Identity;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tempfile::NamedTempFile;
use tokio::runtime::{Handle, Id};

/// An API server answers within a minute, and ends a watch within five.
const LONGEST_SILENCE: Duration = Duration::from_mins(6);

/// The credentials of a kubeconfig's user.
pub(crate) enum Credentials<'a> {
    Certificate(&'a Identity),
    Token(&'a str),
}

/// Writes a kubeconfig for the API server at `port`.
pub(crate) fn write(path: &Path, port: u16, ca: &Path, credentials: &Credentials<'_>) -> Result<PathBuf> {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "testbed",
        "clusters": [{"name": "testbed", "cluster": {
            "server": format!("https://127.0.0.1:{port}"),
            "certificate-authority": ca,
        }}],
        "users": [{"name": "testbed", "user": user(credentials)}],
        "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "testbed"}}],
    });
    // JSON is valid YAML, so every reader of kubeconfigs accepts it.
    replace(path, &format!("{config:#}\n")).map_err(Error::io("writing", path))?;
    Ok(path.to_owned())
}

/// Replaces the file atomically, because another replica of the same ServiceAccount may read it.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut file = NamedTempFile::new_in(path.parent().unwrap_or(Path::new(".")))?;
    file.write_all(text.as_bytes())?;
    file.persist(path)?;
    Ok(())
}

fn user(credentials: &Credentials<'_>) -> Value {
    match credentials {
        Credentials::Certificate(Identity { certificate, key }) => {
            json!({"client-certificate": certificate, "client-key": key})
        }
        Credentials::Token(token) => json!({"token": token}),
    }
}

/// The client of the runtime that used the cache last.
#[derive(Default)]
pub(crate) struct CachedClient(Mutex<Option<(Id, Client)>>);

impl CachedClient {
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

impl fmt::Debug for CachedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = self.kept().as_ref().map(|(of, _)| *of);
        f.debug_tuple("CachedClient").field(&of).finish()
    }
}

/// A client for the user of this kubeconfig.
pub(crate) async fn client(kubeconfig: &Path) -> Result<Client> {
    Client::try_from(config(kubeconfig).await?).map_err(Error::api("creating a client"))
}

/// The configuration for callers that create their own client.
pub(crate) async fn config(kubeconfig: &Path) -> Result<Config> {
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig)?, &options).await?;
    // kube takes a proxy from the environment, also for an API server on this machine.
    config.proxy_url = None;
    config.read_timeout = Some(LONGEST_SILENCE);
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_that_is_replaced_is_never_read_partially() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let write = || write(&path, 1, Path::new("ca"), &Credentials::Token("token")).unwrap();
        write();
        std::thread::scope(|scope| {
            let writes = scope.spawn(|| (0..500).for_each(|_| drop(write())));
            while !writes.is_finished() {
                let text = std::fs::read_to_string(&path).unwrap();
                assert!(text.contains("current-context"), "{text:?}");
            }
        });
        assert_eq!(
            folder.path().read_dir().unwrap().count(),
            1,
            "nothing else is left"
        );
    }
}
