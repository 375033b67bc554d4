//! An acceptor around another that keeps connections few and none of them idle before it has asked for something: a
//! client that connects and stays silent must not cost the API server its place, nor this process its last file.

use axum_server::accept::Accept;
use prometheus_client::metrics::counter::Counter;
use std::{
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};

/// As much as the HTTP server reads, without a limit of its own, to tell HTTP/2 from HTTP/1. Hardly a request is shorter.
const PREFACE: usize = 24;

/// The acceptor.
#[derive(Clone, Debug)]
pub(crate) struct Guard<A> {
    inner: A,
    places: Arc<Semaphore>,
    silence: Duration,
    refused: Counter,
}

/// A connection that holds its place until it is dropped.
#[derive(Debug)]
pub(crate) struct Guarded<S> {
    inner: S,
    beginning: Option<Beginning>,
    _place: OwnedSemaphorePermit,
}

/// A connection over which no request has begun yet. It may be silent for as long as one between two requests: the API
/// server also keeps connections that it made and then had no use for.
#[derive(Debug)]
struct Beginning {
    end: Pin<Box<Sleep>>,
    lacking: usize,
}

impl<A> Guard<A> {
    /// Lets `at_most` connections through to `inner` at once, and counts those it does not. Cuts those over which no
    /// request has begun within `silence`.
    pub(crate) fn new(inner: A, at_most: usize, silence: Duration, refused: Counter) -> Self {
        Self {
            inner,
            places: Arc::new(Semaphore::new(at_most)),
            silence,
            refused,
        }
    }

    fn place(&self) -> io::Result<OwnedSemaphorePermit> {
        self.places.clone().try_acquire_owned().map_err(|_| {
            self.refused.inc();
            io::Error::other("too many connections")
        })
    }
}

impl<A, I, S> Accept<I, S> for Guard<A>
where
    A: Accept<I, S>,
    A::Future: Send + 'static,
{
    type Stream = Guarded<A::Stream>;
    type Service = A::Service;
    type Future = Pin<Box<dyn Future<Output = io::Result<(Self::Stream, Self::Service)>> + Send>>;

    fn accept(&self, stream: I, service: S) -> Self::Future {
        let place = self.place();
        let accepted = self.inner.accept(stream, service);
        let silence = self.silence;
        Box::pin(async move {
            let place = place?;
            let (inner, service) = accepted.await?;
            let guarded = Guarded {
                inner,
                beginning: Some(Beginning::of(silence)),
                _place: place,
            };
            Ok((guarded, service))
        })
    }
}

impl Beginning {
    fn of(silence: Duration) -> Self {
        Self {
            end: Box::pin(sleep(silence)),
            lacking: PREFACE,
        }
    }

    /// Still the beginning after this many bytes more?
    fn goes_on(&mut self, heard: usize) -> bool {
        self.lacking = self.lacking.saturating_sub(heard);
        self.lacking > 0
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        if let Poll::Ready(read) = Pin::new(&mut self.inner).poll_read(cx, buf) {
            let heard = buf.filled().len() - before;
            self.beginning.take_if(|beginning| !beginning.goes_on(heard));
            return Poll::Ready(read);
        }
        let Some(beginning) = &mut self.beginning else {
            return Poll::Pending;
        };
        ready!(beginning.end.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http_limits::SILENCE;
    use axum_server::accept::DefaultAcceptor;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    fn guard(at_most: usize) -> Guard<DefaultAcceptor> {
        Guard::new(DefaultAcceptor::new(), at_most, SILENCE, Counter::default())
    }

    /// As the HTTP server does.
    async fn read_on(connection: &mut Guarded<DuplexStream>) -> io::Result<usize> {
        let mut buffer = [0; PREFACE];
        let reading = connection.read_exact(&mut buffer);
        tokio::time::timeout(SILENCE * 2, reading)
            .await
            .expect("the connection to be cut")
    }

    #[tokio::test]
    async fn one_connection_too_many_is_refused_until_another_ends() {
        let guard = guard(1);
        let (first, ()) = guard.accept(duplex(1).0, ()).await.unwrap();
        assert!(guard.accept(duplex(1).0, ()).await.is_err());
        assert_eq!(guard.refused.get(), 1);
        drop(first);
        assert!(guard.accept(duplex(1).0, ()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_never_gets_to_a_request_is_cut() {
        for said in ["", "P", "PRI * HTTP/2.0\r\n\r\nSM"] {
            let (mut client, server) = duplex(PREFACE);
            let (mut connection, ()) = guard(1).accept(server, ()).await.unwrap();
            client.write_all(said.as_bytes()).await.unwrap();
            let error = read_on(&mut connection).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{said:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_says_a_byte_now_and_then_is_cut_as_well() {
        let (mut client, server) = duplex(1);
        let (mut connection, ()) = guard(1).accept(server, ()).await.unwrap();
        let drips = tokio::spawn(async move {
            while client.write_all(b"P").await.is_ok() {
                sleep(SILENCE / 5).await;
            }
        });
        let error = read_on(&mut connection).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(connection);
        drips.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_has_begun_a_request_may_be_silent() {
        let (mut client, server) = duplex(PREFACE);
        let (mut connection, ()) = guard(1).accept(server, ()).await.unwrap();
        client.write_all(&[b'a'; PREFACE]).await.unwrap();
        connection.read_exact(&mut [0; PREFACE]).await.unwrap();
        let waited = tokio::time::timeout(SILENCE * 10, connection.read_u8()).await;
        assert!(waited.is_err(), "{waited:?}");
    }
}
