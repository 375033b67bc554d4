//! The server over loopback sockets, with a client that trusts one CA. No test waits for a fixed time.

use super::*;
use crate::certs::x509::{Issued, issue_ca, issue_leaf};
use crate::server::SILENCE;
use crate::tls::{PemPair, ServedCertificate};
use axum::routing::get;
use jiff::Timestamp;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs::default_provider};
use std::{future::pending, io, sync::Arc};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_rustls::{TlsConnector, client::TlsStream};

const NAME: &str = "hook.ns.svc";
const LONG: Duration = Duration::from_hours(1);

/// A server whose route `/slow` reports each call on `called`, and responds after a message on `answer`.
struct Scene {
    address: SocketAddr,
    ca: Issued,
    certificate: ServedCertificate,
    shutdown: Shutdown,
    readiness: Readiness,
    called: mpsc::Receiver<()>,
    answer: mpsc::Sender<()>,
    served: JoinHandle<Result<(), Error>>,
}

impl Scene {
    async fn begin(drain: Drain) -> Self {
        let readiness = Readiness::default();
        let condition = readiness.condition("certificate", "none yet");
        let certificate = ServedCertificate::new(condition, Serving::default()).unwrap();
        let shutdown = Shutdown::default();
        let (router, called, answer) = routes();
        let listening = bound_to(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let address = listening.address();
        let server = TlsServer {
            router,
            tls: certificate.config(),
            silence: SILENCE,
            drain,
            shutdown: shutdown.clone(),
            readiness: readiness.clone(),
            metrics: Serving::default(),
        };
        let served = tokio::spawn(serve(listening, server));
        let ca = issue_ca(Timestamp::now()).unwrap();
        Self {
            address,
            ca,
            certificate,
            shutdown,
            readiness,
            called,
            answer,
            served,
        }
    }

    async fn serving(drain: Drain) -> Self {
        let mut scene = Self::begin(drain).await;
        let pair = scene.new_pair();
        scene.offer(pair);
        scene.readiness.ready().await;
        scene
    }

    fn new_pair(&self) -> PemPair {
        let leaf = issue_leaf(&self.ca, &[NAME.to_owned()], Timestamp::now()).unwrap();
        PemPair {
            chain: leaf.certificate,
            key: leaf.key,
        }
    }

    fn offer(&mut self, pair: PemPair) {
        self.certificate.offer(pair, Timestamp::now());
    }

    async fn connect(&self, protocol: &str) -> io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(der(&self.ca.certificate)).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let stream = TcpStream::connect(self.address).await?;
        TlsConnector::from(Arc::new(config))
            .connect(ServerName::try_from(NAME).unwrap(), stream)
            .await
    }

    async fn client(&self) -> TlsStream<TcpStream> {
        self.connect("http/1.1").await.unwrap()
    }

    async fn begin_shutdown(&self) {
        self.shutdown.start();
        while self.readiness.is_ready() {
            tokio::task::yield_now().await;
        }
    }
}

async fn bound_to(address: SocketAddr) -> Result<Listening, Error> {
    Listening::bind(&PORT, address).await
}

fn at_once() -> Drain {
    Drain {
        delay: Duration::ZERO,
        deadline: LONG,
    }
}

fn routes() -> (Router, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (calling, called) = mpsc::channel(1);
    let (answer, answered) = mpsc::channel::<()>(1);
    let answered = Arc::new(tokio::sync::Mutex::new(answered));
    let slow = move || async move {
        calling.send(()).await.unwrap();
        answered.lock().await.recv().await;
        "late"
    };
    (
        Router::new()
            .route("/", get(|| async { "hello" }))
            .route("/slow", get(slow)),
        called,
        answer,
    )
}

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

fn presented(client: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    client.get_ref().1.peer_certificates().unwrap()[0]
        .clone()
        .into_owned()
}

async fn send(client: &mut TlsStream<TcpStream>, path: &str) {
    client
        .write_all(format!("GET {path} HTTP/1.1\r\nhost: {NAME}\r\n\r\n").as_bytes())
        .await
        .unwrap();
}

/// Reads one response, up to the last word of the route's body.
async fn receive(client: &mut TlsStream<TcpStream>) -> String {
    let mut text = String::new();
    while !text.ends_with("hello") && !text.ends_with("late") {
        let mut buffer = [0; 1024];
        let read = client.read(&mut buffer).await.unwrap();
        assert_ne!(read, 0, "the connection ended after {text:?}");
        text.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
    }
    text
}

async fn ask(client: &mut TlsStream<TcpStream>, path: &str) -> String {
    send(client, path).await;
    receive(client).await
}

async fn is_closed(client: &mut TlsStream<TcpStream>) -> bool {
    matches!(client.read(&mut [0; 1]).await, Ok(0) | Err(_))
}

#[tokio::test]
async fn a_server_without_a_certificate_is_unready_and_completes_no_handshake() {
    let mut scene = Scene::begin(at_once()).await;
    assert!(scene.connect("http/1.1").await.is_err());
    assert!(!scene.readiness.is_ready());
    let pair = scene.new_pair();
    scene.offer(pair);
    scene.readiness.ready().await;
    assert!(
        ask(&mut scene.client().await, "/")
            .await
            .starts_with("HTTP/1.1 200")
    );
}

#[tokio::test]
async fn a_new_certificate_is_served_to_new_connections_and_disturbs_no_open_connection() {
    let mut scene = Scene::serving(at_once()).await;
    let mut old = scene.client().await;
    let renewed = scene.new_pair();
    scene.offer(renewed.clone());
    let new = scene.client().await;
    assert_eq!(presented(&new), der(&renewed.chain));
    assert_ne!(presented(&old), presented(&new));
    assert!(ask(&mut old, "/").await.ends_with("hello"));
}

#[tokio::test]
async fn an_invalid_certificate_is_refused_and_the_last_valid_certificate_stays() {
    let mut scene = Scene::serving(at_once()).await;
    let before = presented(&scene.client().await);
    let mismatch = PemPair {
        key: scene.new_pair().key,
        ..scene.new_pair()
    };
    let rubbish = PemPair {
        chain: "rubbish".into(),
        key: "rubbish".into(),
    };
    for bad in [mismatch, rubbish] {
        scene.offer(bad);
        assert_eq!(presented(&scene.client().await), before);
        assert!(scene.readiness.is_ready());
    }
}

#[tokio::test]
async fn a_connection_is_kept_alive() {
    let scene = Scene::serving(at_once()).await;
    let mut client = scene.client().await;
    for _ in 0..3 {
        let response = ask(&mut client, "/").await;
        assert!(!response.contains("connection: close"), "{response}");
    }
}

#[tokio::test]
async fn http_2_is_refused() {
    let scene = Scene::serving(at_once()).await;
    assert!(scene.connect("h2").await.is_err());
    let mut client = scene.client().await;
    client
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(LONG, client.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "the connection stays open after {answer:?}");
    let answer = String::from_utf8_lossy(&answer);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 4") || answer.starts_with("HTTP/1.1 505"),
        "{answer}"
    );
}

#[tokio::test]
async fn plain_http_and_rubbish_disturb_no_other_client() {
    let scene = Scene::serving(at_once()).await;
    for noise in ["GET / HTTP/1.1\r\nhost: x\r\n\r\n", "\0\0\0\0rubbish"] {
        let mut plain = TcpStream::connect(scene.address).await.unwrap();
        plain.write_all(noise.as_bytes()).await.unwrap();
        let _half_open = TcpStream::connect(scene.address).await.unwrap();
        assert!(ask(&mut scene.client().await, "/").await.ends_with("hello"));
    }
}

#[tokio::test]
async fn calls_during_the_drain_delay_are_served_and_their_connections_are_closed() {
    let scene = Scene::serving(Drain {
        delay: LONG,
        deadline: LONG,
    })
    .await;
    let mut client = scene.client().await;
    assert!(!ask(&mut client, "/").await.contains("connection: close"));
    scene.begin_shutdown().await;
    assert_eq!(
        scene.readiness.to_string(),
        "[+] certificate\n[-] listener: the process is shutting down\n"
    );
    assert!(ask(&mut client, "/").await.contains("connection: close"));
    assert!(is_closed(&mut client).await);
    assert!(
        ask(&mut scene.client().await, "/")
            .await
            .contains("connection: close")
    );
}

#[tokio::test]
async fn a_call_in_flight_is_completed_an_idle_connection_closed_and_no_new_connection_accepted() {
    let mut scene = Scene::serving(at_once()).await;
    let mut idle = scene.client().await;
    ask(&mut idle, "/").await;
    let mut busy = scene.client().await;
    send(&mut busy, "/slow").await;
    scene.called.recv().await.unwrap();
    scene.begin_shutdown().await;
    assert!(is_closed(&mut idle).await);
    assert!(!scene.served.is_finished());
    scene.answer.send(()).await.unwrap();
    let response = receive(&mut busy).await;
    assert!(
        response.ends_with("late") && response.contains("connection: close"),
        "{response}"
    );
    scene.served.await.unwrap().unwrap();
    assert!(TcpStream::connect(scene.address).await.is_err());
}

#[tokio::test]
async fn a_call_that_never_ends_is_cut_at_the_deadline() {
    let mut scene = Scene::serving(Drain {
        delay: Duration::ZERO,
        deadline: Duration::ZERO,
    })
    .await;
    let mut busy = scene.client().await;
    send(&mut busy, "/slow").await;
    scene.called.recv().await.unwrap();
    scene.begin_shutdown().await;
    scene.served.await.unwrap().unwrap();
    assert!(is_closed(&mut busy).await);
}

#[tokio::test]
async fn a_failed_server_ends_at_once() {
    let failed = async {
        Err(Error::Serve {
            port: &PORT,
            source: io::Error::other("gone"),
        })
    };
    assert!(until_drained(failed, pending()).await.is_err());
}

#[tokio::test]
async fn the_error_about_a_port_in_use_names_the_flag() {
    let first = bound_to(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let error = bound_to(first.address()).await.unwrap_err().to_string();
    assert!(error.contains("choose another --listen"), "{error}");
}
