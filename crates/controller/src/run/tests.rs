use super::*;
use crate::fixture::{
    Caches, Server, bound_pod, clock, node, placeholder_set, reconciler as of_caches, run as held_run,
    view_json,
};
use kube::client::Body;
use placement::config::ReleaseWhen;
use placement::keys;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;
use tokio::sync::oneshot;
use tokio::time;
use tower_test::mock::{self, SendResponse};

type Reply = SendResponse<http::Response<Body>>;

/// As much of a cluster as one run takes: lists are short, a watch is answered when there is something to see.
struct Cluster {
    watches: HashMap<&'static str, Reply>,
    pending: HashMap<&'static str, Value>,
    lines: Arc<Mutex<Vec<String>>>,
    released: Option<oneshot::Sender<()>>,
    /// The placeholder's pod.
    pod: Value,
}

impl Cluster {
    fn take(&mut self, request: &http::Request<Body>, reply: Reply) {
        let line = format!("{} {}", request.method(), request.uri());
        let resource = resource(&line);
        self.lines.lock().unwrap().push(line.clone());
        if line.contains("sendInitialEvents") {
            return reject_streaming_list(reply);
        }
        match (request.method().as_str(), line.contains("watch=true")) {
            ("GET", true) => self.watch(resource, reply),
            ("GET", false) => answer(reply, &list(resource)),
            ("PATCH", _) => self.write(resource, reply),
            _ => answer(reply, &json!({"metadata": {}})),
        }
    }

    fn watch(&mut self, resource: &'static str, reply: Reply) {
        match self.pending.remove(resource) {
            Some(event) => answer(reply, &event),
            None => drop(self.watches.insert(resource, reply)),
        }
    }

    /// The placeholder is there at once; a released run ends the test.
    fn write(&mut self, resource: &'static str, reply: Reply) {
        answer(reply, &json!({"metadata": {}}));
        if resource == "pipelineruns" {
            self.released
                .take()
                .into_iter()
                .for_each(|it| it.send(()).unwrap());
            return;
        }
        self.show("statefulsets", &placeholder_set(&held_run()));
        let pod = self.pod.clone();
        self.show("pods", &pod);
    }

    fn show(&mut self, resource: &'static str, object: &Value) {
        let event = json!({"type": "ADDED", "object": object});
        match self.watches.remove(resource) {
            Some(reply) => answer(reply, &event),
            None => drop(self.pending.insert(resource, event)),
        }
    }
}

fn resource(line: &str) -> &'static str {
    if line.contains("kept-node") {
        return "kept nodes";
    }
    if line.contains("status.phase") {
        return "pending pods";
    }
    if line.contains("FailedCreate") {
        return "failed creates";
    }
    if line.contains("source%21%3Dkubelet") {
        return "autoscaler events";
    }
    let watched = [
        "pipelineruns",
        "statefulsets",
        "nodes",
        "pods",
        "events",
        "resourcequotas",
        "configmaps",
    ];
    watched
        .into_iter()
        .find(|name| line.contains(&format!("/{name}")))
        .unwrap()
}

fn list(resource: &str) -> Value {
    let items = match resource {
        "pipelineruns" => vec![view_json("build", "u1")],
        "nodes" => vec![node("n1", &json!({}))],
        _ => Vec::new(),
    };
    json!({"metadata": {"resourceVersion": "1"}, "items": items})
}

/// As an API server without streaming lists.
fn reject_streaming_list(reply: Reply) {
    let status = json!({"kind": "Status", "status": "Failure", "code": 422, "reason": "Invalid", "message": "sendInitialEvents"});
    let response = http::Response::builder().status(422);
    reply.send_response(
        response
            .body(Body::from(status.to_string().into_bytes()))
            .unwrap(),
    );
}

fn answer(reply: Reply, body: &Value) {
    reply.send_response(http::Response::new(Body::from(format!("{body}\n").into_bytes())));
}

fn cluster() -> (Client, Arc<Mutex<Vec<String>>>, oneshot::Receiver<()>) {
    cluster_with(bound_pod(&held_run()))
}

fn cluster_with(pod: Value) -> (Client, Arc<Mutex<Vec<String>>>, oneshot::Receiver<()>) {
    let (service, mut handle) = mock::pair::<http::Request<Body>, http::Response<Body>>();
    let (sender, released) = oneshot::channel();
    let lines = Arc::<Mutex<Vec<String>>>::default();
    let (watches, pending) = (HashMap::new(), HashMap::new());
    let mut cluster = Cluster {
        watches,
        pending,
        lines: lines.clone(),
        released: Some(sender),
        pod,
    };
    tokio::spawn(async move {
        while let Some((request, reply)) = handle.next_request().await {
            cluster.take(&request, reply);
        }
    });
    (Client::new(service, "default"), lines, released)
}

fn context(client: Client, config: channel::Receiver<Arc<Config>>) -> Context {
    Context {
        client,
        tekton_namespace: future::ready("tekton".to_owned()).boxed().shared(),
        clock: clock(),
        config,
        image: "image".into(),
        metrics: Metrics::register(&mut Registry::default()),
        namespace: keys::NAMESPACE.into(),
        instance: "pod-1".into(),
    }
}

#[tokio::test]
async fn a_held_run_is_released_once_its_placeholder_is_bound_and_then_the_controller_stops_in_order() {
    let (client, lines, released) = cluster();
    let (_sender, config) = channel::channel(Arc::new(Config::default()));
    let stop = async { released.await.unwrap() };
    run(context(client, config), stop).await.unwrap();
    let lines = lines.lock().unwrap().clone();
    let writes: Vec<_> = lines
        .iter()
        .filter(|line| line.starts_with("PATCH"))
        .map(|line| resource(line))
        .collect();
    assert_eq!(writes, ["statefulsets", "pipelineruns"]);
    let told = lines.iter().filter(|line| line.starts_with("POST")).count();
    assert_eq!(told, 2, "held and released are told before the end");
}

#[tokio::test]
async fn only_placeholders_and_waiting_pods_of_groups_are_watched_and_large_objects_come_in_small_pages() {
    let (client, lines, released) = cluster();
    let (_sender, config) = channel::channel(Arc::new(Config::default()));
    run(context(client, config), async { released.await.unwrap() })
        .await
        .unwrap();
    let lines = lines.lock().unwrap().clone();
    let lists: Vec<_> = lines
        .iter()
        .filter(|line| line.starts_with("GET") && !line.contains("watch=true"))
        .collect();
    assert_eq!(lists.len(), 11, "{lists:?}");
    for line in lists {
        let expected = match resource(line) {
            "pipelineruns" => "/pipelineruns?&limit=100",
            "nodes" => "/nodes?&limit=100",
            "events" => "involvedObject.kind%3DTaskRun%2Creason%3DExceededResourceQuota&limit=100",
            "configmaps" => "/namespaces/tekton/configmaps?&fieldSelector=metadata.name%3Dfeature-flags&",
            "resourcequotas" => "/resourcequotas?&limit=100",
            "failed creates" => "involvedObject.kind%3DStatefulSet%2Creason%3DFailedCreate&limit=100",
            "autoscaler events" => {
                "involvedObject.kind%3DPod%2Csource%21%3Dkubelet%2Csource%21%3Ddefault-scheduler&limit=100"
            }
            "kept nodes" => {
                "/namespaces/tekton-pod-affinity/pods?&labelSelector=app.kubernetes.io%2Fcomponent%3Dkept-node&"
            }
            "pending pods" => "group%2Capp.kubernetes.io%2Fcomponent+notin+%28placeholder%2C",
            _ => "component%3Dplaceholder%2Capp.kubernetes.io%2Fname%3Dpod-affinity",
        };
        assert!(line.contains(expected), "{line}");
    }
}

#[tokio::test]
async fn a_controller_stops_at_once_on_request() {
    let (client, _, _released) = cluster();
    let (_sender, config) = channel::channel(Arc::new(Config::default()));
    run(context(client, config), async {}).await.unwrap();
}

/// The paused clock advances only when no task can run. A run that waits for its node is requeued after a minute.
#[tokio::test(start_paused = true)]
async fn a_waiting_run_is_reconciled_at_once_when_the_configuration_changes() {
    let mut unbound = bound_pod(&held_run());
    unbound["spec"] = json!({});
    let (client, _, mut released) = cluster_with(unbound);
    let (sender, config) = channel::channel(Arc::new(Config::default()));
    let changed = async move {
        time::sleep(Duration::from_secs(20)).await;
        assert!(released.try_recv().is_err(), "it waits for its node");
        let since = time::Instant::now();
        let release_when = ReleaseWhen::Created;
        sender.send_replace(Arc::new(Config {
            release_when,
            ..Config::default()
        }));
        released.await.unwrap();
        assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    };
    run(context(client, config), changed).await.unwrap();
}

/// The same cluster with this number of runs. It answers no write.
fn hanging(client: Client, runs: usize) -> Client {
    let answer = move |request: http::Request<Body>| {
        let client = client.clone();
        async move {
            let line = format!("{} {}", request.method(), request.uri());
            let response = client.send(request).await?;
            if line.starts_with("PATCH") {
                future::pending::<()>().await;
            }
            if !line.contains("/pipelineruns") || line.contains("watch=true") {
                return Ok(response);
            }
            let items: Vec<_> = (0..runs)
                .map(|run| view_json(&format!("build-{run}"), &format!("u{run}")))
                .collect();
            let list = json!({"metadata": {"resourceVersion": "1"}, "items": items});
            Ok::<_, kube::Error>(http::Response::new(Body::from(list.to_string().into_bytes())))
        }
    };
    Client::new(tower::service_fn(answer), "default")
}

#[tokio::test(start_paused = true)]
async fn thirty_two_runs_are_reconciled_at_the_same_time() {
    let (client, lines, _released) = cluster();
    let (_sender, config) = channel::channel(Arc::new(Config::default()));
    let running = run(context(hanging(client, 32), config), future::pending());
    assert!(timeout(Duration::from_secs(5), running).await.is_err());
    let lines = lines.lock().unwrap().clone();
    let created: BTreeSet<_> = lines.iter().filter(|line| line.starts_with("PATCH")).collect();
    assert_eq!(created.len(), 32, "{lines:?}");
}

/// The same cluster, but a fault of ours: the task that sends an event panics.
fn faulty(client: Client) -> Client {
    let answer = move |request: http::Request<Body>| {
        let client = client.clone();
        async move {
            assert_ne!(request.method(), "POST", "a fault in the task that sends events");
            client.send(request).await
        }
    };
    Client::new(tower::service_fn(answer), "default")
}

#[tokio::test]
async fn a_controller_whose_events_are_not_sent_any_more_ends_and_says_so() {
    let (client, _, _released) = cluster();
    let (_sender, config) = channel::channel(Arc::new(Config::default()));
    let running = run(context(faulty(client), config), future::pending());
    let ended = timeout(Duration::from_secs(30), running).await;
    assert!(
        matches!(ended, Ok(Err(Error::EventsEnded))),
        "its users would hear nothing: {ended:?}"
    );
}

#[tokio::test]
async fn of_a_run_that_a_complete_list_lacks_nothing_is_remembered_and_of_the_others_all() {
    let mut caches = Caches::ready();
    caches.add_held_run("build", "u1");
    let (reconciler, ..) = of_caches(&caches, &Server::start());
    for uid in ["u1", "u2"] {
        reconciler.memory.with(uid, RunMemory::relaxed);
    }
    forget(&reconciler, &caches.stores.runs, &Deleted::Unlisted);
    let is_remembered = |uid| reconciler.memory.forget(uid).is_some();
    assert_eq!(["u1", "u2"].map(is_remembered), [true, false]);
}

#[tokio::test]
async fn nothing_is_remembered_of_a_run_that_is_deleted_while_its_quota_is_read() {
    let mut server = Server::start();
    let count = json!({"count/statefulsets.apps": "1"});
    let quota = json!({"metadata": {"name": "q"}, "status": {"hard": count, "used": count}});
    for items in [json!([quota]), json!([]), json!([quota])] {
        server.answer(200, json!({"metadata": {}, "items": items}));
    }
    let mut caches = Caches::ready();
    caches.add_quota(&count, &count);
    let volume = json!({"name": "w", "volumeClaimTemplate": {}});
    caches.add_held_run_with("build", "u1", &json!({"spec": {"workspaces": [volume]}}));
    let view = caches.stores.runs.state().remove(0);
    let reconciler = Arc::new(of_caches(&caches, &server).0);
    let mut running = std::pin::pin!(reconcile(view.clone(), reconciler.clone()));
    assert!(futures::poll!(running.as_mut()).is_pending());
    caches.remove_run(&view);
    let gone = Deleted::One("u1".to_owned());
    forget(&reconciler, &caches.stores.runs, &gone);
    running.await.unwrap();
    assert!(reconciler.memory.turns.next_in("ns").is_empty());
    assert!(reconciler.memory.forget("u1").is_none());
}
