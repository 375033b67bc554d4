//! A connection that ends if its client does not receive a whole response in time. The limit on silence does not apply meanwhile, and
//! a response keeps the memory of its request.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How long a client may take to receive a response.
const RECEIVED: Duration = Duration::from_secs(10);

/// A connection, and when the client must have received what was written, if it has not yet.
#[derive(Debug)]
pub(crate) struct ResponseDeadline<S> {
    stream: S,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> ResponseDeadline<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            deadline: None,
        }
    }

    /// Fails at the deadline. The deadline begins with the first write that must wait for the client.
    fn in_time<T>(&mut self, cx: &mut Context<'_>, poll: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            return poll;
        }
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(RECEIVED)));
        ready!(deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ResponseDeadline<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ResponseDeadline<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.in_time(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.in_time(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if flushed.is_ready() {
            self.deadline = None;
        }
        self.in_time(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.in_time(cx, ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::Instant;

    /// Sends a response of twenty bytes. The client reads one byte after each pause.
    async fn send(
        connection: &mut ResponseDeadline<DuplexStream>,
        client: &mut DuplexStream,
        pause: Duration,
    ) -> io::Result<()> {
        let receive = async {
            loop {
                sleep(pause).await;
                client.read_u8().await.unwrap();
            }
        };
        let send = async {
            connection.write_all(&[1; 20]).await?;
            connection.flush().await
        };
        tokio::select! {
            sent = send => sent,
            () = receive => unreachable!("the client reads until the response is sent"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_receives_a_response_slowly_loses_its_connection() {
        let (connection, mut client) = duplex(1);
        let mut connection = ResponseDeadline::new(connection);
        let begun = Instant::now();
        let sent = send(&mut connection, &mut client, Duration::from_secs(1)).await;
        assert_eq!(sent.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed().as_secs(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn each_response_has_the_whole_time() {
        let (connection, mut client) = duplex(1);
        let mut connection = ResponseDeadline::new(connection);
        for _ in 0..3 {
            let sent = send(&mut connection, &mut client, Duration::from_millis(400)).await;
            sent.unwrap();
            client.read_u8().await.unwrap();
        }
    }
}
