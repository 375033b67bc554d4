//! Hostile clients, and clients whose machine failed: the webhook serves other clients meanwhile, and disconnects these clients in time.

use crate::webhook_process::{NAME, Webhook, folder_with_certificate};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

type Tls = StreamOwned<ClientConnection, TcpStream>;

/// Maximum time for two reviews and a handshake of other clients, far less than the timeout of the API server for webhooks.
const PROMPT: Duration = Duration::from_secs(3);
/// Maximum time for the response to one of three concurrent reviews of several megabytes, without optimisation.
const OF_BLOATED: Duration = Duration::from_secs(30);
/// The webhook disconnects a client after this silence, and not earlier. Shorter than the default (`runtime::server` has a test of the
/// default), but longer than the limits of 10 s, and long enough for all clients to be connected at once.
const SILENCE: Duration = Duration::from_secs(20);
/// How late a test may see that a client was disconnected.
const GRACE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(500);

const HEAD: &str = "POST /mutate/pods HTTP/1.1\r\nhost: a.b.svc\r\ncontent-type: application/json\r\n";
const REVIEW: &str = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u1","operation":"CREATE","kind":{"group":"","version":"v1","kind":"Pod"},"object":{"metadata":{},"spec":{}}}}"#;

/// The connection of a hostile client.
enum BadConnection {
    Plain(TcpStream),
    Safe(Box<Tls>),
    /// Sends one of these bytes from time to time.
    Dripping(Box<Tls>, std::vec::IntoIter<u8>),
}

/// Hostile clients of one kind.
struct BadClients {
    what: &'static str,
    /// When the webhook should disconnect each client.
    limit: Duration,
    connected: Vec<(Instant, BadConnection)>,
    disconnected: Vec<Duration>,
}

/// The addresses of the webhook, and the TLS configuration of its clients.
struct Addresses {
    admission: SocketAddr,
    admin: SocketAddr,
    config: Arc<ClientConfig>,
}

impl Addresses {
    fn new(webhook: &Webhook, folder: &Path) -> Self {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_file(folder.join("tls.crt")).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap();
        let config = Arc::new(builder.with_root_certificates(roots).with_no_client_auth());
        Self {
            admission: webhook.admission,
            admin: webhook.admin,
            config,
        }
    }

    fn plain(&self) -> TcpStream {
        let stream = TcpStream::connect_timeout(&self.admission, PROMPT).unwrap();
        stream.set_read_timeout(Some(PROMPT)).unwrap();
        // As the API server does.
        stream.set_nodelay(true).unwrap();
        stream
    }

    fn begun(&self) -> ClientConnection {
        ClientConnection::new(self.config.clone(), ServerName::try_from(NAME).unwrap()).unwrap()
    }

    fn safe(&self) -> Box<Tls> {
        let mut stream = StreamOwned::new(self.begun(), self.plain());
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock).unwrap();
        }
        Box::new(stream)
    }

    fn said(&self, text: &str) -> Box<Tls> {
        let mut stream = self.safe();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    }

    /// A connection that stays open after the response to a review.
    fn answered(&self) -> Box<Tls> {
        let mut stream = self.safe();
        review(&mut stream);
        stream
    }

    fn half_a_hello(&self) -> TcpStream {
        let (mut hello, mut stream) = (Vec::new(), self.plain());
        self.begun().write_tls(&mut hello).unwrap();
        stream.write_all(&hello[..hello.len() / 2]).unwrap();
        stream
    }

    fn groups(&self) -> Vec<BadClients> {
        let seconds = Duration::from_secs;
        let plainly = |text: &str, to| {
            let mut stream = TcpStream::connect(to).unwrap();
            stream.write_all(text.as_bytes()).unwrap();
            BadConnection::Plain(stream)
        };
        let dripping =
            |stream, text: &str| BadConnection::Dripping(stream, text.as_bytes().to_vec().into_iter());
        let body = format!("{HEAD}content-length: {}\r\n\r\n", REVIEW.len());
        let long_head = format!("x-long: {}", "x".repeat(1000));
        vec![
            BadClients::new("asked once and stay", 1000, SILENCE, || {
                BadConnection::Safe(self.answered())
            }),
            BadClients::new("connect and say nothing", 200, seconds(10), || {
                BadConnection::Plain(self.plain())
            }),
            BadClients::new("stop within the handshake", 100, seconds(10), || {
                BadConnection::Plain(self.half_a_hello())
            }),
            BadClients::new("say nothing after the handshake", 100, SILENCE, || {
                BadConnection::Safe(self.safe())
            }),
            BadClients::new("say one byte after the handshake", 100, SILENCE, || {
                BadConnection::Safe(self.said("P"))
            }),
            BadClients::new("send a head byte by byte", 20, SILENCE, || {
                dripping(self.said(HEAD), &long_head)
            }),
            BadClients::new("send a body byte by byte", 20, seconds(10), || {
                dripping(self.said(&body), REVIEW)
            }),
            BadClients::new("speak plain HTTP to the TLS port", 50, seconds(0), || {
                plainly("GET / HTTP/1.1\r\nhost: x\r\n\r\n", self.admission)
            }),
            BadClients::new("send a head without an end", 50, seconds(0), || {
                BadConnection::Safe(self.said(&format!("{HEAD}x-long: {}", "x".repeat(64 << 10))))
            }),
            BadClients::new("say one byte to the probes' port", 100, seconds(10), || {
                plainly("P", self.admin)
            }),
        ]
    }
}

impl BadClients {
    fn new(what: &'static str, many: usize, limit: Duration, one: impl Fn() -> BadConnection) -> Self {
        let connected = (0..many).map(|_| (Instant::now(), one())).collect();
        let disconnected = Vec::new();
        Self {
            what,
            limit,
            connected,
            disconnected,
        }
    }

    /// Sends the next byte of each client, and checks which clients are disconnected.
    fn check(&mut self) {
        let (mut connected, mut late) = (Vec::new(), 0);
        for (since, mut connection) in self.connected.drain(..) {
            let age = since.elapsed();
            connection.drip();
            if is_disconnected(connection.socket()) {
                self.disconnected.push(since.elapsed());
            } else {
                late += usize::from(age > self.limit + GRACE);
                connected.push((since, connection));
            }
        }
        self.connected = connected;
        assert_eq!(
            late,
            0,
            "not disconnected after {:?}: clients that {}",
            self.limit + GRACE,
            self.what
        );
    }
}

impl BadConnection {
    fn socket(&mut self) -> &mut TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Safe(stream) | Self::Dripping(stream, _) => &mut stream.sock,
        }
    }

    /// Ignores errors, because the next read reports a closed connection.
    fn drip(&mut self) {
        if let Self::Dripping(stream, bytes) = self
            && let Some(byte) = bytes.next()
        {
            let _ = stream.write_all(&[byte]);
        }
    }
}

/// Whether the webhook closed the connection. Data before the end, such as an alert or a response, is ignored.
fn is_disconnected(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    loop {
        match stream.read(&mut [0; 4096]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
        }
    }
}

/// Sends a review and reads the response.
fn review(stream: &mut Tls) {
    send_review(stream, REVIEW);
}

fn send_review(stream: &mut Tls, review: &str) {
    write!(stream, "{HEAD}content-length: {}\r\n\r\n{review}", review.len()).unwrap();
    let mut answer = String::new();
    while !answer.ends_with("}}") {
        let mut buffer = [0; 1024];
        let read = stream.read(&mut buffer).unwrap();
        assert_ne!(read, 0, "the connection ended after {answer:?}");
        answer.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
    }
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains(r#""uid":"u1","allowed":true"#),
        "{answer}"
    );
}

/// Serves a new and a kept connection, both as from API servers, and a probe as from the kubelet.
fn others_are_served(webhook: &Webhook, addresses: &Addresses, kept: &mut Tls) -> Duration {
    let begun = Instant::now();
    review(kept);
    review(&mut addresses.safe());
    let took = begun.elapsed();
    assert!(took < PROMPT, "{took:?}");
    assert!(webhook.ask("/readyz").starts_with("HTTP/1.1 200"));
    took
}

/// The value of a metric without labels.
fn metric_value(webhook: &Webhook, metric: &str) -> u64 {
    let text = webhook.ask("/metrics");
    let mut lines = text
        .lines()
        .filter_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
    lines.next().unwrap().parse().unwrap()
}

/// Raises the limit on open files: this process has all connections of its clients.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    )
    .unwrap();
}

#[test]
fn hundreds_of_hostile_clients_delay_no_other_client_and_are_disconnected() {
    raise_open_files();
    let folder = folder_with_certificate();
    let silence = format!("--client-silence={}s", SILENCE.as_secs());
    let webhook = Webhook::start_with(folder.path(), &[silence]);
    webhook.until_ready();
    let addresses = Addresses::new(&webhook, folder.path());
    let before = metric_value(&webhook, "process_resident_memory_bytes");

    let mut groups = addresses.groups();
    let (files, memory) = (
        metric_value(&webhook, "process_open_fds"),
        metric_value(&webhook, "process_resident_memory_bytes"),
    );
    let (mut kept, mut slowest) = (addresses.safe(), Duration::ZERO);
    while groups.iter().any(|group| !group.connected.is_empty()) {
        slowest = slowest.max(others_are_served(&webhook, &addresses, &mut kept));
        groups.iter_mut().for_each(BadClients::check);
        sleep(PAUSE);
    }

    assert_eq!(
        metric_value(&webhook, "pod_affinity_connections_refused_total"),
        0
    );
    println!("other clients were served within {slowest:?}; {files} open files; memory {before} -> {memory}");
    for BadClients {
        what,
        disconnected,
        limit,
        ..
    } in &groups
    {
        let (first, last) = (
            disconnected.iter().min().unwrap(),
            disconnected.iter().max().unwrap(),
        );
        println!(
            "{} that {what}: disconnected after {first:.1?} to {last:.1?}",
            disconnected.len()
        );
        assert!(first >= limit, "disconnected too early: clients that {what}");
    }
    assert!(webhook.end());
}

/// The most memory that a replica uses here. Its limit is 384 MiB.
const MEMORY: u64 = 200_000_000;
/// The size of the largest body that waits for no other body.
const USUAL: usize = 64 << 10;
/// The size of the largest body that the webhook reads.
const LARGE: usize = 4 << 20;
/// The size of the largest object that the API server accepts.
const OBJECT: usize = 3 << 20;

/// Sends a body of this size without its last bytes, until the webhook stops reading.
fn unfinished(addresses: &Addresses, size: usize) -> Box<Tls> {
    let mut stream = addresses.said(&format!("{HEAD}content-length: {size}\r\n\r\n"));
    stream.sock.set_write_timeout(Some(PROMPT)).unwrap();
    let piece = vec![b' '; 1 << 13];
    for _ in 1..size / piece.len() {
        if stream.write_all(&piece).is_err() {
            break;
        }
    }
    stream
}

/// A review of an object. One field of the object has the size that the API server accepts. A tree of all values of the object would take a
/// hundred times this size: `{"":0}` has 7 bytes with its comma, and its map takes 672 bytes.
fn bloated(field: &str) -> String {
    let entries = vec![r#"{"":0}"#; OBJECT / 7].join(",");
    let labels = r#""labels":{"pod-affinity.tekton.dev/group":"u"}"#;
    let object = match field {
        "spec.affinity.podAffinity" => {
            format!(r#"{{"metadata":{{{labels}}},"spec":{{"affinity":{{"podAffinity":[{entries}]}}}}}}"#)
        }
        "spec.odd" => format!(r#"{{"metadata":{{{labels}}},"spec":{{"odd":[{entries}]}}}}"#),
        _ => format!(r#"{{"metadata":{{{labels},"annotations":[{entries}]}},"spec":{{}}}}"#),
    };
    REVIEW.replace(r#"{"metadata":{},"spec":{}}"#, &object)
}

#[test]
fn hundreds_of_bodies_stay_within_the_memory_limit_and_delay_no_other_review() {
    raise_open_files();
    let folder = folder_with_certificate();
    let webhook = Webhook::start(folder.path());
    webhook.until_ready();
    let addresses = Addresses::new(&webhook, folder.path());
    let (mut kept, mut slowest) = (addresses.safe(), Duration::ZERO);
    let usual: Vec<_> = (0..600).map(|_| unfinished(&addresses, USUAL)).collect();
    slowest = slowest.max(others_are_served(&webhook, &addresses, &mut kept));
    drop(usual);
    std::thread::scope(|scope| {
        let senders = (0..100).map(|_| scope.spawn(|| unfinished(&addresses, LARGE)));
        let senders: Vec<_> = senders.collect();
        while !senders.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            slowest = slowest.max(others_are_served(&webhook, &addresses, &mut kept));
            sleep(PAUSE);
        }
    });
    let crowded = webhook.most_memory();
    assert!(crowded < MEMORY, "{crowded}");
    for field in ["spec.odd", "spec.affinity.podAffinity", "metadata.annotations"] {
        let bloated = bloated(field);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut stream = addresses.safe();
                    stream.sock.set_read_timeout(Some(OF_BLOATED)).unwrap();
                    send_review(&mut stream, &bloated);
                });
            }
        });
    }
    let bloated = webhook.most_memory();
    println!(
        "other clients were served within {slowest:?}; memory rose to {crowded}, and to {bloated} by bloated reviews"
    );
    assert!(bloated < MEMORY, "{crowded}, {bloated}");
    assert!(webhook.end());
}
