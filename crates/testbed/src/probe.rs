//! Small looks at a port of 127.0.0.1: does somebody listen, does it say it is well.

use std::net::Ipv4Addr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Whether somebody listens.
pub(crate) async fn connect(port: u16) -> Result<(), String> {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .await
        .map(drop)
        .map_err(|error| error.to_string())
}

/// The body of a plain HTTP answer, if its status is 200; else what came instead.
pub async fn get(port: u16, path: &str) -> Result<String, String> {
    let answer = exchange(port, path).await.map_err(|error| error.to_string())?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    if head.lines().next().is_some_and(|status| status.contains(" 200 ")) {
        Ok(body.to_owned())
    } else {
        Err(answer)
    }
}

async fn exchange(port: u16, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    // HTTP/1.0: the server closes after the answer, and sends it in one piece.
    stream
        .write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes())
        .await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
