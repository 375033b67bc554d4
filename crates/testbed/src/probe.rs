//! Small looks at a port of 127.0.0.1: does somebody listen, does it say it is well.

use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest wait for an answer that is begun.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether somebody listens.
pub(crate) async fn connect(port: u16) -> Result<(), String> {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .await
        .map(drop)
        .map_err(|error| error.to_string())
}

/// The body of a plain HTTP answer, if its status is 200; else what came instead.
pub async fn get(port: u16, path: &str) -> Result<String, String> {
    exchange(port, path)
        .await
        .map_err(|error| error.to_string())
        .and_then(|answer| body(&answer))
}

fn body(answer: &str) -> Result<String, String> {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    if head.lines().next().is_some_and(|status| status.contains(" 200 ")) {
        Ok(body.to_owned())
    } else {
        Err(answer.to_owned())
    }
}

// HTTP/1.0: the server closes after the answer, and sends it in one piece.
fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")
}

/// As [`get`], for threads of their own.
pub fn get_blocking(port: u16, path: &str) -> Result<String, String> {
    exchange_blocking(port, path)
        .map_err(|error| error.to_string())
        .and_then(|answer| body(&answer))
}

fn exchange_blocking(port: u16, path: &str) -> std::io::Result<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request(path).as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

async fn exchange(port: u16, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.write_all(request(path).as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
