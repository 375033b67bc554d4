//! Streams the objects of a kind, for background tasks that act on objects until the test ends.

use futures::StreamExt;
use futures::stream::BoxStream;
use kube::Resource;
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// All objects that exist, then each that is created or changed. After an error, the watch starts again.
pub(crate) fn changes<K>(api: Api<K>, config: watcher::Config) -> BoxStream<'static, K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let changes = watcher(api, config).default_backoff().applied_objects();
    changes.filter_map(async |changed| changed.ok()).boxed()
}
