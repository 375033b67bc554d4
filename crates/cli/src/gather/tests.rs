//! The reads for one run, against a fake API server.

use super::*;
use crate::fake_api::{AsCluster, FakeApi, run_path};
use crate::fixture::{self, UID, merged, placeholder, released, run, statefulset};
use placement::node::Cause;
use serde_json::{Value, json, to_value};

#[tokio::test]
async fn the_node_of_a_run_is_read_even_if_no_pod_waits_and_its_volumes_if_the_node_is_unusable() {
    let api = FakeApi::default();
    let put = |path: &str, object: Value| api.put(path, object);
    let claim =
        json!({"spec": {"workspaces": [{"name": "w", "persistentVolumeClaim": {"claimName": "disk"}}]}});
    put(
        &run_path("build"),
        to_value(run(&merged(released(), &claim))).unwrap(),
    );
    let pod = placeholder("build", UID, Some("node-1"), &json!({}));
    put("/api/v1/namespaces/ci/pods/p-0", to_value(pod).unwrap());
    let set = statefulset(1, &json!({}));
    let path = format!("/apis/apps/v1/namespaces/ci/statefulsets/{}", set.name_any());
    put(&path, to_value(set).unwrap());
    let bound = json!({"metadata": {"name": "disk"}, "spec": {"volumeName": "v"}});
    put("/api/v1/namespaces/ci/persistentvolumeclaims/disk", bound);
    let here =
        json!([{"matchExpressions": [{"key": keys::HOSTNAME, "operator": "In", "values": ["node-1"]}]}]);
    let affinity = json!({"required": {"nodeSelectorTerms": here}});
    put(
        "/api/v1/persistentvolumes/v",
        json!({"metadata": {"name": "v"}, "spec": {"nodeAffinity": affinity}}),
    );
    let seen = async |unschedulable: bool| {
        let node = fixture::node("node-1", &json!({"spec": {"unschedulable": unschedulable}}));
        put("/api/v1/nodes/node-1", to_value(node).unwrap());
        let server = api.cluster().server;
        let facts = Box::pin(facts(&server, "ci", "build")).await;
        let facts = facts.unwrap().unwrap();
        assert!(
            facts.surroundings.is_none() && facts.errors().is_empty(),
            "{facts:?}"
        );
        let tied = facts.only_volume_of("node-1");
        (facts.node_unusable(), tied)
    };
    assert_eq!(seen(false).await, (None, None));
    assert_eq!(seen(true).await, (Some(Cause::Cordoned), Some("disk".into())));
}

#[test]
fn similar_names_are_suggested_in_the_order_of_their_similarity() {
    let names: Vec<String> = ["build-1", "build-12", "deploy", "biuld-1"]
        .map(String::from)
        .into();
    assert_eq!(closest(&names, "build-1"), ["build-1", "build-12", "biuld-1"]);
    assert!(closest(&names, "xyz").is_empty());
}

fn put_running_run(api: &FakeApi, claims: &Value) {
    let run = run(&merged(released(), claims));
    api.put(&run_path("build"), to_value(run).unwrap());
}

async fn facts_of(api: &FakeApi) -> Facts {
    let server = api.cluster().server;
    Box::pin(facts(&server, "ci", "build")).await.unwrap().unwrap()
}

fn full_quota() -> Value {
    json!({
        "metadata": {"name": "few"},
        "status": {"hard": {"count/statefulsets.apps": "1"}, "used": {"count/statefulsets.apps": "1"}},
    })
}

#[tokio::test]
async fn a_quota_without_room_for_the_placeholder_beside_tektons_assistants_is_what_the_plan_waits_for() {
    let api = FakeApi::default();
    let claim =
        json!({"spec": {"workspaces": [{"name": "w", "persistentVolumeClaim": {"claimName": "disk"}}]}});
    put_running_run(&api, &claim);
    let next = async || Planned::new(&facts_of(&api).await).unwrap().plan.decision;
    assert_eq!(next().await.name(), "create_placeholder");
    api.put("/api/v1/namespaces/ci/resourcequotas/few", full_quota());
    assert_eq!(next().await.name(), "places");
    let coschedule = |mode: &str| {
        let flags = json!({"metadata": {"name": "feature-flags"}, "data": {"coschedule": mode}});
        api.put(
            "/api/v1/namespaces/tekton-pipelines/configmaps/feature-flags",
            flags,
        );
    };
    coschedule("disabled");
    assert_eq!(next().await.name(), "create_placeholder");
    coschedule("workspaces");
    assert_eq!(next().await.name(), "places");
    api.forbid("resourcequotas");
    assert_eq!(next().await, Decision::Read(Read::Creation));
    let errors = facts_of(&api)
        .await
        .errors()
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>();
    assert_eq!(
        errors,
        ["you lack the right to list resourcequotas in namespace ci"]
    );
}

#[tokio::test]
async fn pods_of_a_nested_run_count_as_tasks_of_its_root() {
    let api = FakeApi::default();
    put_running_run(&api, &json!({}));
    let nested = json!({"metadata": {"labels": {keys::TEKTON_PIPELINE_RUN: "build-nested"}}});
    let pods = [
        fixture::task("own", Some("node-1"), &json!({})),
        fixture::task("nested", Some("node-1"), &nested),
    ];
    for pod in pods {
        let path = format!("/api/v1/namespaces/ci/pods/{}", pod.name_any());
        api.put(&path, to_value(pod).unwrap());
    }
    assert_eq!(facts_of(&api).await.tasks().count(), 2);
}

/// A custom task of the run `root` created the run.
#[tokio::test]
async fn a_nested_run_has_its_own_pods_and_the_run_that_started_it() {
    let api = FakeApi::default();
    let owner = json!([{"apiVersion": "tekton.dev/v1beta1", "kind": "CustomRun", "name": "root-task", "uid": "c", "controller": true}]);
    let labels = json!({keys::GROUP: "root-uid", keys::TEKTON_PIPELINE_RUN: "root"});
    let nested = json!({"metadata": {"ownerReferences": owner, "labels": labels}});
    put_running_run(&api, &nested);
    for (name, uid) in [("own", UID), ("earlier", "earlier-uid")] {
        let labels = json!({keys::GROUP: "root-uid", keys::TEKTON_PIPELINE_RUN_UID: uid});
        let pod = fixture::task(name, Some("node-1"), &json!({"metadata": {"labels": labels}}));
        let path = format!("/api/v1/namespaces/ci/pods/{}", pod.name_any());
        api.put(&path, to_value(pod).unwrap());
    }
    let facts = facts_of(&api).await;
    let names = facts.tasks().map(ResourceExt::name_any);
    assert_eq!(names.collect::<Vec<_>>(), ["build-own-pod"]);
    assert_eq!(facts.view.parent.as_deref(), Some("root"));
}

#[tokio::test]
async fn task_runs_are_read_only_after_an_event_about_a_quota() {
    let api = FakeApi::default();
    put_running_run(&api, &json!({}));
    let set = statefulset(1, &json!({}));
    let path = format!("/apis/apps/v1/namespaces/ci/statefulsets/{}", set.name_any());
    api.put(&path, to_value(set).unwrap());
    assert_eq!(facts_of(&api).await.rejected_tasks, None);
    let event = json!({
        "metadata": {"name": "e", "creationTimestamp": fixture::at(90).to_string()}, "reason": quota::REASON,
        "involvedObject": {"kind": "TaskRun", "uid": "t1"}, "message": "exceeded quota",
    });
    api.put("/api/v1/namespaces/ci/events/e", event);
    let task = json!({
        "metadata": {"name": "build-test", "labels": {keys::GROUP: UID}},
        "status": {"conditions": [{"type": "Succeeded", "status": "Unknown", "reason": quota::REASON}]},
    });
    api.put("/apis/tekton.dev/v1/namespaces/ci/taskruns/build-test", task);
    let facts = facts_of(&api).await;
    assert_eq!(facts.rejected_tasks, Some(Ok(vec![fixture::rejected_task()])));
    assert_eq!(Planned::new(&facts).unwrap().plan.decision.name(), "make_room");
}
