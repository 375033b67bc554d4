//! Wraps an acceptor and limits its connections, so that clients cannot use up the open files of this process.
//!
//! This module is hand-written, because tower and tower-http limit requests, and axum-server does not limit connections.

use axum::{Extension, middleware::AddExtension};
use axum_server::accept::Accept;
use futures::future::BoxFuture;
use prometheus_client::metrics::counter::Counter;
use std::{io, sync::Arc};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::Layer;

/// The acceptor with a limit.
#[derive(Clone, Debug)]
pub(crate) struct Guard<A> {
    inner: A,
    places: Arc<Semaphore>,
    refused: Counter,
}

/// The service of a connection. It owns the connection's permit, so the server drops both together.
type Guarded<S> = AddExtension<S, Arc<OwnedSemaphorePermit>>;

impl<A> Guard<A> {
    /// Accepts up to `at_most` connections at once through `inner`, and counts refused connections.
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
    type Stream = A::Stream;
    type Service = Guarded<A::Service>;
    type Future = BoxFuture<'static, io::Result<(Self::Stream, Self::Service)>>;

    fn accept(&self, stream: I, service: S) -> Self::Future {
        let place = self.place();
        let accepted = self.inner.accept(stream, service);
        Box::pin(async move {
            let place = Extension(Arc::new(place?));
            let (stream, service) = accepted.await?;
            Ok((stream, place.layer(service)))
        })
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
        let first = guard.accept(duplex(1).0, ()).await.unwrap();
        assert!(guard.accept(duplex(1).0, ()).await.is_err());
        assert_eq!(guard.refused.get(), 1);
        drop(first);
        assert!(guard.accept(duplex(1).0, ()).await.is_ok());
    }
}
