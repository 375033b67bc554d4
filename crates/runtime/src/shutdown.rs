//! Turns SIGTERM and SIGINT into a value that every part of a process can await. The first signal starts a graceful shutdown; the
//! second signal ends the process at once.

use futures::{Stream, StreamExt, stream};
use std::io;
use thiserror::Error;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The operating system refused the signal handlers.
#[derive(Debug, Error)]
#[error("cannot listen for SIGTERM and SIGINT: {0}; the process could not shut down gracefully")]
pub struct Error(#[from] io::Error);

/// The shutdown of this process. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    started: CancellationToken,
    forced: CancellationToken,
}

impl Shutdown {
    /// Starts to listen for SIGTERM and SIGINT. Needs a tokio runtime.
    pub fn on_signals() -> Result<Self, Error> {
        let terminate = named("SIGTERM", signal(SignalKind::terminate())?);
        let interrupt = named("SIGINT", signal(SignalKind::interrupt())?);
        let shutdown = Self::default();
        tokio::spawn(shutdown.clone().listen(stream::select(terminate, interrupt)));
        Ok(shutdown)
    }

    /// Starts the graceful shutdown.
    #[cfg(test)]
    pub(crate) fn start(&self) {
        self.started.cancel();
    }

    /// Whether the graceful shutdown has started.
    pub fn has_started(&self) -> bool {
        self.started.is_cancelled()
    }

    /// Resolves when the graceful shutdown starts.
    pub fn started(&self) -> impl Future<Output = ()> + Send + 'static {
        self.started.clone().cancelled_owned()
    }

    /// Resolves when the process has to end at once.
    pub fn forced(&self) -> impl Future<Output = ()> + Send + 'static {
        self.forced.clone().cancelled_owned()
    }

    async fn listen(self, mut signals: impl Stream<Item = &'static str> + Unpin) {
        if let Some(signal) = signals.next().await {
            tracing::info!(
                signal,
                "shutting down gracefully; a second signal ends the process at once"
            );
            self.started.cancel();
        }
        if let Some(signal) = signals.next().await {
            tracing::warn!(signal, "ending at once");
            self.forced.cancel();
        }
    }
}

fn named(name: &'static str, signal: Signal) -> impl Stream<Item = &'static str> + Unpin + Send {
    Box::pin(stream::unfold(signal, move |mut signal| async move {
        signal.recv().await.map(|()| (name, signal))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_signal_starts_the_shutdown_and_the_second_ends_the_process() {
        let shutdown = Shutdown::default();
        shutdown.clone().listen(stream::iter(["SIGTERM"])).await;
        assert!(shutdown.has_started() && !shutdown.forced.is_cancelled());
        shutdown.clone().listen(stream::iter(["SIGTERM", "SIGINT"])).await;
        shutdown.forced().await;
    }

    #[tokio::test]
    async fn every_clone_sees_the_shutdown() {
        let shutdown = Shutdown::default();
        let clone = shutdown.clone().started();
        shutdown.start();
        clone.await;
    }
}
