//! Lists of objects, in the form that needs the least memory.
//!
//! kube reads a list as a whole, and keeps two copies of the text meanwhile. A streaming list sends one object at a time. Kubernetes
//! 1.34 and newer have streaming lists; an older API server rejects the request, and the list comes in pages. The client reads a
//! response up to a limit (`runtime::response_limit`). If a page is over the limit, the page is read again with fewer objects.

use crate::api_error::{Failure, StepError};
use crate::write::with_timeout;
use futures::{Stream, StreamExt, future};
use http_body_util::LengthLimitError;
use kube::api::{Api, ListParams, ObjectList, PartialObjectMeta};
use kube::runtime::watcher::{self, Config, Event, watcher};
use kube::{Error, Resource};
use placement::requests::Operation;
use serde::de::DeserializeOwned;
use std::error::Error as _;
use std::fmt::Debug;
use tokio::sync::Semaphore;

/// Objects per page. An object usually has tens of kilobytes.
const PAGE: u32 = 100;
/// Objects per page of metadata. The metadata of an object usually has a few kilobytes.
const METADATA_PAGE: u32 = 500;
/// Objects per page if objects are large. etcd stores objects of up to 1.5 MiB, so such a page is never over the limit.
const SMALL_PAGE: u32 = 8;

/// Pages that are read at the same time: the client keeps a page of up to 16 MiB twice, and the process has 512 MiB.
static PAGES: Semaphore = Semaphore::const_new(4);

/// Watches objects. The first list is a streaming list if the API server has streaming lists.
pub(crate) fn watch<K>(
    api: Api<K>,
    config: Config,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send + use<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let streaming = watcher(api.clone(), config.clone().streaming_lists());
    let pages = watcher(api.clone(), config.clone().page_size(PAGE));
    let small_pages = watcher(api, config.page_size(SMALL_PAGE));
    streaming
        .take_while(|event| future::ready(!is_unsupported(event)))
        .chain(pages.take_while(|event| future::ready(!is_page_too_large(event))))
        .chain(small_pages)
}

/// Folds over objects, page by page.
pub(crate) async fn fold<K, T>(
    operation: Operation,
    api: &Api<K>,
    params: ListParams,
    whole: T,
    and_one: impl Fn(T, K) -> T,
) -> Result<T, StepError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let list = |page| async move { api.list(&page).await };
    fold_pages(operation, list, params.limit(PAGE), whole, and_one).await
}

/// Folds over the metadata of objects, page by page.
pub(crate) async fn fold_metadata<K, T>(
    operation: Operation,
    api: &Api<K>,
    whole: T,
    and_one: impl Fn(T, PartialObjectMeta<K>) -> T,
) -> Result<T, StepError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let list = |page| async move { api.list_metadata(&page).await };
    let params = ListParams::default().limit(METADATA_PAGE);
    fold_pages(operation, list, params, whole, and_one).await
}

async fn fold_pages<K, T, L>(
    operation: Operation,
    list: impl Fn(ListParams) -> L,
    mut page: ListParams,
    mut whole: T,
    and_one: impl Fn(T, K) -> T,
) -> Result<T, StepError>
where
    K: Clone,
    L: Future<Output = kube::Result<ObjectList<K>>>,
{
    loop {
        // The semaphore is never closed.
        let permit = PAGES.acquire().await;
        let listed = with_timeout(operation, list(page.clone())).await;
        drop(permit);
        let listed = match listed {
            Err(StepError {
                fault: Failure::Api(error),
                ..
            }) if page.limit != Some(SMALL_PAGE) && is_too_large(&error) => {
                page.limit = Some(SMALL_PAGE);
                continue;
            }
            listed => listed?,
        };
        whole = listed.items.into_iter().fold(whole, &and_one);
        // An empty continue token marks the last page.
        match listed.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(whole),
        }
    }
}

/// The API server rejects a streaming list as invalid if the feature gate `WatchList` is off.
fn is_unsupported<K>(event: &watcher::Result<Event<K>>) -> bool {
    let Err(watcher::Error::WatchStartFailed(Error::Api(status))) = event else {
        return false;
    };
    matches!(status.code, 400 | 422)
}

fn is_page_too_large<K>(event: &watcher::Result<Event<K>>) -> bool {
    matches!(event, Err(watcher::Error::InitialListFailed(error)) if is_too_large(error))
}

/// Whether the response was longer than the client reads.
fn is_too_large(error: &Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests;
