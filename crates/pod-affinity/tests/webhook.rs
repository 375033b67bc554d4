//! The webhook as a process: ports told on standard output, readiness by its certificate files, an orderly end.

#![expect(clippy::unwrap_used, reason = "helpers of a test")]

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::yield_now;
use tempfile::TempDir;

struct Webhook {
    child: Child,
    admission: SocketAddr,
    admin: SocketAddr,
}

impl Webhook {
    fn start(folder: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_pod-affinity"))
            .args([
                "webhook",
                "--listen=127.0.0.1:0",
                "--admin-listen=127.0.0.1:0",
                "--drain-delay=0s",
            ])
            .arg(format!("--tls-cert-file={}", folder.join("tls.crt").display()))
            .arg(format!("--tls-key-file={}", folder.join("tls.key").display()))
            .env_clear()
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut address = |what: &str| {
            lines
                .next()
                .unwrap()
                .unwrap()
                .strip_prefix(what)
                .unwrap()
                .parse()
                .unwrap()
        };
        let (admission, admin) = (address("webhook "), address("admin "));
        Self {
            child,
            admission,
            admin,
        }
    }

    fn ask(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.admin).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn end(mut self) -> bool {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.child.wait().unwrap().success()
    }
}

fn folder_with_certificate() -> TempDir {
    let folder = TempDir::new().unwrap();
    let made = rcgen::generate_simple_self_signed(["a.b.svc".to_owned()]).unwrap();
    fs::write(folder.path().join("tls.crt"), made.cert.pem()).unwrap();
    fs::write(folder.path().join("tls.key"), made.signing_key.serialize_pem()).unwrap();
    folder
}

#[test]
fn it_becomes_ready_with_its_certificate_and_ends_in_order() {
    let folder = folder_with_certificate();
    let webhook = Webhook::start(folder.path());
    while !webhook.ask("/readyz").starts_with("HTTP/1.1 200") {
        yield_now();
    }
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
fn without_its_certificate_it_is_alive_and_says_what_is_missing() {
    let folder = TempDir::new().unwrap();
    let webhook = Webhook::start(folder.path());
    while !webhook.ask("/readyz").contains("tls.crt: No such file") {
        yield_now();
    }
    assert!(webhook.ask("/readyz").starts_with("HTTP/1.1 503"));
    assert!(webhook.ask("/livez").starts_with("HTTP/1.1 200"));
    assert!(webhook.end());
}
