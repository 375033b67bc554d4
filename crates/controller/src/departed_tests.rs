use super::*;
use crate::fixture::{Caches, Server, desk, done, exposition, run, view};
use futures::FutureExt;
use placement::keys;
use serde_json::{Value, json};

struct Watched {
    departures: Departures,
    gone: mpsc::UnboundedReceiver<RunKey>,
    list_is_in: Arc<Notify>,
}

impl Watched {
    fn new() -> Self {
        let (sender, gone) = mpsc::unbounded_channel();
        let list_is_in = Arc::<Notify>::default();
        Self {
            departures: Departures::new(sender, list_is_in.clone()),
            gone,
            list_is_in,
        }
    }

    fn see(&mut self, events: impl IntoIterator<Item = Event<PipelineRun>>) -> Vec<String> {
        events.into_iter().for_each(|event| self.departures.note(&event));
        std::iter::from_fn(|| self.gone.try_recv().ok())
            .map(|key| key.uid)
            .collect()
    }
}

fn running(uid: &str) -> PipelineRun {
    view("build", uid, &json!({}))
}

fn finished(uid: &str) -> PipelineRun {
    view("build", uid, &done())
}

#[test]
fn an_unfinished_run_that_leaves_the_watch_is_noticed() {
    let mut watched = Watched::new();
    assert_eq!(
        watched.see([Event::Apply(running("u1")), Event::Delete(running("u1"))]),
        ["u1"]
    );
}

#[test]
fn finished_runs_leave_unnoticed() {
    let mut watched = Watched::new();
    let events = [
        Event::Apply(running("u1")),
        Event::Apply(finished("u1")),
        Event::Delete(finished("u1")),
    ];
    assert_eq!(watched.see(events), [""; 0]);
    let relisted = [
        Event::Init,
        Event::InitApply(finished("u2")),
        Event::InitDone,
        Event::Init,
        Event::InitDone,
    ];
    assert_eq!(watched.see(relisted), [""; 0]);
}

#[test]
fn runs_that_are_missing_from_a_relist_are_noticed() {
    let mut watched = Watched::new();
    watched.see([
        Event::Init,
        Event::InitApply(running("u1")),
        Event::InitApply(running("u2")),
        Event::InitDone,
    ]);
    let broken = [Event::Init, Event::InitApply(running("u1"))];
    assert_eq!(watched.see(broken), [""; 0], "a list that broke off says nothing");
    assert_eq!(
        watched.see([Event::Init, Event::InitApply(running("u2")), Event::InitDone]),
        ["u1"]
    );
}

#[test]
fn a_run_made_anew_under_the_same_name_does_not_hide_that_the_first_is_gone() {
    let mut watched = Watched::new();
    watched.see([Event::Init, Event::InitApply(running("u1")), Event::InitDone]);
    assert_eq!(
        watched.see([Event::Init, Event::InitApply(running("u2")), Event::InitDone]),
        ["u1"]
    );
}

#[test]
fn each_complete_list_is_told_and_nothing_else() {
    let mut watched = Watched::new();
    let told = |watched: &Watched| {
        watched
            .list_is_in
            .clone()
            .notified_owned()
            .now_or_never()
            .is_some()
    };
    watched.see([
        Event::Apply(running("u1")),
        Event::Delete(running("u1")),
        Event::Init,
    ]);
    assert!(!told(&watched));
    for _ in 0..2 {
        watched.see([Event::Init, Event::InitDone]);
        assert!(told(&watched));
    }
    assert!(!told(&watched));
}

#[tokio::test(start_paused = true)]
async fn runs_that_are_held_or_grouped_without_the_label_are_found_page_by_page_and_in_spite_of_trouble() {
    let mut server = Server::start();
    let run = |name: &str, more: Value| {
        let mut run = json!({"metadata": {"name": name, "namespace": "ns", "uid": name}});
        json_patch::merge(&mut run["metadata"], &more);
        run
    };
    let held = json!({"annotations": {keys::HOLD: "true"}});
    let grouped = json!({"labels": {keys::GROUP: "d"}});
    let foreign = json!({"annotations": {"x": "y"}, "labels": {"x": "y"}});
    let page = |token: &str, runs: &[Value]| json!({"metadata": {"continue": token}, "items": runs});
    server.refuse(500, "InternalError", "etcdserver: request timed out");
    server.answer(
        200,
        page("more", &[run("a", held), run("b", json!({})), run("c", foreign)]),
    );
    server.answer(200, page("", &[run("d", grouped)]));
    let (desk, ..) = desk(&Caches::ready(), &server);
    let found = robbed(&desk.door).await;
    assert_eq!(
        found.iter().map(|key| key.uid.as_str()).collect::<Vec<_>>(),
        ["a", "d"]
    );
    let lines: Vec<_> = server.calls().into_iter().map(|call| call.line).collect();
    assert!(
        lines[1].ends_with("pipelineruns?&labelSelector=%21tekton.dev%2Fcustom-pod-affinity&limit=500"),
        "{lines:?}"
    );
    assert!(lines[2].contains("continue=more"), "{lines:?}");
}

#[tokio::test]
async fn what_is_found_after_a_list_is_seen_off_and_looked_for_again_after_the_next() {
    let mut server = Server::start();
    let found = json!({"metadata": {"name": "build", "namespace": "ns", "uid": "u1", "annotations": {keys::HOLD: "true"}}});
    for _ in 0..2 {
        server.answer(200, json!({"metadata": {}, "items": [found.clone()]}));
    }
    let (desk, ..) = desk(&Caches::ready(), &server);
    let (list_is_in, (sender, mut gone)) = (Arc::<Notify>::default(), mpsc::unbounded_channel());
    let finding = tokio::spawn(find_robbed(Arc::new(desk), list_is_in.clone(), sender));
    for _ in 0..2 {
        list_is_in.notify_one();
        assert_eq!(gone.recv().await.map(|key| key.uid), Some("u1".into()));
    }
    finding.abort();
    assert_eq!(server.calls().len(), 2);
}

#[test]
fn a_placeholder_without_its_run_in_the_cache_is_a_stray() {
    let mut caches = Caches::ready();
    let (mut known, lost) = (run(), run());
    (known.key.name, known.key.uid) = ("known".into(), "u9".into());
    caches.add_held_run("known", "u9");
    caches.add_set(&known, "s9");
    caches.add_set(&lost, "s1");
    assert_eq!(strays(&caches.stores), [lost.key]);
}

fn robbed_run(changes: &Value) -> Value {
    let mut run = json!({
        "metadata": {
            "name": "build", "namespace": "ns", "uid": "u1",
            "annotations": {keys::HOLD: "true"},
        },
        "spec": {"status": keys::PENDING},
    });
    json_patch::merge(&mut run, changes);
    run
}

#[tokio::test(start_paused = true)]
async fn a_held_run_that_lost_its_label_is_released_and_its_placeholder_deleted() {
    let mut server = Server::start();
    let mut caches = Caches::ready();
    caches.add_set(&run(), "s1");
    let let_go = json!({"spec": {"status": null}, "metadata": {"annotations": null}});
    server.answer(200, robbed_run(&json!({})));
    server.answer(200, json!({"metadata": {}}));
    server.answer(200, robbed_run(&let_go));
    server.answer(200, json!({"kind": "Status", "status": "Success"}));
    server.refuse(404, "NotFound", "not found");
    let (desk, mut courier, _) = desk(&caches, &server);
    desk.see_off(run().key).await;
    let methods: Vec<_> = server
        .calls()
        .into_iter()
        .map(|it| it.line[..5].to_owned())
        .collect();
    assert_eq!(methods, ["GET /", "PATCH", "GET /", "DELET", "GET /"]);
    assert_eq!(courier.reasons(), ["Released", "CleanedUp"]);
}

#[tokio::test]
async fn a_run_that_is_gone_or_has_its_label_back_is_left_alone() {
    let labelled = robbed_run(&json!({"metadata": {"labels": {keys::OPT_IN: "true"}}}));
    for (code, body) in [
        (404, json!({"kind": "Status", "code": 404, "reason": "NotFound"})),
        (200, labelled),
    ] {
        let mut server = Server::start();
        server.answer(code, body);
        let (desk, ..) = desk(&Caches::ready(), &server);
        desk.see_off(run().key).await;
        assert_eq!(server.calls().len(), 1);
    }
}

#[tokio::test]
async fn a_run_that_was_deleted_while_held_is_counted_and_forgotten() {
    let mut server = Server::start();
    server.refuse(404, "NotFound", "not found");
    let (desk, _, registry) = desk(&Caches::ready(), &server);
    desk.memory
        .with("u1", |known| known.held = Some(jiff::Timestamp::now()));
    desk.see_off(run().key).await;
    assert!(exposition(&registry).contains("hold_seconds_count{outcome=\"deleted\"} 1"));
    assert!(desk.memory.forget("u1").is_none());
}

#[tokio::test(start_paused = true)]
async fn an_api_server_in_trouble_is_asked_again() {
    let mut server = Server::start();
    server.refuse(500, "InternalError", "etcdserver: request timed out");
    server.refuse(404, "NotFound", "not found");
    let (desk, ..) = desk(&Caches::ready(), &server);
    desk.see_off(run().key).await;
    assert_eq!(server.calls().len(), 2);
}
