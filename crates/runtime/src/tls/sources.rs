//! The sources of the serving certificate: a watch of our Secret, or two files that are read every few seconds, because the kubelet
//! replaces mounted Secrets by a symlink swap, which file notifications miss. [`ServedCertificate`] checks the certificates.

use super::{PemPair, ServedCertificate};
use crate::api;
use crate::certs::{StoredCertificates, can_serve, service_names};
use crate::install;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    runtime::{WatchStreamExt, watcher},
};
use std::{fs, io, path::PathBuf, pin::pin, time::Duration};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Interval of reads of the files.
const POLL: Duration = Duration::from_secs(10);
/// Interval of checks of an unchanged Secret.
const RECHECK: Duration = Duration::from_mins(1);

/// The files of `--tls-cert-file` and `--tls-key-file`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The chain, PEM.
    pub certificate: PathBuf,
    /// The private key, PEM.
    pub key: PathBuf,
}

/// Offers every version of the Secret. The latest version is offered again every minute, because this machine's
/// clock may have caused a refusal. Never returns.
pub async fn follow_secret(client: Client, namespace: &str, served: ServedCertificate) {
    follow_secret_by(Timestamp::now, client, namespace, served).await;
}

/// Like [`follow_secret`], with a clock from the caller.
async fn follow_secret_by(
    clock: impl Fn() -> Timestamp,
    client: Client,
    namespace: &str,
    mut served: ServedCertificate,
) {
    let names = service_names(namespace);
    let secrets = Api::<Secret>::namespaced(client, namespace);
    let mut versions = pin!(watcher::watch_object(secrets, install::CERTIFICATE_SECRET).default_backoff());
    let mut latest = Err("the Secret with the certificate has not been read yet".to_owned());
    loop {
        match timeout(RECHECK, versions.next()).await {
            Ok(Some(Ok(version))) => latest = Ok(version),
            // If the watch fails, the last version stays.
            Ok(Some(Err(error))) if latest.is_err() => latest = Err(unreadable(&error)),
            Ok(Some(Err(_)) | None) | Err(_) => {}
        }
        let now = clock();
        match latest
            .as_ref()
            .map_err(|problem| Unserved::Missing(problem.clone()))
            .and_then(|secret| pair(secret.as_ref(), &names, now))
        {
            Ok(pair) => served.offer(pair, now),
            Err(Unserved::Missing(problem)) => served.report_problem(&problem),
            Err(Unserved::Refused(problem)) => served.refuse(&problem),
        }
    }
}

/// Why the Secret has no certificate to serve.
enum Unserved {
    Missing(String),
    Refused(String),
}

/// Offers every version of the files. Never returns.
pub async fn follow_files(files: &CertificateFiles, mut served: ServedCertificate) {
    let mut ticks = interval(POLL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // These reads block the thread only for a moment, because the files are small and local.
        match read(files) {
            Ok(pair) => served.offer(pair, Timestamp::now()),
            Err(error) => served.report_problem(&format!(
                "a file of the serving certificate cannot be read: {error}"
            )),
        }
    }
}

/// The pair in a Secret. API servers would reject a certificate that no CA of the Secret signed.
fn pair(secret: Option<&Secret>, names: &[String], now: Timestamp) -> Result<PemPair, Unserved> {
    let name = install::CERTIFICATE_SECRET;
    let secret =
        secret.ok_or_else(|| Unserved::Missing(format!("Secret {name} does not exist; apply the manifests again, or create it with the tool that issues certificates")))?;
    let stored = StoredCertificates::from_secret(secret);
    if stored.leaf.is_empty() {
        return Err(Unserved::Missing(format!(
            "Secret {name} holds no certificate yet; the controller's leader, or the tool that issues certificates, writes it"
        )));
    }
    match can_serve(&stored, names, now) {
        Ok(()) => Ok(PemPair {
            chain: stored.leaf,
            key: stored.leaf_key,
        }),
        Err(why) => Err(Unserved::Refused(format!(
            "the certificate in Secret {name} {why}; the controller's leader, or the tool that issues certificates, renews it"
        ))),
    }
}

fn unreadable(error: &watcher::Error) -> String {
    let text = api::watch_error_text(error);
    format!(
        "Secret {} cannot be read: {text}; check the webhook's Role",
        install::CERTIFICATE_SECRET
    )
}

fn read(files: &CertificateFiles) -> io::Result<PemPair> {
    let text = |path: &PathBuf| {
        fs::read_to_string(path)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    };
    Ok(PemPair {
        chain: text(&files.certificate)?,
        key: text(&files.key)?,
    })
}

#[cfg(test)]
mod tests;
