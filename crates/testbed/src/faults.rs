//! A proxy between the API server and our controllers, or the scheduler, that injects faults on request: it delays or refuses
//! requests, cuts watches, and keeps watches open without data.
//!
//! The proxy terminates TLS, because the fault depends on the request, and forwards requests and streams unchanged, the caller's
//! token included. The proxy has its own thread, so that a testbed can outlive the test that created the proxy.

use crate::error::{Error, Result};
use crate::pki::Identity;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{HOST, RETRY_AFTER};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{BoxError, Json, Router};
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use futures::{StreamExt, stream};
use kube::{Client, Config};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use std::fmt::Display;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{io, thread};
use tokio::sync::watch;

/// The API server's own limit on the size of requests.
const LARGEST_REQUEST: usize = 3 * 1024 * 1024;

/// The fault that each request meets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// The request is forwarded.
    #[default]
    None,
    /// The request is forwarded after this delay.
    Slow(Duration),
    /// The request gets this status and is not forwarded. 429 comes with the advice to retry after one second.
    Refused(StatusCode),
    /// Every second update or deletion of an object gets a conflict.
    Conflicts,
    /// Each binding of a pod is forwarded after this delay, unless its scheduler has ended in the meantime.
    SlowBindings(Duration),
    /// Each binding of a pod is forwarded after this delay, also if its scheduler has ended in the meantime.
    LateBindings(Duration),
}

/// A running proxy.
#[derive(Debug)]
pub struct Faults {
    port: u16,
    switch: Arc<Switch>,
    server: Handle<SocketAddr>,
}

/// What happened to the responses that were open at that time.
#[derive(Clone, Copy, Debug, Default)]
enum Interruption {
    #[default]
    None,
    Cut,
    Silence,
}

#[derive(Debug, Default)]
struct Switch {
    fault: Mutex<Fault>,
    writes: AtomicU64,
    injected: AtomicU64,
    interruption: watch::Sender<Interruption>,
}

#[derive(Clone)]
struct Proxy {
    switch: Arc<Switch>,
    api_client: Client,
}

impl Faults {
    pub(crate) fn start(port: u16, api_port: u16, ca: &Path, identity: &Identity) -> Result<Self> {
        let failed = Error::io("serving the fault proxy with", &identity.certificate);
        let proxy = Self {
            port,
            switch: Arc::default(),
            server: Handle::new(),
        };
        let begun = proxy.listening(ca, identity).map_err(failed)?;
        let (switch, server) = (proxy.switch.clone(), proxy.server.clone());
        thread::spawn(move || begun.serve(api_port, switch, server));
        Ok(proxy)
    }

    fn listening(&self, ca: &Path, identity: &Identity) -> io::Result<Listening> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port))?;
        listener.set_nonblocking(true)?;
        Ok(Listening {
            listener,
            tls: RustlsConfig::from_config(Arc::new(tls(identity).map_err(io::Error::other)?)),
            ca: CertificateDer::from_pem_file(ca)
                .map_err(io::Error::other)?
                .to_vec(),
        })
    }

    /// The port of the proxy.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Sets the fault of all following requests.
    pub fn set(&self, fault: Fault) {
        *self.switch.fault() = fault;
    }

    /// Cuts every open response, such as watches.
    pub fn cut(&self) {
        self.switch.interruption.send_replace(Interruption::Cut);
    }

    /// Keeps every open response open without more data.
    pub fn silence(&self) {
        self.switch.interruption.send_replace(Interruption::Silence);
    }

    /// Number of requests that met a fault, delayed ones included, and of responses that were cut or fell silent.
    pub fn injected(&self) -> u64 {
        self.switch.injected.load(Ordering::Relaxed)
    }
}

impl Drop for Faults {
    fn drop(&mut self) {
        self.server.shutdown();
    }
}

fn tls(identity: &Identity) -> Result<ServerConfig, BoxError> {
    let certificate = CertificateDer::from_pem_file(&identity.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&identity.key)?;
    Ok(
        ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)?,
    )
}

struct Listening {
    listener: TcpListener,
    tls: RustlsConfig,
    ca: Vec<u8>,
}

impl Listening {
    /// Serves until the handle stops the server.
    fn serve(self, api_port: u16, switch: Arc<Switch>, server: Handle<SocketAddr>) {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
            return;
        };
        let ended: io::Result<()> = runtime.block_on(async {
            let api_client = api_client(api_port, self.ca).map_err(io::Error::other)?;
            let router = Router::new()
                .fallback(pass)
                .with_state(Proxy { switch, api_client });
            axum_server::from_tcp_rustls(self.listener, self.tls)?
                .handle(server)
                .serve(router.into_make_service())
                .await
        });
        if let Err(error) = ended {
            tracing::error!(%error, "the fault proxy ended");
        }
    }
}

/// A client without an identity and without retries: the caller provides the token and decides on retries.
fn api_client(api_port: u16, ca: Vec<u8>) -> Result<Client, BoxError> {
    let mut config = Config::new(format!("https://127.0.0.1:{api_port}").parse()?);
    config.root_cert = Some(vec![ca]);
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

async fn pass(State(proxy): State<Proxy>, request: Request) -> Response {
    let outlives_client = proxy
        .switch
        .is_late_binding(request.method(), request.uri().path());
    let answer = proxy.answer(request);
    if outlives_client {
        // The server drops this future when the client disconnects, but not the new task.
        tokio::spawn(answer).await.unwrap_or_else(bad_gateway)
    } else {
        answer.await
    }
}

fn bad_gateway(error: impl Display) -> Response {
    (StatusCode::BAD_GATEWAY, error.to_string()).into_response()
}

impl Proxy {
    async fn answer(self, request: Request) -> Response {
        match self.switch.inject(request.method(), request.uri().path()).await {
            Some(instead) => instead,
            None => self.forward(request).await.unwrap_or_else(bad_gateway),
        }
    }

    async fn forward(&self, request: Request) -> Result<Response, BoxError> {
        let (mut head, body) = request.into_parts();
        head.headers.remove(HOST);
        let body = to_bytes(body, LARGEST_REQUEST).await?;
        let answer = self
            .api_client
            .send(Request::from_parts(head, body.into()))
            .await?;
        let (head, body) = answer.into_parts();
        Ok(Response::from_parts(
            head,
            self.switch.interruptible(Body::new(body)),
        ))
    }
}

impl Switch {
    fn fault(&self) -> std::sync::MutexGuard<'_, Fault> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The response that replaces the API server's response, if the fault has one.
    async fn inject(&self, method: &Method, path: &str) -> Option<Response> {
        let (delay, instead) = match *self.fault() {
            Fault::Slow(delay) => (delay, None),
            Fault::SlowBindings(delay) | Fault::LateBindings(delay) if is_binding(method, path) => {
                (delay, None)
            }
            Fault::Refused(status) => (Duration::ZERO, Some(refusal(status, "Refused"))),
            Fault::Conflicts if self.is_every_other_write(method) => {
                (Duration::ZERO, Some(refusal(StatusCode::CONFLICT, "Conflict")))
            }
            Fault::None | Fault::Conflicts | Fault::SlowBindings(_) | Fault::LateBindings(_) => return None,
        };
        self.injected.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(delay).await;
        instead
    }

    fn is_late_binding(&self, method: &Method, path: &str) -> bool {
        matches!(*self.fault(), Fault::LateBindings(_)) && is_binding(method, path)
    }

    fn is_every_other_write(&self, method: &Method) -> bool {
        [Method::PUT, Method::PATCH, Method::DELETE].contains(method)
            && self.writes.fetch_add(1, Ordering::Relaxed).is_multiple_of(2)
    }

    /// The body until an interruption. After a cut follows an error, like that of a lost connection.
    fn interruptible(self: &Arc<Self>, body: Body) -> Body {
        let switch = self.clone();
        let interruption = self.interruption.subscribe();
        let mut interrupted = interruption.clone();
        let interrupted = async move {
            // The body owns the switch with the sender, so the wait ends only with an interruption.
            let _ = interrupted.changed().await;
            switch.injected.fetch_add(1, Ordering::Relaxed);
        };
        let rest = async move {
            let what = *interruption.borrow();
            match what {
                Interruption::None | Interruption::Cut => {
                    Err(axum::Error::new(io::Error::from(io::ErrorKind::ConnectionReset)))
                }
                Interruption::Silence => std::future::pending().await,
            }
        };
        let end = stream::once(std::future::ready(None));
        let whole = body.into_data_stream().map(Some).chain(end);
        let rest = stream::once(rest).map(Some);
        // The stream ends with the body or after the error.
        let either = whole
            .take_until(interrupted)
            .chain(rest)
            .scan((), |(), item| std::future::ready(item));
        Body::from_stream(either)
    }
}

fn is_binding(method: &Method, path: &str) -> bool {
    method == Method::POST && path.ends_with("/binding")
}

fn refusal(status: StatusCode, reason: &str) -> Response {
    let said = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": status.as_u16(),
        "reason": reason, "message": "the fault proxy of the testbed says so",
    });
    let mut answer = (status, Json(said)).into_response();
    if status == StatusCode::TOO_MANY_REQUESTS {
        answer.headers_mut().insert(RETRY_AFTER, 1.into());
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    const PODS: &str = "/api/v1/namespaces/default/pods";

    async fn statuses<const N: usize>(switch: &Switch, methods: [Method; N]) -> [Option<u16>; N] {
        let mut statuses = [None; N];
        for (status, method) in statuses.iter_mut().zip(&methods) {
            let answer = switch.inject(method, PODS).await;
            *status = answer.map(|answer| answer.status().as_u16());
        }
        statuses
    }

    #[tokio::test]
    async fn every_second_change_gets_a_conflict_and_no_other_request_does() {
        let switch = Switch::default();
        *switch.fault() = Fault::Conflicts;
        let methods = [
            Method::PATCH,
            Method::GET,
            Method::PUT,
            Method::POST,
            Method::DELETE,
        ];
        let met = statuses(&switch, methods).await;
        assert_eq!(met, [Some(409), None, None, None, Some(409)]);
        assert_eq!(switch.injected.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn only_bindings_are_slow_or_late() {
        const DELAY: Duration = Duration::from_millis(20);
        let binding = format!("{PODS}/x/binding");
        for (fault, is_late) in [
            (Fault::SlowBindings(DELAY), false),
            (Fault::LateBindings(DELAY), true),
        ] {
            let switch = Switch::default();
            *switch.fault() = fault;
            assert!(switch.inject(&Method::POST, PODS).await.is_none());
            assert_eq!(switch.injected.load(Ordering::Relaxed), 0);
            let begun = std::time::Instant::now();
            assert!(switch.inject(&Method::POST, &binding).await.is_none());
            assert!(begun.elapsed() >= DELAY);
            assert_eq!(switch.is_late_binding(&Method::POST, &binding), is_late);
            assert!(!switch.is_late_binding(&Method::POST, PODS));
        }
    }

    #[tokio::test]
    async fn a_refused_request_gets_a_retry_after_header() {
        let switch = Switch::default();
        *switch.fault() = Fault::Refused(StatusCode::TOO_MANY_REQUESTS);
        let refused = switch.inject(&Method::GET, PODS).await.unwrap();
        assert_eq!(
            (refused.status(), &refused.headers()[RETRY_AFTER]),
            (StatusCode::TOO_MANY_REQUESTS, &1.into())
        );
    }

    #[tokio::test]
    async fn a_response_is_complete_unless_it_is_cut_or_falls_silent() {
        let switch = Arc::new(Switch::default());
        let whole = to_bytes(switch.interruptible(Body::from("all of it")), 99).await;
        assert_eq!(whole.unwrap(), "all of it");
        let watch = || Body::from_stream(stream::pending::<Result<String, io::Error>>());
        let cut = switch.interruptible(watch());
        switch.interruption.send_replace(Interruption::Cut);
        assert!(to_bytes(cut, 99).await.is_err());
        let silent = switch.interruptible(watch());
        switch.interruption.send_replace(Interruption::Silence);
        let end = tokio::time::timeout(Duration::from_millis(50), to_bytes(silent, 99));
        assert!(end.await.is_err(), "the body does not end");
        assert_eq!(switch.injected.load(Ordering::Relaxed), 2);
    }
}
