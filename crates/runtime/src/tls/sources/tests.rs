//! Certificates that a Secret or files offer.

use super::*;
use crate::certs::{LEAF_LIFE, tests::issued_at};
use crate::metrics::Serving;
use crate::readiness::Readiness;
use jiff::SignedDuration;
use serde_json::json;
use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};
use tempfile::TempDir;
use testing::{Behaviour, FakeApi};
use tokio::task::JoinHandle;
use tokio::time::sleep;

const SECRETS: &str = "/api/v1/namespaces/ns/secrets";

fn stored() -> StoredCertificates {
    issued_at(Timestamp::now())
}

fn secret() -> String {
    format!("{SECRETS}/{}", install::CERTIFICATE_SECRET)
}

fn put(api: &FakeApi, stored: StoredCertificates) {
    api.put(&secret(), json!({"metadata": {}, "data": stored.into_data()}));
}

fn served() -> (ServedCertificate, Readiness, Serving) {
    let (readiness, metrics) = (Readiness::default(), Serving::default());
    (
        ServedCertificate::new(readiness.condition("certificate", "none yet"), metrics.clone()).unwrap(),
        readiness,
        metrics,
    )
}

/// Time is paused, so the pause ends when no other task can run.
async fn settle() {
    sleep(Duration::from_mins(1)).await;
}

fn follow(api: &FakeApi) -> (Readiness, Serving, JoinHandle<()>) {
    let (served, readiness, metrics) = served();
    let client = api.client();
    let task = tokio::spawn(async move { follow_secret(client, "ns", served).await });
    (readiness, metrics, task)
}

#[tokio::test(start_paused = true)]
async fn a_missing_or_empty_secret_is_reported_until_it_has_a_certificate() {
    let api = FakeApi::new();
    let (readiness, _, _task) = follow(&api);
    settle().await;
    assert!(
        readiness
            .to_string()
            .contains("Secret pod-affinity-webhook-certs does not exist"),
        "{readiness}"
    );
    put(&api, StoredCertificates::default());
    settle().await;
    assert!(
        readiness.to_string().contains("holds no certificate yet"),
        "{readiness}"
    );
    put(&api, stored());
    settle().await;
    assert!(readiness.is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_secret_names_the_role_of_the_webhook() {
    let api = FakeApi::new();
    api.set_behaviour(Behaviour::Forbidding);
    let (readiness, _, _task) = follow(&api);
    settle().await;
    assert!(
        readiness.to_string().contains("check the webhook's Role"),
        "{readiness}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_leaf_that_no_stored_ca_signed_is_refused() {
    let api = FakeApi::new();
    let (good, foreign) = (stored(), stored());
    let mixed = StoredCertificates {
        leaf: foreign.leaf,
        leaf_key: foreign.leaf_key,
        ..good.clone()
    };
    put(&api, mixed.clone());
    let (readiness, metrics, _task) = follow(&api);
    settle().await;
    assert!(
        readiness.to_string().contains("was not signed by any stored CA"),
        "{readiness}"
    );
    put(&api, good);
    settle().await;
    let expiry = metrics.certificate_expiry.get();
    put(&api, mixed);
    settle().await;
    assert!(readiness.is_ready());
    assert_eq!(metrics.certificate_expiry.get(), expiry);
    assert_eq!(loads(&metrics), (1, 2));
}

/// At the start the clock is a month ahead. The watch fails once, then the clock is corrected, and the Secret is not written again.
#[tokio::test(start_paused = true)]
async fn a_secret_refused_because_of_the_clock_is_served_after_the_clock_is_corrected() {
    let api = FakeApi::new();
    put(&api, stored());
    let ahead = Arc::new(AtomicI64::new(LEAF_LIFE.as_secs()));
    let told = ahead.clone();
    let clock = move || Timestamp::now() + SignedDuration::from_secs(told.load(Ordering::Relaxed));
    let ((served, readiness, _), client) = (served(), api.client());
    let _task = tokio::spawn(async move { follow_secret_by(clock, client, "ns", served).await });
    settle().await;
    api.disturb_watches(&secret());
    settle().await;
    let refused = "the certificate in Secret pod-affinity-webhook-certs has expired";
    assert!(readiness.to_string().contains(refused), "{readiness}");
    ahead.store(0, Ordering::Relaxed);
    timeout(RECHECK * 2, readiness.ready())
        .await
        .expect("ready without a change of the Secret");
}

/// A kubelet writes both files at once; other tools write one after the other.
#[tokio::test(start_paused = true)]
async fn files_of_different_pairs_change_nothing() {
    let folder = TempDir::new().unwrap();
    let files = CertificateFiles {
        certificate: folder.path().join("tls.crt"),
        key: folder.path().join("tls.key"),
    };
    let (served, readiness, metrics) = served();
    let followed = files.clone();
    let _task = tokio::spawn(async move { follow_files(&followed, served).await });
    settle().await;
    assert!(
        readiness.to_string().contains("tls.crt: No such file"),
        "{readiness}"
    );
    let (first, second) = (stored(), stored());
    write(&files, &first.leaf, &first.leaf_key);
    settle().await;
    assert!(readiness.is_ready());
    write(&files, &second.leaf, &first.leaf_key);
    settle().await;
    assert_eq!(loads(&metrics), (1, 1));
    write(&files, &second.leaf, &second.leaf_key);
    settle().await;
    assert_eq!(loads(&metrics), (2, 1));
}

fn write(files: &CertificateFiles, certificate: &str, key: &str) {
    fs::write(&files.certificate, certificate).unwrap();
    fs::write(&files.key, key).unwrap();
}

/// The numbers of accepted and of refused certificates.
fn loads(metrics: &Serving) -> (u64, u64) {
    use crate::metrics::LoadOutcome::{Accepted, Refused};
    (
        metrics.certificate_loads(Accepted),
        metrics.certificate_loads(Refused),
    )
}
