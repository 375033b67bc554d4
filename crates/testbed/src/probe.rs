//! Probes of a port on 127.0.0.1: whether a process listens, and the response to an HTTP request.

use crate::error::{Error, Result as TestbedResult};
use kube::Client;
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Whether a process listens on the port.
pub(crate) async fn connect(port: u16) -> Result<(), String> {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .await
        .map(drop)
        .map_err(|error| error.to_string())
}

/// The body of an HTTP response with status 200, otherwise the reason.
pub async fn get(port: u16, path: &str) -> Result<String, String> {
    exchange(port, path)
        .await
        .map_err(|error| error.to_string())
        .and_then(|answer| body(&answer))
}

/// The metrics of a process with authentication, in Prometheus' text format. The client connects to this process.
pub async fn metrics(client: &Client, process: &str) -> TestbedResult<String> {
    let mut request = http::Request::new(Vec::new());
    *request.uri_mut() = http::Uri::from_static("/metrics");
    let metrics = client.request_text(request).await;
    metrics.map_err(Error::api(format!("reading the metrics of {process}")))
}

fn body(answer: &str) -> Result<String, String> {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    if head.lines().next().is_some_and(|status| status.contains(" 200 ")) {
        Ok(body.to_owned())
    } else {
        Err(answer.to_owned())
    }
}

// With HTTP/1.0 the server closes the connection after the response and does not send chunks.
fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")
}

/// Like [`get`], for threads without a runtime.
pub fn get_blocking(port: u16, path: &str) -> Result<String, String> {
    exchange_blocking(port, path)
        .map_err(|error| error.to_string())
        .and_then(|answer| body(&answer))
}

fn exchange_blocking(port: u16, path: &str) -> std::io::Result<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(request(path).as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

async fn exchange(port: u16, path: &str) -> std::io::Result<String> {
    timeout(TIMEOUT, exchange_now(port, path)).await?
}

async fn exchange_now(port: u16, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.write_all(request(path).as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
