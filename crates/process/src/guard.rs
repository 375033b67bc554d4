//! An acceptor around another that keeps connections few, so that no client costs this process its last file.

use axum_server::accept::Accept;
use prometheus_client::metrics::counter::Counter;
use std::{
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The acceptor.
#[derive(Clone, Debug)]
pub(crate) struct Guard<A> {
    inner: A,
    places: Arc<Semaphore>,
    refused: Counter,
}

/// A connection that holds its place until it is dropped.
#[derive(Debug)]
pub(crate) struct Guarded<S> {
    inner: S,
    _place: OwnedSemaphorePermit,
}

impl<A> Guard<A> {
    /// Lets `at_most` connections through to `inner` at once, and counts those it does not.
    pub(crate) fn new(inner: A, at_most: usize, refused: Counter) -> Self {
        Self {
            inner,
            places: Arc::new(Semaphore::new(at_most)),
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
        Box::pin(async move {
            let place = place?;
            let (inner, service) = accepted.await?;
            let guarded = Guarded { inner, _place: place };
            Ok((guarded, service))
        })
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
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
    use tokio::io::duplex;

    #[tokio::test]
    async fn one_connection_too_many_is_refused_until_another_ends() {
        let guard = Guard::new(DefaultAcceptor::new(), 1, Counter::default());
        let (first, ()) = guard.accept(duplex(1).0, ()).await.unwrap();
        assert!(guard.accept(duplex(1).0, ()).await.is_err());
        assert_eq!(guard.refused.get(), 1);
        drop(first);
        assert!(guard.accept(duplex(1).0, ()).await.is_ok());
    }
}
