//! One watch's cache, and the knowledge that its first list is in.
//!
//! kube's store can be waited for too, but it wakes only the last of those who wait (kube 5.0: its readiness is a
//! oneshot receiver that remembers one waker), and many of ours wait at once when the controller starts.

use futures::{Stream, TryStreamExt};
use kube::Resource;
use kube::runtime::WatchStreamExt;
use kube::runtime::reflector::{self, Store, store::Writer};
use kube::runtime::watcher::{self, Event};
use std::fmt::Debug;
use tokio::sync::watch;

/// The reading end.
#[derive(Clone, Debug)]
pub(crate) struct Cache<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    pub(crate) store: Store<K>,
    listed: watch::Receiver<bool>,
}

/// The writing end.
pub(crate) struct Feed<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    writer: Writer<K>,
    listed: watch::Sender<bool>,
}

/// An empty cache and its feed.
pub(crate) fn cache<K>() -> (Cache<K>, Feed<K>)
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let (store, writer) = reflector::store();
    let (sender, listed) = watch::channel(false);
    (
        Cache { store, listed },
        Feed {
            writer,
            listed: sender,
        },
    )
}

impl<K> Cache<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    /// Whether the first list is in.
    pub(crate) fn is_filled_now(&self) -> bool {
        *self.listed.borrow()
    }

    /// Waits for the first list; `false` if there will be none, since the watch has ended.
    pub(crate) async fn is_filled(&self) -> bool {
        self.listed.clone().wait_for(|listed| *listed).await.is_ok()
    }
}

impl<K> Feed<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    /// Keeps what passes through; whoever waited for the first list is woken when all of it is in.
    pub(crate) fn keep(
        self,
        events: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
    ) -> impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static {
        let Self { writer, listed } = self;
        events.reflect(writer).inspect_ok(move |event| {
            if matches!(event, Event::InitDone) {
                listed.send_replace(true);
            }
        })
    }
}

#[cfg(test)]
impl<K> Feed<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    /// Takes one event as if the watch had brought it.
    pub(crate) fn take(&mut self, event: &Event<K>) {
        self.writer.apply_watcher_event(event);
        if matches!(event, Event::InitDone) {
            self.listed.send_replace(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{StreamExt, future, stream};
    use k8s_openapi::api::core::v1::Pod;

    #[tokio::test]
    async fn everybody_who_waits_is_woken_by_the_first_list() {
        let (cache, feed) = cache::<Pod>();
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let cache = cache.clone();
                tokio::spawn(async move { cache.is_filled().await })
            })
            .collect();
        tokio::task::yield_now().await;
        let events = stream::iter([Ok(Event::Init), Ok(Event::InitDone)]).chain(stream::pending());
        let fed = Box::pin(feed.keep(events)).take(2).collect::<Vec<_>>().await;
        assert_eq!(fed.len(), 2);
        for filled in future::join_all(waiting).await {
            assert!(filled.unwrap() || !cache.store.is_empty());
        }
    }

    #[tokio::test]
    async fn a_watch_that_ends_before_its_first_list_leaves_nobody_waiting() {
        let (cache, feed) = cache::<Pod>();
        drop(feed);
        assert!(!cache.is_filled().await);
    }
}
