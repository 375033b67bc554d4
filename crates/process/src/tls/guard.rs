//! An acceptor around another that keeps connections few and none of them idle before its first byte: a client that
//! connects and stays silent must not cost the API server its place.

use crate::metrics::Serving;
use axum_server::accept::Accept;
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

/// Connections at once. An API server holds a few dozen at most.
pub const CONNECTIONS_AT_MOST: usize = 2000;
/// From the end of the handshake to the first byte of a request; after that the HTTP limits apply.
const FIRST_BYTE: Duration = Duration::from_secs(15);

/// The acceptor.
#[derive(Clone, Debug)]
pub struct Guard<A> {
    inner: A,
    places: Arc<Semaphore>,
    metrics: Serving,
}

/// A connection that holds its place until it is dropped.
#[derive(Debug)]
pub struct Guarded<S> {
    inner: S,
    silence: Option<Pin<Box<Sleep>>>,
    _place: OwnedSemaphorePermit,
}

impl<A> Guard<A> {
    /// Lets `at_most` connections through to `inner` at once.
    pub fn new(inner: A, at_most: usize, metrics: Serving) -> Self {
        Self {
            inner,
            places: Arc::new(Semaphore::new(at_most)),
            metrics,
        }
    }

    fn place(&self) -> io::Result<OwnedSemaphorePermit> {
        self.places.clone().try_acquire_owned().map_err(|_| {
            self.metrics.connections_refused.inc();
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
        Box::pin(async move {
            let place = place?;
            let (inner, service) = accepted.await?;
            let silence = Some(Box::pin(sleep(FIRST_BYTE)));
            Ok((
                Guarded {
                    inner,
                    silence,
                    _place: place,
                },
                service,
            ))
        })
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Poll::Ready(read) = Pin::new(&mut self.inner).poll_read(cx, buf) {
            self.silence = None;
            return Poll::Ready(read);
        }
        let Some(silence) = &mut self.silence else {
            return Poll::Pending;
        };
        ready!(silence.as_mut().poll(cx));
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
    use axum_server::accept::DefaultAcceptor;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    fn guard(at_most: usize) -> Guard<DefaultAcceptor> {
        Guard::new(DefaultAcceptor::new(), at_most, Serving::default())
    }

    #[tokio::test]
    async fn one_connection_too_many_is_refused_until_another_ends() {
        let guard = guard(1);
        let (first, ()) = guard.accept(duplex(1).0, ()).await.unwrap();
        assert!(guard.accept(duplex(1).0, ()).await.is_err());
        assert_eq!(guard.metrics.connections_refused.get(), 1);
        drop(first);
        assert!(guard.accept(duplex(1).0, ()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_connection_is_cut() {
        let (_client, server) = duplex(1);
        let (mut connection, ()) = guard(1).accept(server, ()).await.unwrap();
        let error = connection.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_has_spoken_may_be_silent() {
        let (mut client, server) = duplex(1);
        let (mut connection, ()) = guard(1).accept(server, ()).await.unwrap();
        client.write_all(b"a").await.unwrap();
        assert_eq!(connection.read_u8().await.unwrap(), b'a');
        let waited = tokio::time::timeout(FIRST_BYTE * 10, connection.read_u8()).await;
        assert!(waited.is_err(), "{waited:?}");
    }
}
