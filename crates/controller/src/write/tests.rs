use super::*;
use crate::api_error::ErrorCause;
use crate::fixture::{
    Caches, Call, Server, at, cluster, enrolment, nothing, observed_pod, observed_set, placeholder,
    reconciler, running,
};
use placement::additions;
use placement::config::Config;
use placement::names::PlaceholderName;
use placement::plan::{Action, Creation, Decision, Inputs, New, Read, Target, Unschedulable, plan};
use placement::statefulset_quota::{OwnedStatefulSet, Quota, QuotaBlocker};
use placement::strategy::Strategy;
use placement::warm::WarmNodes;
use serde_json::{Value, json};

pub(super) const SETS: &str = "/apis/apps/v1/namespaces/ns/statefulsets";
const RUN: &str = "/apis/tekton.dev/v1/namespaces/ns/pipelineruns/build";

pub(super) fn observed() -> Observation {
    Observation {
        statefulset: Some(observed_set()),
        ..nothing()
    }
}

/// With the placeholder's pod on this node.
pub(super) fn seen_on(node: &str) -> Observation {
    Observation {
        pod: Some(observed_pod(Some(node))),
        ..observed()
    }
}

/// Reads what the plan misses, and carries out its step.
pub(super) async fn step(server: &Server, observed: &mut Observation) -> Result<(Effect, Inputs), StepError> {
    let (reconciler, ..) = reconciler(&Caches::ready(), server);
    let inputs = reconciler.read_all(observed).await?;
    Ok((act_on(server, observed, &inputs).await?, inputs))
}

/// Carries out the step that needs no reading.
pub(super) async fn act(server: &Server, observed: &Observation) -> Result<Effect, StepError> {
    act_on(server, observed, &Inputs::default()).await
}

/// Carries out the step that follows from these inputs.
pub(super) async fn act_on(
    server: &Server,
    observed: &Observation,
    inputs: &Inputs,
) -> Result<Effect, StepError> {
    let Decision::Act(step) = plan(observed, inputs).decision else {
        panic!("nothing to do: {:?}", plan(observed, inputs))
    };
    write(server, observed, step.actions).await
}

/// Carries out these actions.
pub(super) async fn write(
    server: &Server,
    observed: &Observation,
    actions: impl Into<Vec<Action>>,
) -> Result<Effect, StepError> {
    let cluster = cluster(server);
    let step = Step {
        name: "step",
        event: None,
        actions: actions.into(),
    };
    cluster.write(observed, &step).await
}

/// A held run whose placeholder is on node n1.
async fn release(server: &Server) -> Result<Effect, StepError> {
    act(server, &seen_on("n1")).await
}

fn only(server: &Server) -> Call {
    let mut calls = server.calls();
    assert_eq!(calls.len(), 1, "{calls:?}");
    calls.remove(0)
}

#[tokio::test]
async fn a_placeholder_is_made_by_server_side_apply_under_its_own_name() {
    let mut server = Server::start();
    server.answer(201, json!({"metadata": {}}));
    let (effect, _) = step(&server, &mut nothing()).await.unwrap();
    let call = only(&server);
    assert_eq!(effect, Effect::Written);
    assert_eq!(
        call.line,
        format!(
            "PATCH {SETS}/{}?&force=true&fieldManager=pod-affinity",
            placeholder()
        )
    );
    assert_eq!(call.content_type, "application/apply-patch+yaml");
    assert_eq!(
        (&call.body["apiVersion"], &call.body["kind"]),
        (&json!("apps/v1"), &json!("StatefulSet"))
    );
    assert_eq!(call.body["metadata"]["ownerReferences"][0]["uid"], "u1");
}

#[tokio::test]
async fn a_placeholder_mounts_only_harmless_pvcs_and_requires_a_node_for_the_other_volumes() {
    let mut server = Server::start();
    let claim = |mode: &str| json!({"metadata": {}, "spec": {"accessModes": [mode], "volumeName": "pv-1"}});
    let west = json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["west"]});
    let west = json!({"nodeSelectorTerms": [{"matchExpressions": [west]}]});
    let volume = json!({"metadata": {}, "spec": {"nodeAffinity": {"required": west}}});
    server.answer(200, claim("ReadWriteOnce"));
    server.answer(200, json!({"metadata": {}, "spec": {}}));
    server.answer(200, claim("ReadWriteOncePod"));
    server.answer(200, volume);
    server.refuse(404, "NotFound", "persistentvolumeclaims \"later\" not found");
    server.answer(200, json!({"metadata": {}, "items": []}));
    server.answer(201, json!({"metadata": {}}));
    let mut observed = nothing();
    observed.run.claims = vec!["source".into(), "alone".into(), "later".into()];
    step(&server, &mut observed).await.unwrap();
    let calls = server.calls();
    assert_eq!(
        calls[0].line,
        "GET /api/v1/namespaces/ns/persistentvolumeclaims/source"
    );
    assert_eq!(calls[3].line, "GET /api/v1/persistentvolumes/pv-1");
    let pod = &calls[6].body["spec"]["template"]["spec"];
    let required = &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(required, &west);
    let volumes = pod["volumes"].as_array().unwrap();
    let names: Vec<_> = volumes
        .iter()
        .map(|it| &it["persistentVolumeClaim"]["claimName"])
        .collect();
    assert_eq!(names, ["source"]);
}

const QUOTAS: &str = "GET /api/v1/namespaces/ns/resourcequotas?";
const ALL_SETS: &str = "GET /apis/apps/v1/namespaces/ns/statefulsets?&limit=500";

/// What a quota says about a run, and what was called for it.
async fn quota_of(server: &Server, observed: &mut Observation) -> (Quota, Vec<String>) {
    quota_in(Caches::ready(), server, observed).await
}

async fn quota_in(mut caches: Caches, server: &Server, observed: &mut Observation) -> (Quota, Vec<String>) {
    caches.add_quota(&json!({"count/statefulsets.apps": "3"}), &json!({}));
    let (reconciler, ..) = reconciler(&caches, server);
    let inputs = reconciler.read_one(Read::Quota, observed).await.unwrap();
    let calls = server.calls().into_iter().map(|call| call.line);
    (inputs.quota.as_ref().unwrap().clone(), calls.collect())
}

/// Likewise, for a run with these PVCs.
async fn short_of(server: &mut Server, claims: &[&str]) -> (Option<String>, Vec<String>) {
    let mut observed = observed();
    observed.run.claims = claims.iter().map(|name| (*name).to_owned()).collect();
    let (quota, calls) = quota_of(server, &mut observed).await;
    (quota.short_of, calls)
}

#[tokio::test]
async fn a_quota_of_statefulsets_is_short_if_the_assistants_to_come_take_its_room() {
    let quota = |used: &str| {
        let status =
            json!({"hard": {"count/statefulsets.apps": "3"}, "used": {"count/statefulsets.apps": used}});
        json!({"metadata": {}, "items": [{"metadata": {"name": "few"}, "status": status}]})
    };
    let owned = |name: &str, kind: &str| {
        let owner = json!({"apiVersion": "tekton.dev/v1", "kind": kind, "name": "build", "uid": "u1"});
        json!({"metadata": {"name": name, "uid": "s9", "ownerReferences": [owner]}})
    };
    let cases = [
        (vec![owned("other", "Other")], Some("2 of 3 used, 2 needed")),
        (vec![owned("affinity-assistant-1", "PipelineRun")], None),
    ];
    for (sets, expected) in cases {
        let mut server = Server::start();
        // Before the sets were read there was one less: what it says after them counts.
        server.answer(200, quota("1"));
        server.answer(200, json!({"metadata": {}, "items": sets}));
        server.answer(200, quota("2"));
        let (short_of, calls) = short_of(&mut server, &["source"]).await;
        assert_eq!(calls, [QUOTAS, ALL_SETS, QUOTAS]);
        assert_eq!(short_of.is_some(), expected.is_some(), "{short_of:?}");
        assert!(
            short_of
                .unwrap_or_default()
                .contains(expected.unwrap_or_default())
        );
    }
}

#[tokio::test]
async fn statefulsets_on_all_pages_count() {
    let status = json!({"hard": {"count/statefulsets.apps": "3"}, "used": {"count/statefulsets.apps": "2"}});
    let quota = json!({"metadata": {}, "items": [{"metadata": {"name": "few"}, "status": status}]});
    let owner = json!({"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "build", "uid": "u1"});
    let other = json!({"metadata": {"name": "other", "uid": "s8"}});
    let own = json!({"metadata": {"name": "affinity-assistant-1", "uid": "s9", "ownerReferences": [owner]}});
    let mut server = Server::start();
    server.answer(200, quota.clone());
    server.answer(200, json!({"metadata": {"continue": "next"}, "items": [other]}));
    server.answer(200, json!({"metadata": {}, "items": [own]}));
    server.answer(200, quota);
    let (short_of, calls) = short_of(&mut server, &["source"]).await;
    let next = format!("{ALL_SETS}&continue=next");
    assert_eq!(calls, [QUOTAS, ALL_SETS, next.as_str(), QUOTAS]);
    assert_eq!(
        short_of, None,
        "the second page has the affinity assistant of the run"
    );
}

#[tokio::test]
async fn the_name_of_a_statefulset_shows_that_it_is_the_placeholder_of_another_run() {
    let mut server = Server::start();
    let set = |name: &str, run: &str, uid: &str| {
        let owner = json!({"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": run, "uid": run});
        json!({"metadata": {"name": name, "uid": uid, "ownerReferences": [owner]}})
    };
    let [second, third] = ["u2", "u3"].map(PlaceholderName::of_uid);
    let sets = [
        set("affinity-assistant-1", "u2", "s7"),
        set(second.as_str(), "u2", "s8"),
        set(third.as_str(), "u3", "s9"),
    ];
    let count = json!({"count/statefulsets.apps": "3"});
    let quota = json!({"metadata": {"name": "few"}, "status": {"hard": count, "used": count}});
    let quotas = json!({"metadata": {}, "items": [quota]});
    for answer in [&quotas, &json!({"metadata": {}, "items": sets}), &quotas].repeat(2) {
        server.answer(200, answer.clone());
    }
    let mut observed = observed();
    observed.run.templates = 1;
    let blocked_by = |run: &str, uid: &str| {
        let placeholder = OwnedStatefulSet {
            run: run.to_owned(),
            name: PlaceholderName::of_uid(run).as_str().to_owned(),
            uid: uid.to_owned(),
            is_placeholder: true,
            deleting: false,
        };
        Some(QuotaBlocker::Placeholders(vec![placeholder]))
    };
    let blocker = |quota: Quota| quota.shortage.and_then(|shortage| shortage.blocker);
    let (quota, _) = quota_of(&server, &mut observed).await;
    assert_eq!(blocker(quota), blocked_by("u2", "s8"));
    let mut caches = Caches::ready();
    caches.add_held_run("other", "u2");
    let (quota, _) = quota_in(caches, &server, &mut observed).await;
    assert_eq!(blocker(quota), blocked_by("u3", "s9"), "the other run is held");
}

#[tokio::test]
async fn the_placeholder_of_another_run_is_deleted_by_its_uid_and_may_be_gone_already() {
    for gone in [false, true] {
        let mut server = Server::start();
        if gone {
            server.refuse(404, "NotFound", "statefulsets.apps \"another\" not found");
        } else {
            server.answer(200, json!({"kind": "Status", "status": "Success"}));
        }
        let another = Target::OtherPlaceholder {
            name: "another".into(),
            uid: "s9".into(),
        };
        let effect = write(&server, &observed(), [Action::Delete(another)]).await;
        assert_eq!(effect.unwrap(), Effect::Written);
        let call = server.calls().remove(0);
        assert_eq!(call.line, format!("DELETE {SETS}/another?"));
        let body = json!({"propagationPolicy": "Background", "preconditions": {"uid": "s9"}});
        assert_eq!(call.body, body);
    }
}

#[tokio::test]
async fn quotas_are_read_only_for_runs_with_volumes_and_statefulsets_only_where_a_quota_counts_them() {
    let mut server = Server::start();
    assert_eq!(short_of(&mut server, &[]).await, (None, Vec::new()));
    // The quota of StatefulSets that the cache has was replaced meanwhile.
    let pods = json!({"metadata": {"name": "pods"}, "spec": {"hard": {"pods": "0"}}});
    server.answer(200, json!({"metadata": {}, "items": [pods]}));
    let asked = vec![QUOTAS.to_owned()];
    assert_eq!(short_of(&mut server, &["source"]).await, (None, asked));
}

#[tokio::test]
async fn without_the_right_to_read_quotas_the_placeholder_is_created_as_without_quotas() {
    let mut server = Server::start();
    server.refuse(403, "Forbidden", "resourcequotas is forbidden");
    let (short_of, _) = short_of(&mut server, &["source"]).await;
    assert_eq!(short_of, None);
}

#[tokio::test]
async fn claims_that_cannot_be_read_make_no_placeholder() {
    let mut server = Server::start();
    server.refuse(403, "Forbidden", "persistentvolumeclaims is forbidden");
    let mut observed = nothing();
    observed.run.claims = vec!["source".into()];
    let refused = step(&server, &mut observed).await.unwrap_err();
    assert_eq!(
        (refused.operation, refused.cause()),
        (Operation::Claims, ErrorCause::Forbidden)
    );
    only(&server);
}

#[tokio::test]
async fn a_placeholder_copies_the_labels_that_are_asked_for_and_that_the_run_has() {
    let mut server = Server::start();
    let labels = json!({"team": "build", "app": "shop", keys::OPT_IN: "true"});
    let run = |uid: &str| json!({"metadata": {"name": "build", "uid": uid, "labels": labels}});
    server.answer(200, json!({"metadata": {}, "items": [run("u0"), run("u1")]}));
    server.answer(201, json!({"metadata": {}}));
    let config = Config {
        placeholder_copied_labels: additions::copied_labels("team,cost-center").unwrap(),
        ..Config::default()
    };
    let mut observed = Observation {
        config: config.into(),
        ..nothing()
    };
    let (_, inputs) = step(&server, &mut observed).await.unwrap();
    let creation = inputs.creation.as_ref().unwrap();
    assert_eq!(creation.labels, [("team".to_owned(), "build".to_owned())].into());
    let calls = server.calls();
    assert!(
        calls[0].line.contains("fieldSelector=metadata.name"),
        "{}",
        calls[0].line
    );
    let labels = &calls[1].body["spec"]["template"]["metadata"]["labels"];
    assert_eq!((&labels["team"], labels.get("app")), (&json!("build"), None));
}

#[tokio::test]
async fn a_placeholder_prefers_the_nodes_of_earlier_runs_beside_the_preferences_of_its_run() {
    let mut server = Server::start();
    server.answer(201, json!({"metadata": {}}));
    let zone =
        json!({"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}});
    let own = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [zone]}});
    let mut observed = nothing();
    observed.run.template.affinity = serde_json::from_value(own).unwrap();
    let creation = Creation {
        warm_nodes: Some(WarmNodes::of_runs(["n2", "n1"].map(str::to_owned))),
        ..Creation::default()
    };
    let create = Action::Create(New::Placeholder(enrolment(), creation));
    write(&server, &observed, [create]).await.unwrap();
    let set = &server.calls()[0].body;
    assert_eq!(set["metadata"]["annotations"][keys::WARM_NODES], "n2,n1");
    let preferred = &set["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
    let named = |term: &Value| term["preference"]["matchFields"][0]["values"][0].clone();
    let weights: Vec<_> = preferred
        .as_array()
        .unwrap()
        .iter()
        .map(|term| (term["weight"].clone(), named(term)))
        .collect();
    assert_eq!(
        weights,
        [
            (json!(1), Value::Null),
            (json!(100), json!("n2")),
            (json!(70), json!("n1"))
        ]
    );
}

#[tokio::test]
async fn the_images_of_a_placeholder_are_volumes_that_no_container_mounts() {
    let mut server = Server::start();
    server.answer(201, json!({"metadata": {}}));
    let mut creation = Creation {
        images: ["golang".to_owned()].into_iter().collect(),
        ..Creation::default()
    };
    creation.volumes.mountable = vec!["source".into()];
    let create = Action::Create(New::Placeholder(enrolment(), creation));
    write(&server, &nothing(), [create]).await.unwrap();
    let pod = &server.calls()[0].body["spec"]["template"]["spec"];
    let expected = json!([
        {"name": "workspace-0", "persistentVolumeClaim": {"claimName": "source"}},
        {"name": "image-0", "image": {"reference": "golang", "pullPolicy": "IfNotPresent"}},
    ]);
    assert_eq!(pod["volumes"], expected);
    assert_eq!(pod["containers"][0].get("volumeMounts"), None);
}

#[tokio::test]
async fn a_release_is_one_guarded_json_patch() {
    let mut server = Server::start();
    server.answer(200, json!({"metadata": {}}));
    assert_eq!(release(&server).await.unwrap(), Effect::Written);
    let call = only(&server);
    assert_eq!(call.line, format!("PATCH {RUN}?&fieldManager=pod-affinity"));
    assert_eq!(call.content_type, "application/json-patch+json");
    let expected = json!([
        {"op": "test", "path": "/metadata/uid", "value": "u1"},
        {"op": "test", "path": "/spec/status", "value": "PipelineRunPending"},
        {"op": "remove", "path": "/spec/status"},
        {"op": "test", "path": "/metadata/labels/tekton.dev~1custom-pod-affinity", "value": "true"},
        {"op": "add", "path": "/metadata/labels/pod-affinity.tekton.dev~1group", "value": "u1"},
        {"op": "add", "path": "/metadata/labels/pod-affinity.tekton.dev~1strategy", "value": "colocateCompleted"},
        {"op": "add", "path": "/metadata/labels/pod-affinity.tekton.dev~1isolation", "value": "cluster-all"},
        {"op": "add", "path": "/metadata/annotations/pod-affinity.tekton.dev~1node", "value": "n1"},
        {"op": "remove", "path": "/metadata/annotations/pod-affinity.tekton.dev~1hold"},
    ]);
    assert_eq!(call.body, expected);
}

#[tokio::test]
async fn a_late_release_is_overtaken_and_no_error() {
    for (code, reason, message) in [
        (
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
        ),
        (404, "NotFound", "pipelineruns.tekton.dev \"build\" not found"),
    ] {
        let mut server = Server::start();
        server.refuse(code, reason, message);
        assert_eq!(release(&server).await.unwrap(), Effect::Overtaken, "{message}");
    }
}

#[tokio::test]
async fn a_release_that_tekton_refuses_is_an_error_with_its_cause() {
    for (code, message, cause) in [
        (
            400,
            "admission webhook \"validation.webhook.pipeline.tekton.dev\" denied the request: no",
            ErrorCause::Denied,
        ),
        (
            500,
            "Internal error occurred: failed calling webhook \"webhook.pipeline.tekton.dev\"",
            ErrorCause::WebhookDown,
        ),
    ] {
        let mut server = Server::start();
        server.refuse(code, "", message);
        let refused = release(&server).await.unwrap_err();
        assert_eq!((refused.operation, refused.cause()), (Operation::Release, cause));
        assert!(refused.to_string().contains(message), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_never_answered_ends_as_an_error() {
    let mut server = Server::start();
    server.hang();
    let refused = release(&server).await.unwrap_err();
    assert_eq!(refused.cause(), ErrorCause::Unavailable);
    assert!(refused.to_string().contains("no answer"), "{refused}");
}

/// A run that runs, and whose annotation says another node than its placeholder is on.
fn moved_to(node: &str) -> Observation {
    Observation {
        run: running(),
        ..seen_on(node)
    }
}

#[tokio::test]
async fn the_node_is_merged_into_this_very_run() {
    let mut server = Server::start();
    server.answer(200, json!({"metadata": {}}));
    assert_eq!(act(&server, &moved_to("n2")).await.unwrap(), Effect::Written);
    let call = only(&server);
    assert_eq!(call.line, format!("PATCH {RUN}?&fieldManager=pod-affinity"));
    assert_eq!(call.content_type, "application/merge-patch+json");
    let expected = json!({"uid": "u1", "annotations": {"pod-affinity.tekton.dev/node": "n2"}});
    assert_eq!(call.body, json!({"metadata": expected}));
}

#[tokio::test]
async fn the_enrolment_is_one_json_patch_that_checks_the_fields_it_read() {
    let mut server = Server::start();
    server.answer(200, json!({"metadata": {}}));
    let mut observed = seen_on("n1");
    observed.pod.as_mut().unwrap().node = None;
    observed.pod.as_mut().unwrap().unschedulable = Some(Unschedulable {
        message: "0/3 nodes are available.".into(),
        since: at(0),
    });
    assert_eq!(act(&server, &observed).await.unwrap(), Effect::Written);
    let call = only(&server);
    assert_eq!(call.line, format!("PATCH {RUN}?&fieldManager=pod-affinity"));
    assert_eq!(call.content_type, "application/json-patch+json");
    let expected = json!([
        {"op": "test", "path": "/metadata/uid", "value": "u1"},
        {"op": "test", "path": "/spec/status", "value": "PipelineRunPending"},
        {"op": "test", "path": "/metadata/labels/tekton.dev~1custom-pod-affinity", "value": "true"},
        {"op": "add", "path": "/metadata/labels/pod-affinity.tekton.dev~1group", "value": "u1"},
        {"op": "add", "path": "/metadata/labels/pod-affinity.tekton.dev~1strategy", "value": "colocateCompleted"},
        {"op": "add", "path": "/metadata/labels/pod-affinity.tekton.dev~1isolation", "value": "cluster-all"},
    ]);
    assert_eq!(call.body, expected);
}

#[tokio::test]
async fn the_node_of_a_run_that_was_made_anew_is_not_written() {
    let mut server = Server::start();
    server.refuse(
        409,
        "Conflict",
        "Precondition failed: UID in precondition: u1, UID in object meta: u2",
    );
    assert_eq!(act(&server, &moved_to("n2")).await.unwrap(), Effect::Overtaken);
}

/// A run that is done and keeps its node; it owns the pod, or has yet to.
fn done(adopted: bool) -> Observation {
    let mut observed = moved_to("n1");
    observed.run.done = true;
    observed.statefulset.as_mut().unwrap().strategy = Some(Strategy::IsolateAlways);
    observed.pod.as_mut().unwrap().adopted = adopted;
    observed
}

#[tokio::test]
async fn a_placeholder_and_an_adopted_pod_are_deleted_by_uid() {
    let mut server = Server::start();
    server.answer(200, json!({"kind": "Status", "status": "Success"}));
    server.answer(200, json!({"kind": "Status", "status": "Success"}));
    let mut observed = done(true);
    observed.run.deleting = true;
    assert_eq!(act(&server, &observed).await.unwrap(), Effect::Written);
    let calls = server.calls();
    assert_eq!(calls[0].line, format!("DELETE {SETS}/{}?", placeholder()));
    assert_eq!(
        calls[0].body,
        json!({"propagationPolicy": "Background", "preconditions": {"uid": "s1"}})
    );
    assert_eq!(
        calls[1].line,
        format!("DELETE /api/v1/namespaces/ns/pods/{}-0?", placeholder())
    );
    assert_eq!(calls[1].body, json!({"preconditions": {"uid": "p1"}}));
}

#[tokio::test]
async fn the_deletion_of_a_missing_or_replaced_object_succeeds() {
    for (code, reason) in [(404, "NotFound"), (409, "Conflict")] {
        let mut server = Server::start();
        server.refuse(code, reason, "the UID in the precondition does not match");
        let effect = act(&server, &done(true)).await;
        assert_eq!(effect.unwrap(), Effect::Written, "{reason}");
    }
}

#[tokio::test]
async fn a_delete_that_met_another_writer_is_not_taken_for_done() {
    let mut server = Server::start();
    server.refuse(
        409,
        "Conflict",
        "Operation cannot be fulfilled on statefulsets.apps \"x\": the object has been modified",
    );
    let refused = act(&server, &done(true)).await.unwrap_err();
    assert_eq!(refused.cause(), ErrorCause::Conflict);
}

#[tokio::test]
async fn a_delete_that_is_refused_is_an_error() {
    let mut server = Server::start();
    server.refuse(403, "Forbidden", "statefulsets.apps is forbidden");
    let refused = act(&server, &done(true)).await.unwrap_err();
    assert_eq!(
        (refused.operation, refused.cause()),
        (Operation::CleanUp, ErrorCause::Forbidden)
    );
}

#[tokio::test]
async fn a_set_whose_pod_the_run_has_adopted_is_deleted_like_any_other() {
    let mut server = Server::start();
    server.answer(200, json!({"kind": "Status", "status": "Success"}));
    act(&server, &done(true)).await.unwrap();
    let body = only(&server).body;
    assert_eq!(
        body,
        json!({"propagationPolicy": "Background", "preconditions": {"uid": "s1"}})
    );
}

#[tokio::test]
async fn adoption_takes_the_pod_from_its_set_for_the_run_and_lets_autoscalers_have_it() {
    let mut server = Server::start();
    server.answer(200, json!({"metadata": {}}));
    act(&server, &done(false)).await.unwrap();
    let call = only(&server);
    assert_eq!(call.content_type, "application/strategic-merge-patch+json");
    let annotations = json!({
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "true", "karpenter.sh/do-not-disrupt": null,
    });
    assert_eq!(call.body["metadata"]["annotations"], annotations);
    let owners = &call.body["metadata"]["ownerReferences"];
    assert_eq!(owners[0]["uid"], "u1");
    assert_eq!(owners[1], json!({"$patch": "delete", "uid": "s1"}));
    let unselected = json!({"pod-affinity.tekton.dev/kept-by": null});
    assert_eq!(
        call.body["metadata"]["labels"], unselected,
        "or the set would take it back"
    );
}

#[tokio::test]
async fn a_requeue_touches_the_statefulset() {
    let mut server = Server::start();
    server.answer(200, json!({"metadata": {}}));
    let (effect, _) = step(&server, &mut observed()).await.unwrap();
    assert_eq!(effect, Effect::Written);
    let calls = server.calls();
    assert_eq!(calls[0].content_type, "application/merge-patch+json");
    let annotations = json!({"pod-affinity.tekton.dev/nudged": at(0).to_string()});
    assert_eq!(
        calls[0].body,
        json!({"metadata": {"uid": "s1", "annotations": annotations}})
    );
}
