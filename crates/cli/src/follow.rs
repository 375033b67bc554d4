//! Watches runs and their placeholders: one stream of changes, and the objects that follow from the changes.

use crate::filter::Filter;
use crate::list::{self, PlaceholdersByName, Row};
use crate::output;
use crate::requests::{RequestAttributes, RequestResult, Server, request_error};
use crate::view::{PipelineRun, PlaceholderObjects, RunView, full_name};
use futures::{Stream, StreamExt, stream};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use placement::config::Config;
use placement::names::RunKey;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;

/// A change of an object that a row depends on.
pub(crate) enum Change {
    Run(Box<Event<PipelineRun>>),
    Set(Box<Event<StatefulSet>>),
    Pod(Box<Event<Pod>>),
}

/// The objects as of the last change.
#[derive(Default)]
pub(crate) struct CachedObjects {
    runs: ObjectsByName<RunView>,
    sets: ObjectsByName<StatefulSet>,
    pods: ObjectsByName<Pod>,
}

/// Objects by namespace and name. A new list replaces the objects when the list is complete.
struct ObjectsByName<T> {
    now: BTreeMap<String, T>,
    coming: BTreeMap<String, T>,
    listed: bool,
}

impl<T> Default for ObjectsByName<T> {
    fn default() -> Self {
        Self {
            now: BTreeMap::new(),
            coming: BTreeMap::new(),
            listed: false,
        }
    }
}

pub(crate) type Changes = stream::BoxStream<'static, RequestResult<Change>>;

/// All changes of one run, of the StatefulSet of its placeholder, and of these pods.
pub(crate) fn of_run(server: &Server, key: &RunKey, pods: &Filter) -> stream::SelectAll<Changes> {
    let (namespace, placeholder) = (Some(key.namespace.as_str()), key.placeholder());
    let (run, set) = (Filter::name(&key.name), Filter::name(placeholder.as_str()));
    stream::select_all([
        changes::<PipelineRun>(server, namespace, &run, Change::Run),
        changes::<StatefulSet>(server, namespace, &set, Change::Set),
        changes::<Pod>(server, namespace, pods, Change::Pod),
    ])
}

/// All changes of the objects of a kind that match.
pub(crate) fn changes<K>(
    server: &Server,
    namespace: Option<&str>,
    matching: &Filter,
    change: fn(Box<Event<K>>) -> Change,
) -> Changes
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let place = server.reach::<K>(namespace);
    let attributes = place.attributes("watch", None);
    let events = watcher::watcher(place.api(), matching.watch()).default_backoff();
    without_restarts(events, attributes)
        .map(move |event| event.map(|event| change(Box::new(event))))
        .boxed()
}

/// The watcher restarts a watch that breaks, with a new list where this is necessary. An error is passed on if the
/// first list failed, or if the user may not watch, or no longer. Other failures to restart are printed once until the
/// next event.
fn without_restarts<K: Send + 'static>(
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
    attributes: RequestAttributes,
) -> impl Stream<Item = RequestResult<Event<K>>> + Send + 'static {
    let (mut is_listed, mut is_reported) = (false, false);
    let mut restarted = move |event| match event {
        Ok(event) => {
            is_listed |= matches!(event, Event::InitDone);
            is_reported = false;
            Some(Ok(event))
        }
        Err(watcher::Error::InitialListFailed(error)) if !is_listed || is_final(&error) => {
            Some(Err(request_error(attributes.clone(), &error)))
        }
        Err(watcher::Error::WatchStartFailed(error)) if is_final(&error) => {
            Some(Err(request_error(attributes.clone(), &error)))
        }
        Err(watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) => {
            if !std::mem::replace(&mut is_reported, true) {
                let error = request_error(attributes.clone(), &error);
                output::note(&format!("note: {error}; the tool tries again"));
            }
            None
        }
        Err(_) => None,
    };
    events.filter_map(move |event| std::future::ready(restarted(event)))
}

fn is_final(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if [401, 403].contains(&status.code))
}

impl CachedObjects {
    /// Whether the objects changed and the first list of each kind is complete. Before, a placeholder may exist that is not
    /// listed yet. A later list has no effect before its end.
    pub(crate) fn take(&mut self, change: Change) -> bool {
        let is_changed = match change {
            Change::Run(event) => self.runs.take(*event, |run| RunView::of(&run)),
            Change::Set(event) => self.sets.take(*event, Some),
            Change::Pod(event) => self.pods.take(*event, Some),
        };
        is_changed && self.runs.listed && self.sets.listed && self.pods.listed
    }

    /// The run of this UID, and its placeholder.
    pub(crate) fn of_run(&self, key: &RunKey) -> Option<(&RunView, PlaceholderObjects<'_>)> {
        let name = |name: &str| format!("{}/{name}", key.namespace);
        let view = self.runs.now.get(&name(&key.name))?;
        let placeholder = key.placeholder();
        let placeholder = PlaceholderObjects {
            set: self.sets.now.get(&name(placeholder.as_str())),
            pod: self.pods.now.get(&name(&placeholder.pod())),
        };
        (view.run.key == *key).then_some((view, placeholder))
    }

    pub(crate) fn rows(&self, config: Option<&Config>) -> Vec<Row> {
        let placeholders = PlaceholdersByName::of(self.sets.now.values(), self.pods.now.values());
        list::rows(self.runs.now.values(), &placeholders, config)
    }
}

impl<T> ObjectsByName<T> {
    /// Whether the objects changed. `keep` returns the kept part of an object.
    fn take<K: Resource>(&mut self, event: Event<K>, keep: fn(K) -> Option<T>) -> bool {
        let is_change = !matches!(event, Event::Init | Event::InitApply(_));
        let put = |objects: &mut BTreeMap<_, _>, object: K| {
            let name = full_name(object.meta());
            match keep(object) {
                Some(kept) => objects.insert(name, kept),
                None => objects.remove(&name),
            }
        };
        match event {
            Event::Apply(object) => drop(put(&mut self.now, object)),
            Event::Delete(object) => drop(self.now.remove(&full_name(object.meta()))),
            Event::Init => self.coming.clear(),
            Event::InitApply(object) => drop(put(&mut self.coming, object)),
            Event::InitDone => {
                self.now = std::mem::take(&mut self.coming);
                self.listed = true;
            }
        }
        is_change
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::time::Duration;
    use tokio::time::timeout;

    /// An API server with empty lists that rejects the second list, and watches with this code; a watch with code 410 starts and
    /// ends with the code. It does not answer after a hundred watches.
    fn refusing(asked: &Arc<AtomicUsize>, code: u16) -> Server {
        let (asked, lists) = (asked.clone(), AtomicUsize::new(0));
        let answer = move |request: http::Request<Body>| {
            let watches = request
                .uri()
                .query()
                .is_some_and(|query| query.contains("watch="));
            let before = if watches { &asked } else { &lists }.fetch_add(1, Relaxed);
            let failure = |code: u16| (code, json!({"kind": "Status", "status": "Failure", "code": code}));
            async move {
                let (code, body) = match (watches, before) {
                    (true, 100..) => std::future::pending().await,
                    (true, _) if code == 410 => (200, json!({"type": "ERROR", "object": failure(code).1})),
                    (true, _) => failure(code),
                    (false, 1) => failure(500),
                    (false, _) => (200, json!({"metadata": {"resourceVersion": "1"}, "items": []})),
                };
                let body = Body::from(body.to_string().into_bytes());
                http::Response::builder().status(code).body(body)
            }
        };
        Server {
            client: Client::new(tower::service_fn(answer), "ci"),
            limit: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_refused_is_asked_for_again_after_a_pause() {
        let asked = Arc::default();
        let server = refusing(&asked, 500);
        let changes = changes::<Pod>(&server, Some("ci"), &Filter::default(), Change::Pod);
        let mut seen = Vec::new();
        let forever = changes.for_each(|change| {
            seen.push(change.is_ok());
            std::future::ready(())
        });
        timeout(Duration::from_secs(20), forever).await.unwrap_err();
        assert!(seen.iter().all(|is_change| *is_change), "{seen:?}");
        let asked = asked.load(Relaxed);
        assert!((2..20).contains(&asked), "{asked}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_fails_after_a_watch_expired_is_asked_for_again() {
        let server = refusing(&Arc::default(), 410);
        let changes = changes::<Pod>(&server, Some("ci"), &Filter::default(), Change::Pod);
        let is_list = |change: &RequestResult<Change>| match change {
            Ok(Change::Pod(event)) => matches!(**event, Event::InitDone),
            Ok(Change::Run(_) | Change::Set(_)) => false,
            Err(error) => panic!("{error}"),
        };
        let mut lists = changes.filter(|change| std::future::ready(is_list(change)));
        for _ in 0..2 {
            let list = timeout(Duration::from_mins(1), lists.next()).await.unwrap();
            assert!(list.is_some());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_without_the_right_or_with_an_expired_token_is_an_error() {
        for code in [401, 403] {
            let server = refusing(&Arc::default(), code);
            let mut changes = changes::<Pod>(&server, Some("ci"), &Filter::default(), Change::Pod);
            let error = async { while changes.next().await.is_some_and(|change| change.is_ok()) {} };
            timeout(Duration::from_secs(20), error).await.unwrap();
        }
    }
}
