//! The steps by which a run leaves its node, and those that bring a placeholder to its size: exact requests.

use super::tests::{SETS, act, act_on, observed, seen_on, step, write};
use super::*;
use crate::api_error::ErrorCause;
use crate::fixture::{
    Caches, Server, at, cluster, node as node_json, observed_pod, placeholder, reconciler, run, written,
};
use crate::read::TaskPods;
use placement::node::Cause as Trouble;
use placement::node::NodeState;
use placement::plan::RequeueMark;
use placement::plan::{Action, Inputs, Read, Requeue, Resize, Tasks, WaitingPod};
use placement::quota_room::RejectedTask;
use placement::resources::Resources;
use placement::run::SpecStatus;
use serde_json::json;

const POD: &str = "/api/v1/namespaces/ns/pods";

fn waiting(name: &str) -> WaitingPod {
    WaitingPod {
        name: name.into(),
        ..WaitingPod::default()
    }
}

/// The placeholder is on node n1, where no pod can start any more.
fn on_cordoned_node() -> Observation {
    Observation {
        node: NodeState::Unusable(Trouble::Cordoned),
        ..seen_on("n1")
    }
}

/// No task of the run lives, and no volume ties the run to its node.
fn no_tasks() -> Inputs {
    Inputs {
        tasks: Tasks::default().into(),
        ..Inputs::default()
    }
}

async fn move_off(server: &Server) -> Result<Effect, StepError> {
    act_on(server, &on_cordoned_node(), &no_tasks()).await
}

/// The placeholder has found node n1 with a reserve.
fn big() -> Observation {
    let mut observed = seen_on("n1");
    let size = Resources::from_texts([(&"cpu".to_owned(), &"4".to_owned())]);
    observed.statefulset.as_mut().unwrap().spec.size = size.clone();
    let shape = &mut observed.pod.as_mut().unwrap().shape;
    (shape.requests, shape.reserves) = (size, true);
    observed
}

async fn shrink(server: &Server) -> Result<Effect, StepError> {
    act(server, &big()).await
}

#[tokio::test]
async fn moving_off_scales_the_very_set_that_was_seen_from_the_very_number_that_was_seen() {
    let mut server = Server::start();
    server.answer(200, written());
    assert_eq!(move_off(&server).await.unwrap(), Effect::Written);
    let call = server.calls().remove(0);
    assert_eq!(
        call.line,
        format!("PATCH {SETS}/{}?&fieldManager=pod-affinity", placeholder())
    );
    assert_eq!(call.content_type, "application/json-patch+json");
    let expected = json!([
        {"op": "test", "path": "/metadata/uid", "value": "s1"},
        {"op": "test", "path": "/spec/replicas", "value": 1},
        {"op": "replace", "path": "/spec/replicas", "value": 0},
        {"op": "add", "path": "/spec/template/metadata/annotations/pod-affinity.tekton.dev~1left", "value": "n1"},
    ]);
    assert_eq!(call.body, expected);
}

#[tokio::test]
async fn following_scales_it_back() {
    let mut server = Server::start();
    server.answer(200, written());
    let mut observed = observed();
    observed.statefulset.as_mut().unwrap().spec.replicas = 0;
    let (effect, _) = step(&server, &mut observed).await.unwrap();
    assert_eq!(effect, Effect::Written);
    let body = &server.calls()[0].body;
    assert_eq!((&body[1]["value"], &body[2]["value"]), (&json!(0), &json!(1)));
}

const ASSISTANTS: &str =
    "labelSelector=pod-affinity.tekton.dev%2Fgroup%3Du1%2Capp.kubernetes.io%2Fcomponent%3Daffinity-assistant";

/// A run that gave up the node `old`.
fn moved_off() -> Observation {
    let mut observed = observed();
    let spec = &mut observed.statefulset.as_mut().unwrap().spec;
    (spec.replicas, spec.previous_node) = (0, Some("old".into()));
    observed
}

#[tokio::test]
async fn before_the_placeholder_follows_tektons_assistants_leave_the_old_node_at_once() {
    let mut server = Server::start();
    let assistant = |name: &str, node: Option<&str>| json!({"metadata": {"name": name, "uid": "p7"}, "spec": {"nodeName": node}});
    let elsewhere = [assistant("bb-0", Some("new")), assistant("cc-0", None)];
    let items = [vec![assistant("aa-0", Some("old"))], elsewhere.to_vec()].concat();
    server.answer(200, json!({"metadata": {}, "items": items}));
    server.refuse(404, "NotFound", "pods \"aa-0\" not found");
    server.answer(200, written());
    let (effect, _) = step(&server, &mut moved_off()).await.unwrap();
    assert_eq!(effect, Effect::Written);
    let calls = server.calls();
    assert!(
        calls[0].line.starts_with(&format!("GET {POD}?")) && calls[0].line.contains(ASSISTANTS),
        "{}",
        calls[0].line
    );
    assert_eq!(calls[1].line, format!("DELETE {POD}/aa-0?"));
    let at_once = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": "p7"}});
    assert_eq!(calls[1].body, at_once);
    assert!(calls[2].line.contains(&placeholder()), "{}", calls[2].line);
}

#[tokio::test]
async fn assistants_are_listed_for_a_task_that_waits_and_only_if_tekton_creates_assistants_for_the_run() {
    for (templates, requests) in [(0, 0), (1, 1)] {
        let mut server = Server::start();
        server.answer(200, json!({"metadata": {}, "items": []}));
        let mut observed = observed();
        observed.run.templates = templates;
        observed.waiting.push(waiting("build-a-pod"));
        let (reconciler, ..) = reconciler(&Caches::ready(), &server);
        assert!(reconciler.cluster.assistants(&observed).await.unwrap().is_empty());
        assert_eq!(server.calls().len(), requests, "{templates}");
    }
}

#[tokio::test]
async fn as_long_as_tektons_assistants_cannot_be_found_nothing_follows() {
    let mut server = Server::start();
    server.refuse(503, "", "later");
    let refused = step(&server, &mut moved_off()).await.unwrap_err();
    assert_eq!(refused.operation, Operation::Assistants);
    assert_eq!(server.calls().len(), 1);
}

#[tokio::test]
async fn a_scale_after_the_same_scale_of_another_client_changes_nothing() {
    let mut server = Server::start();
    let guard = "the server rejected our request due to an error in our request";
    server.refuse(422, "Invalid", guard);
    assert_eq!(move_off(&server).await.unwrap(), Effect::Overtaken);
}

#[tokio::test]
async fn shrinking_changes_the_template_and_then_the_pod_in_place() {
    let mut server = Server::start();
    server.answer(200, written());
    server.answer(200, written());
    assert_eq!(shrink(&server).await.unwrap(), Effect::Written);
    let calls = server.calls();
    assert!(
        calls[0].line.starts_with(&format!("PATCH {SETS}/")),
        "{}",
        calls[0].line
    );
    let pod = format!(
        "PATCH {POD}/{}-0/resize?&fieldManager=pod-affinity",
        placeholder()
    );
    assert_eq!(calls[1].line, pod);
    assert_eq!(calls[1].content_type, "application/strategic-merge-patch+json");
    let container = &calls[1].body["spec"]["containers"][0];
    assert_eq!(
        (&container["name"], &container["resources"]["requests"]["cpu"]),
        (&json!("placeholder"), &json!("50m"))
    );
}

#[tokio::test]
async fn an_api_server_without_resize_is_distinguished_from_a_failing_api_server() {
    for code in [403, 404, 405, 422] {
        let mut server = Server::start();
        server.answer(200, written());
        server.refuse(code, "", "no");
        assert_eq!(shrink(&server).await.unwrap(), Effect::ResizeRefused, "{code}");
    }
    let mut server = Server::start();
    server.answer(200, written());
    server.refuse(503, "", "later");
    let refused = shrink(&server).await.unwrap_err();
    assert_eq!(
        (refused.operation, refused.cause()),
        (Operation::Shrink, ErrorCause::Unavailable)
    );
}

#[tokio::test]
async fn a_pod_is_not_resized_when_its_set_has_changed() {
    let mut server = Server::start();
    server.refuse(404, "NotFound", "statefulsets.apps \"x\" not found");
    assert_eq!(shrink(&server).await.unwrap(), Effect::Overtaken);
    assert_eq!(server.calls().len(), 1);
}

#[tokio::test]
async fn recreating_pins_the_template_to_the_node_by_its_name_and_deletes_the_very_pod() {
    let mut server = Server::start();
    server.answer(200, written());
    server.answer(200, json!({"kind": "Status", "status": "Success"}));
    let mut observed = big();
    observed.pod.as_mut().unwrap().shape.resize = Resize::Refused;
    assert_eq!(act(&server, &observed).await.unwrap(), Effect::Written);
    let calls = server.calls();
    let pin = json!({"key": "metadata.name", "operator": "In", "values": ["n1"]});
    assert!(
        calls[0].body.to_string().contains(&pin.to_string()),
        "{}",
        calls[0].body
    );
    assert_eq!(calls[1].line, format!("DELETE {POD}/{}-0?", placeholder()));
    assert_eq!(calls[1].body, json!({"preconditions": {"uid": "p1"}}));
}

#[tokio::test]
async fn starting_over_deletes_the_set_with_its_pod() {
    let mut server = Server::start();
    server.answer(200, json!({"kind": "Status", "status": "Success"}));
    let mut observed = on_cordoned_node();
    observed.run.reserve = Some("cpu=4".into());
    act_on(&server, &observed, &no_tasks()).await.unwrap();
    let body = json!({"propagationPolicy": "Background", "preconditions": {"uid": "s1"}});
    assert_eq!(server.calls()[0].body, body);
}

#[tokio::test]
async fn pods_of_this_run_are_woken_by_a_label_and_one_that_is_gone_is_passed_over() {
    let mut server = Server::start();
    server.refuse(404, "NotFound", "pods \"gone\" not found");
    server.answer(200, written());
    let pods = Requeue::Pods {
        names: vec!["gone".into(), "there".into()],
        mark: RequeueMark {
            generation: 4,
            since: None,
        },
    };
    let effect = write(&server, &observed(), [Action::Requeue(pods)]).await;
    assert_eq!(effect.unwrap(), Effect::Written);
    let call = server.calls().remove(1);
    assert_eq!(call.line, format!("PATCH {POD}/there?&fieldManager=pod-affinity"));
    let expected = json!([
        {"op": "test", "path": "/metadata/labels/pod-affinity.tekton.dev~1group", "value": "u1"},
        {"op": "add", "path": "/metadata/labels/pod-affinity.tekton.dev~1woken", "value": "4"},
    ]);
    assert_eq!(call.body, expected);
}

#[tokio::test]
async fn tasks_are_counted_page_by_page_after_a_read_of_the_node() {
    let pod = |ended: i64| {
        let state = json!({"terminated": {"finishedAt": at(ended).to_string()}});
        json!({
            "metadata": {}, "spec": {"nodeName": "n1"},
            "status": {"phase": "Succeeded", "containerStatuses": [{"state": state}]},
        })
    };
    let disk = json!([{"name": "ws", "persistentVolumeClaim": {"claimName": "disk"}}, {"name": "tmp"}]);
    let live = json!({
        "metadata": {"name": "build"}, "spec": {"nodeName": "n1", "volumes": disk}, "status": {"phase": "Running"},
    });
    let mut server = Server::start();
    let labels = json!({"kubernetes.io/hostname": "n1.internal"});
    let cordoned = json!({"metadata": {"labels": labels}, "spec": {"unschedulable": true}});
    server.answer(200, node_json("n1", &cordoned));
    server.answer(
        200,
        json!({"metadata": {"continue": "more"}, "items": [pod(3), live]}),
    );
    server.answer(200, json!({"metadata": {}, "items": [pod(5)]}));
    let cluster = cluster(&server);
    let count = cluster
        .tasks(&run(), Some(&observed_pod(Some("n1"))))
        .await
        .unwrap();
    let expected = TaskPods {
        live: vec!["build".to_owned()],
        ended: Some(at(5)),
        node: NodeState::Unusable(Trouble::Cordoned),
        hostname: Some("n1.internal".to_owned()),
        claims: ["disk".to_owned()].into(),
        claims_of_waiting: Vec::new(),
    };
    assert_eq!(count, expected);
    let calls = server.calls();
    assert_eq!(calls[0].line, "GET /api/v1/nodes/n1");
    let selector = "pod-affinity.tekton.dev%2Fgroup%3Du1%2Capp.kubernetes.io%2Fcomponent+notin+%28placeholder%2C\
                    affinity-assistant%29%2Ctekton.dev%2Fcustom-pod-affinity%21%3Dfalse";
    assert!(
        calls[1]
            .line
            .ends_with(&format!("labelSelector={selector}&limit=100")),
        "no cache of the server may answer: {}",
        calls[1].line
    );
    assert!(calls[2].line.contains("continue=more"), "{}", calls[2].line);
}

/// Else the user would be told that it waits for itself.
#[tokio::test]
async fn a_pod_that_is_counted_as_bound_does_not_wait_even_if_the_watch_is_behind() {
    let mut server = Server::start();
    server.answer(200, node_json("n1", &json!({})));
    let bound =
        json!({"metadata": {"name": "bound"}, "spec": {"nodeName": "n1"}, "status": {"phase": "Pending"}});
    server.answer(200, json!({"metadata": {}, "items": [bound]}));
    let (reconciler, ..) = reconciler(&Caches::ready(), &server);
    let mut observed = seen_on("n1");
    observed.waiting = vec![waiting("bound"), waiting("waits")];
    let inputs = reconciler.read_one(Read::Tasks, &mut observed).await.unwrap();
    assert_eq!(observed.waiting, [waiting("waits")]);
    assert_eq!(
        observed.cluster.nodes.len(),
        1,
        "a note may name the node that comes nearest"
    );
    assert_eq!(inputs.tasks.as_ref().unwrap().task_count.live, 1);
}

#[tokio::test]
async fn a_node_that_is_not_found_is_gone() {
    let mut server = Server::start();
    server.refuse(404, "NotFound", "nodes \"n1\" not found");
    server.answer(200, json!({"metadata": {}, "items": []}));
    let cluster = cluster(&server);
    let count = cluster
        .tasks(&run(), Some(&observed_pod(Some("n1"))))
        .await
        .unwrap();
    assert_eq!(count.node, NodeState::Unusable(Trouble::Gone));
}

#[tokio::test]
async fn a_label_on_the_rejected_taskruns_makes_tekton_retry() {
    let mut server = Server::start();
    let task = |name: &str, reason: &str| {
        let condition = json!({"type": "Succeeded", "status": "Unknown", "reason": reason});
        json!({"metadata": {"name": name}, "status": {"conditions": [condition]}})
    };
    let items = [
        task("build-test", "ExceededResourceQuota"),
        task("build-lint", "Running"),
    ];
    server.answer(200, json!({"metadata": {}, "items": items}));
    server.answer(200, written());
    let mut observed = observed();
    (observed.run.hold, observed.run.status) = (false, SpecStatus::Unset);
    observed.run.group = Some("u1".into());
    observed.statefulset.as_mut().unwrap().spec.replicas = 0;
    observed.messages.rejection = Some("7".into());
    let (_, inputs) = step(&server, &mut observed).await.unwrap();
    let rejected = RejectedTask {
        name: "build-test".into(),
        message: String::new(),
    };
    assert_eq!(inputs.rejected_tasks, vec![rejected].into());
    let call = server.calls().remove(1);
    assert_eq!(
        call.line,
        "PATCH /apis/tekton.dev/v1/namespaces/ns/taskruns/build-test?&fieldManager=pod-affinity"
    );
    let expected = json!([
        {"op": "test", "path": "/metadata/labels/pod-affinity.tekton.dev~1group", "value": "u1"},
        {"op": "add", "path": "/metadata/labels/pod-affinity.tekton.dev~1retried", "value": "7"},
    ]);
    assert_eq!(call.body, expected);
}
