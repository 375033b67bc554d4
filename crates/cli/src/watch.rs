//! `list --watch`: the rows as they are, and then each one again whenever it changes.

use crate::args::Output;
use crate::ask::{Question, Seen, Server, gap};
use crate::gather::{config, placeholder_selector};
use crate::list::{self, Layout, Row, Seats};
use crate::output;
use crate::table;
use crate::view::{PipelineRun, full_name};
use futures::{Stream, StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use placement::keys;
use placement::strategy::Strategy;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::process::ExitCode;

/// A change of one of the three kinds that a row is made from.
enum Change {
    Run(Box<Event<PipelineRun>>),
    Set(Box<Event<StatefulSet>>),
    Pod(Box<Event<Pod>>),
}

/// Everything that is known.
#[derive(Default)]
struct Known {
    runs: Kept<PipelineRun>,
    sets: Kept<StatefulSet>,
    pods: Kept<Pod>,
}

/// Objects by namespace and name. A list that is on its way takes the place of the last one when it is complete.
struct Kept<K> {
    now: BTreeMap<String, K>,
    coming: BTreeMap<String, K>,
    listed: bool,
}

impl<K> Default for Kept<K> {
    fn default() -> Self {
        Self {
            now: BTreeMap::new(),
            coming: BTreeMap::new(),
            listed: false,
        }
    }
}

/// What was printed.
struct Printer {
    layout: Layout,
    format: Output,
    default: Option<Strategy>,
    shown: BTreeMap<String, Row>,
    widths: Vec<usize>,
}

/// Watches until it is interrupted, or until the API server refuses.
pub(crate) async fn watch(
    server: &Server,
    namespace: Option<&str>,
    layout: Layout,
    format: Output,
) -> Seen<ExitCode> {
    // Watches wait for long; this tells soon whether there is anybody to watch.
    server.clock().await?;
    let changes = stream::select_all([
        changes::<PipelineRun>(server, namespace, keys::OPT_IN, Change::Run),
        changes::<StatefulSet>(server, namespace, &placeholder_selector(), Change::Set),
        changes::<Pod>(server, namespace, &placeholder_selector(), Change::Pod),
    ]);
    let default = config(server).await.ok().map(|config| config.default_strategy);
    let mut printer = Printer {
        layout,
        format,
        default,
        shown: BTreeMap::new(),
        widths: Vec::new(),
    };
    let mut known = Known::default();
    let mut changes = std::pin::pin!(changes);
    while let Some(change) = changes.next().await {
        known.take(change?);
        if known.is_complete() && output::print(&printer.news(&known)).is_err() {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

type Changes = stream::BoxStream<'static, Seen<Change>>;

fn changes<K>(
    server: &Server,
    namespace: Option<&str>,
    selector: &str,
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
    let question = place.question("watch", None);
    let events = watcher::watcher(place.api(), watcher::Config::default().labels(selector)).default_backoff();
    sifted(events, question)
        .map(move |event| event.map(|event| change(Box::new(event))))
        .boxed()
}

/// A watch that breaks is taken up again by itself; one that is not allowed never will be.
fn sifted<K: Send + 'static>(
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
    question: Question,
) -> impl Stream<Item = Seen<Event<K>>> + Send + 'static {
    events.filter_map(move |event| {
        let question = question.clone();
        async move {
            match event {
                Ok(event) => Some(Ok(event)),
                Err(watcher::Error::InitialListFailed(error)) => Some(Err(gap(question, &error))),
                Err(watcher::Error::WatchStartFailed(error)) if is_final(&error) => {
                    Some(Err(gap(question, &error)))
                }
                Err(_) => None,
            }
        }
    })
}

fn is_final(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

impl Known {
    fn take(&mut self, change: Change) {
        match change {
            Change::Run(event) => self.runs.take(*event),
            Change::Set(event) => self.sets.take(*event),
            Change::Pod(event) => self.pods.take(*event),
        }
    }

    /// Before that, an absent placeholder is only an unseen one.
    fn is_complete(&self) -> bool {
        self.runs.listed && self.sets.listed && self.pods.listed
    }

    fn rows(&self, default: Option<Strategy>) -> Vec<Row> {
        let runs: Vec<_> = self.runs.now.values().cloned().collect();
        let sets: Vec<_> = self.sets.now.values().cloned().collect();
        let pods: Vec<_> = self.pods.now.values().cloned().collect();
        list::rows(&runs, &Seats::of(&sets, &pods), default)
    }
}

impl<K: Resource> Kept<K> {
    fn take(&mut self, event: Event<K>) {
        match event {
            Event::Apply(object) => drop(self.now.insert(full_name(object.meta()), object)),
            Event::Delete(object) => drop(self.now.remove(&full_name(object.meta()))),
            Event::Init => self.coming.clear(),
            Event::InitApply(object) => drop(self.coming.insert(full_name(object.meta()), object)),
            Event::InitDone => {
                self.now = std::mem::take(&mut self.coming);
                self.listed = true;
            }
        }
    }
}

impl Printer {
    /// The rows that are not as they were shown last.
    fn news(&mut self, known: &Known) -> String {
        let rows: Vec<_> = known
            .rows(self.default)
            .into_iter()
            .map(|row| self.visible(row))
            .collect();
        let is_new = |row: &&Row| {
            let shown = self.shown.get(&key(row));
            shown.is_none_or(|shown| self.differ(shown, row))
        };
        let news: Vec<Row> = rows.iter().filter(is_new).cloned().collect();
        self.shown = rows.into_iter().map(|row| (key(&row), row)).collect();
        self.text(&news)
    }

    /// What is not shown cannot change before a reader's eyes.
    fn visible(&self, row: Row) -> Row {
        match self.format {
            Output::Wide | Output::Json | Output::Yaml => row,
            Output::Table | Output::Name => Row {
                placeholder: None,
                group: None,
                held_by: None,
                ..row
            },
        }
    }

    /// A table shows how long a run is in its state. That this becomes more exact, once Tekton has written its start, is
    /// no change of the state.
    fn differ(&self, shown: &Row, row: &Row) -> bool {
        match self.format {
            Output::Table | Output::Wide | Output::Name => {
                let since = row.since;
                *row != Row {
                    since,
                    ..shown.clone()
                }
            }
            Output::Json | Output::Yaml => row != shown,
        }
    }

    fn text(&mut self, news: &[Row]) -> String {
        match self.format {
            Output::Table | Output::Wide => self.table(news),
            Output::Json => news.iter().map(|row| output::data(row, false)).collect(),
            Output::Yaml => news
                .iter()
                .map(|row| format!("---\n{}", output::data(row, true)))
                .collect(),
            Output::Name => news
                .iter()
                .map(|row| format!("pipelinerun.tekton.dev/{}\n", row.name))
                .collect(),
        }
    }

    /// The heads come once, and columns only ever grow.
    fn table(&mut self, news: &[Row]) -> String {
        if news.is_empty() {
            return String::new();
        }
        let now = Timestamp::now();
        let heads = self.layout.heads();
        let cells: Vec<_> = news.iter().map(|row| self.layout.cells(row, now)).collect();
        let head: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
        let first = self.widths.is_empty().then_some(&head);
        self.widths = wider(&self.widths, table::widths(&heads, &cells));
        let lines = first.into_iter().chain(&cells);
        lines.map(|row| table::line(row, &self.widths)).collect()
    }
}

fn wider(known: &[usize], wanted: Vec<usize>) -> Vec<usize> {
    let known = known.iter().copied().chain(std::iter::repeat(0));
    wanted
        .into_iter()
        .zip(known)
        .map(|(one, other)| one.max(other))
        .collect()
}

fn key(row: &Row) -> String {
    format!("{}/{}", row.namespace, row.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{UID, merged, placeholder, released, run};
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::time::Duration;
    use tokio::time::timeout;

    fn printer(format: Output) -> Printer {
        let layout = Layout {
            namespaces: false,
            wide: false,
        };
        Printer {
            layout,
            format,
            default: Some(Strategy::ColocateCompleted),
            shown: BTreeMap::new(),
            widths: Vec::new(),
        }
    }

    fn known(runs: &[PipelineRun], pods: &[Pod]) -> Known {
        let mut known = Known::default();
        known.take(Change::Set(Box::new(Event::InitDone)));
        for pod in pods {
            known.take(Change::Pod(Box::new(Event::InitApply(pod.clone()))));
        }
        known.take(Change::Pod(Box::new(Event::InitDone)));
        for run in runs {
            known.take(Change::Run(Box::new(Event::InitApply(run.clone()))));
        }
        assert!(!known.is_complete());
        known.take(Change::Run(Box::new(Event::InitDone)));
        known
    }

    #[test]
    fn a_row_comes_again_only_when_it_changes_and_the_heads_never() {
        let mut printer = printer(Output::Table);
        let mut known = known(&[run(&json!({}))], &[]);
        assert!(known.is_complete());
        let first = printer.news(&known);
        assert!(first.starts_with("NAME ") && first.contains("held"), "{first}");
        assert_eq!(printer.news(&known), "");
        known.take(Change::Run(Box::new(Event::Apply(run(&released())))));
        let second = printer.news(&known);
        assert!(
            second.starts_with("build ") && second.contains("running"),
            "{second}"
        );
    }

    #[test]
    fn a_start_that_tekton_writes_later_is_no_change_of_a_table_but_one_of_the_data() {
        for (format, rows) in [(Output::Table, 0), (Output::Json, 1)] {
            let mut printer = printer(format);
            let unstarted = merged(released(), &json!({"status": {"startTime": null}}));
            let mut known = known(&[run(&unstarted)], &[]);
            printer.news(&known);
            known.take(Change::Run(Box::new(Event::Apply(run(&released())))));
            assert_eq!(printer.news(&known).matches("running").count(), rows);
        }
    }

    #[test]
    fn a_placeholder_that_changes_is_a_change_of_its_run() {
        let mut printer = printer(Output::Json);
        let mut known = known(&[run(&json!({}))], &[]);
        printer.news(&known);
        let bound = placeholder("build", UID, Some("node-7"), &json!({}));
        known.take(Change::Pod(Box::new(Event::Apply(bound))));
        assert!(printer.news(&known).contains("\"node\": \"node-7\""));
    }

    #[test]
    fn a_list_that_comes_again_is_no_change_and_what_is_gone_is_forgotten() {
        let mut printer = printer(Output::Name);
        let other = run(&json!({"metadata": {"name": "other", "uid": "u2"}}));
        let mut known = known(&[run(&json!({})), other.clone()], &[]);
        assert_eq!(printer.news(&known).lines().count(), 2);
        known.take(Change::Run(Box::new(Event::Init)));
        assert_eq!(printer.news(&known), "");
        known.take(Change::Run(Box::new(Event::InitApply(other.clone()))));
        known.take(Change::Run(Box::new(Event::InitDone)));
        assert_eq!(printer.news(&known), "");
        known.take(Change::Run(Box::new(Event::Delete(other.clone()))));
        printer.news(&known);
        known.take(Change::Run(Box::new(Event::Apply(other))));
        assert_eq!(printer.news(&known), "pipelinerun.tekton.dev/other\n");
    }

    /// An API server that lists nothing and refuses watches; after a hundred of those it says nothing any more.
    fn refusing(asked: &Arc<AtomicUsize>) -> Server {
        let asked = asked.clone();
        let answer = move |request: http::Request<Body>| {
            let watches = request
                .uri()
                .query()
                .is_some_and(|query| query.contains("watch="));
            let before = if watches { asked.fetch_add(1, Relaxed) } else { 0 };
            async move {
                let (code, body) = match (watches, before) {
                    (true, 100..) => std::future::pending().await,
                    (true, _) => (500, json!({"kind": "Status", "status": "Failure", "code": 500})),
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
        let changes = changes::<Pod>(&refusing(&asked), Some("ci"), "", Change::Pod);
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

    #[test]
    fn documents_of_yaml_are_told_apart() {
        let text = printer(Output::Yaml).news(&known(&[run(&merged(released(), &json!({})))], &[]));
        assert!(text.starts_with("---\nnamespace: ci\n"), "{text}");
    }
}
