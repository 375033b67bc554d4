//! Clients that mean no good, or whose machine died under them: while they are there, others are answered as ever, and in
//! time they are cut off.

use crate::program::{NAME, Webhook, folder_with_certificate};
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

/// Others are answered well within the time that the API server gives a webhook, handshake included.
const PROMPT: Duration = Duration::from_secs(3);
/// A client that is silent for longer is cut, and no sooner. Shorter here than it is shipped (`process::http_limits` has a
/// test of that), but long enough that all are there at once, and that it is told from the limits of 10 s.
const SILENCE: Duration = Duration::from_secs(20);
/// How much later than it should a connection may be seen to be cut.
const GRACE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(500);

const HEAD: &str = "POST /mutate/pods HTTP/1.1\r\nhost: a.b.svc\r\ncontent-type: application/json\r\n";
const REVIEW: &str = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u1","operation":"CREATE","kind":{"group":"","version":"v1","kind":"Pod"},"object":{"metadata":{},"spec":{}}}}"#;

/// What a bad client has done so far.
enum Line {
    Plain(TcpStream),
    Safe(Box<Tls>),
    /// Sends a byte of this now and then.
    Dripping(Box<Tls>, std::vec::IntoIter<u8>),
}

/// Many of a kind.
struct Crowd {
    what: &'static str,
    /// When each should be cut.
    limit: Duration,
    left: Vec<(Instant, Line)>,
    cut: Vec<Duration>,
}

/// How to reach the webhook.
struct Door {
    admission: SocketAddr,
    admin: SocketAddr,
    config: Arc<ClientConfig>,
}

impl Door {
    fn of(webhook: &Webhook, folder: &Path) -> Self {
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

    /// A connection over which a review was answered, and is kept.
    fn answered(&self) -> Box<Tls> {
        let mut stream = self.safe();
        ask(&mut stream);
        stream
    }

    fn half_a_hello(&self) -> TcpStream {
        let (mut hello, mut stream) = (Vec::new(), self.plain());
        self.begun().write_tls(&mut hello).unwrap();
        stream.write_all(&hello[..hello.len() / 2]).unwrap();
        stream
    }

    fn crowds(&self) -> Vec<Crowd> {
        let seconds = Duration::from_secs;
        let plainly = |text: &str, to| {
            let mut stream = TcpStream::connect(to).unwrap();
            stream.write_all(text.as_bytes()).unwrap();
            Line::Plain(stream)
        };
        let dripping = |stream, text: &str| Line::Dripping(stream, text.as_bytes().to_vec().into_iter());
        let body = format!("{HEAD}content-length: {}\r\n\r\n", REVIEW.len());
        let long_head = format!("x-long: {}", "x".repeat(1000));
        vec![
            Crowd::of("asked once and stay", 1000, SILENCE, || {
                Line::Safe(self.answered())
            }),
            Crowd::of("connect and say nothing", 200, seconds(10), || {
                Line::Plain(self.plain())
            }),
            Crowd::of("stop within the handshake", 100, seconds(10), || {
                Line::Plain(self.half_a_hello())
            }),
            Crowd::of("say nothing after the handshake", 100, SILENCE, || {
                Line::Safe(self.safe())
            }),
            Crowd::of("say one byte after the handshake", 100, SILENCE, || {
                Line::Safe(self.said("P"))
            }),
            Crowd::of("send a head byte by byte", 20, SILENCE, || {
                dripping(self.said(HEAD), &long_head)
            }),
            Crowd::of("send a body byte by byte", 20, seconds(10), || {
                dripping(self.said(&body), REVIEW)
            }),
            Crowd::of("speak plain HTTP to the TLS port", 50, seconds(0), || {
                plainly("GET / HTTP/1.1\r\nhost: x\r\n\r\n", self.admission)
            }),
            Crowd::of("say one byte to the probes' port", 100, SILENCE, || {
                plainly("P", self.admin)
            }),
        ]
    }
}

impl Crowd {
    fn of(what: &'static str, many: usize, limit: Duration, one: impl Fn() -> Line) -> Self {
        let left = (0..many).map(|_| (Instant::now(), one())).collect();
        let cut = Vec::new();
        Self {
            what,
            limit,
            left,
            cut,
        }
    }

    /// Goes on, and looks who is cut off.
    fn look(&mut self) {
        let (mut left, mut late) = (Vec::new(), 0);
        for (since, mut line) in self.left.drain(..) {
            let age = since.elapsed();
            line.drip();
            if is_cut(line.socket()) {
                self.cut.push(since.elapsed());
            } else {
                late += usize::from(age > self.limit + GRACE);
                left.push((since, line));
            }
        }
        self.left = left;
        assert_eq!(
            late,
            0,
            "not cut after {:?}: clients that {}",
            self.limit + GRACE,
            self.what
        );
    }
}

impl Line {
    fn socket(&mut self) -> &mut TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Safe(stream) | Self::Dripping(stream, _) => &mut stream.sock,
        }
    }

    /// That the connection broke is seen by reading.
    fn drip(&mut self) {
        if let Self::Dripping(stream, bytes) = self
            && let Some(byte) = bytes.next()
        {
            let _ = stream.write_all(&[byte]);
        }
    }
}

/// What comes before the end, such as an alert or an answer, does not matter.
fn is_cut(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    loop {
        match stream.read(&mut [0; 4096]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
        }
    }
}

/// Has a review answered, in time.
fn ask(stream: &mut Tls) {
    answered(stream, REVIEW);
}

fn answered(stream: &mut Tls, review: &str) {
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

/// One who comes anew, and one who stayed, as the API server does; and the kubelet.
fn others_are_served(webhook: &Webhook, door: &Door, kept: &mut Tls) -> Duration {
    let begun = Instant::now();
    ask(kept);
    ask(&mut door.safe());
    let took = begun.elapsed();
    assert!(took < PROMPT, "{took:?}");
    assert!(webhook.ask("/readyz").starts_with("HTTP/1.1 200"));
    took
}

/// The figure of a metric without labels.
fn figure(webhook: &Webhook, metric: &str) -> u64 {
    let text = webhook.ask("/metrics");
    let mut lines = text
        .lines()
        .filter_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
    lines.next().unwrap().parse().unwrap()
}

/// This process needs as many connections as it has clients.
fn may_open_files() {
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
fn bad_clients_by_the_hundred_keep_nobody_waiting_and_are_cut_off() {
    may_open_files();
    let folder = folder_with_certificate();
    let silence = format!("--client-silence={}s", SILENCE.as_secs());
    let webhook = Webhook::start_with(folder.path(), &[silence]);
    webhook.until_ready();
    let door = Door::of(&webhook, folder.path());
    let before = figure(&webhook, "process_resident_memory_bytes");

    let mut crowds = door.crowds();
    let (files, memory) = (
        figure(&webhook, "process_open_fds"),
        figure(&webhook, "process_resident_memory_bytes"),
    );
    let (mut kept, mut slowest) = (door.safe(), Duration::ZERO);
    while crowds.iter().any(|crowd| !crowd.left.is_empty()) {
        slowest = slowest.max(others_are_served(&webhook, &door, &mut kept));
        crowds.iter_mut().for_each(Crowd::look);
        sleep(PAUSE);
    }

    assert_eq!(figure(&webhook, "pod_affinity_connections_refused_total"), 0);
    println!("others were answered within {slowest:?}; {files} open files; memory {before} -> {memory}");
    for Crowd { what, cut, limit, .. } in &crowds {
        let (first, last) = (cut.iter().min().unwrap(), cut.iter().max().unwrap());
        println!("{} that {what}: cut after {first:.1?} to {last:.1?}", cut.len());
        assert!(first >= limit, "cut too soon: clients that {what}");
    }
    assert!(webhook.end());
}

/// What a replica may use, by its Deployment.
const MEMORY: u64 = 256 << 20;
/// As large as a body may be.
const LARGE: usize = 4 << 20;

/// Sends all of a large body but its last byte, as far as it is taken.
fn unfinished(door: &Door) -> Box<Tls> {
    let mut stream = door.said(&format!("{HEAD}content-length: {LARGE}\r\n\r\n"));
    stream.sock.set_write_timeout(Some(PROMPT)).unwrap();
    let piece = vec![b' '; 1 << 16];
    for _ in 1..LARGE / piece.len() {
        if stream.write_all(&piece).is_err() {
            break;
        }
    }
    stream
}

/// A review that takes many times its size when it is read: a value of two bytes becomes one of thirty-two.
fn bloated() -> String {
    let pod = r#"{"metadata":{"labels":{"pod-affinity.tekton.dev/group":"u"}},"spec":{"odd":["#;
    let end = format!("{}0]}}", "0,".repeat(LARGE / 2 - 500));
    REVIEW.replace(r#"{"metadata":{},"spec":{}"#, &format!("{pod}{end}"))
}

#[test]
fn large_bodies_by_the_hundred_use_up_no_memory_and_keep_no_usual_review_waiting() {
    may_open_files();
    let folder = folder_with_certificate();
    let webhook = Webhook::start(folder.path());
    webhook.until_ready();
    let door = Door::of(&webhook, folder.path());
    let (mut kept, mut slowest) = (door.safe(), Duration::ZERO);
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..100).map(|_| scope.spawn(|| unfinished(&door))).collect();
        while !senders.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            slowest = slowest.max(others_are_served(&webhook, &door, &mut kept));
            sleep(PAUSE);
        }
    });
    let crowded = webhook.most_memory();
    let bloated = bloated();
    for _ in 0..3 {
        answered(&mut door.safe(), &bloated);
    }
    let bloated = webhook.most_memory();
    println!(
        "others were answered within {slowest:?}; memory rose to {crowded}, and to {bloated} by bloated reviews"
    );
    assert!(bloated < MEMORY * 3 / 4, "{crowded}, {bloated}");
    assert!(webhook.end());
}
