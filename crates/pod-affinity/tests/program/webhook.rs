//! The webhook as a process: its ports on standard output, readiness, and the graceful shutdown.

use crate::webhook_process::{Webhook, folder_with_certificate};
use std::net::TcpStream;
use tempfile::TempDir;

#[test]
fn the_webhook_becomes_ready_with_its_certificate_and_shuts_down_gracefully() {
    let folder = folder_with_certificate();
    let webhook = Webhook::start(folder.path());
    webhook.until_ready();
    TcpStream::connect(webhook.admission).unwrap();
    assert!(webhook.ask("/livez").ends_with("ok\n"));
    assert!(
        webhook
            .ask("/metrics")
            .contains("pod_affinity_certificate_loads_total{outcome=\"accepted\"} 1")
    );
    assert!(webhook.end());
}

#[test]
fn without_a_certificate_the_webhook_is_alive_and_names_the_missing_file() {
    let folder = TempDir::new().unwrap();
    let webhook = Webhook::start(folder.path());
    let answer = webhook.until("/readyz", |answer| answer.contains("tls.crt: No such file"));
    assert!(answer.starts_with("HTTP/1.1 503"));
    assert!(webhook.ask("/livez").starts_with("HTTP/1.1 200"));
    assert!(webhook.end());
}
