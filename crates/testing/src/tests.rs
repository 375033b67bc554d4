use super::*;
use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Error, ResourceExt};

const MAPS: &str = "/api/v1/namespaces/ns/configmaps";

fn code(error: Error) -> u16 {
    match error {
        Error::Api(status) => status.code,
        other => panic!("{other}"),
    }
}

fn maps(api: &FakeApi) -> Api<ConfigMap> {
    Api::namespaced(api.client(), "ns")
}

#[tokio::test]
async fn a_replacement_with_an_old_resource_version_is_a_conflict() {
    let api = FakeApi::new();
    api.put(&format!("{MAPS}/a"), json!({}));
    let old = maps(&api).get("a").await.unwrap();
    maps(&api)
        .replace("a", &PostParams::default(), &old)
        .await
        .unwrap();
    let conflict = maps(&api).replace("a", &PostParams::default(), &old).await;
    assert_eq!(code(conflict.unwrap_err()), 409);
    assert_eq!(api.take_writes(), ["PUT a"]);
}

#[tokio::test]
async fn a_list_selects_by_namespace_name_and_labels() {
    let api = FakeApi::new();
    for (namespace, name, label) in [("one", "a", "x"), ("one", "b", "y"), ("two", "c", "x")] {
        let pod = json!({"metadata": {"namespace": namespace, "labels": {"example.com/key": label}}});
        api.put(&format!("/api/v1/namespaces/{namespace}/pods/{name}"), pod);
    }
    let names = async |pods: Api<Pod>, params: ListParams| {
        let list = pods.list(&params).await.unwrap();
        list.iter().map(ResourceExt::name_any).collect::<Vec<_>>()
    };
    let by_label = ListParams::default().labels("example.com/key=x");
    assert_eq!(names(Api::all(api.client()), by_label.clone()).await, ["a", "c"]);
    assert_eq!(names(Api::namespaced(api.client(), "one"), by_label).await, ["a"]);
    let by_name = ListParams::default().fields("metadata.name=b");
    assert_eq!(names(Api::all(api.client()), by_name).await, ["b"]);
}

#[tokio::test]
async fn a_watch_reports_the_changes_of_selected_objects() {
    let api = FakeApi::new();
    let watched = maps(&api);
    let params = WatchParams::default().fields("metadata.name=a");
    let events = watched.watch(&params, "1").await.unwrap();
    pin_mut!(events);
    api.put(&format!("{MAPS}/other"), json!({}));
    api.put(&format!("{MAPS}/a"), json!({}));
    api.delete(&format!("{MAPS}/a"));
    assert!(matches!(events.next().await.unwrap().unwrap(), WatchEvent::Added(map) if map.name_any() == "a"));
    assert!(matches!(
        events.next().await.unwrap().unwrap(),
        WatchEvent::Deleted(_)
    ));
}

#[tokio::test]
async fn scripted_responses_come_first_and_then_failures() {
    let api = FakeApi::scripted();
    api.script(200, json!({"metadata": {"name": "a"}}));
    api.script_failure(403, "Forbidden", "no");
    assert_eq!(maps(&api).get("a").await.unwrap().name_any(), "a");
    assert_eq!(code(maps(&api).get("a").await.unwrap_err()), 403);
    assert_eq!(code(maps(&api).get("a").await.unwrap_err()), 500);
    assert_eq!(api.calls()[0].line, format!("GET {MAPS}/a"));
}

#[tokio::test]
async fn a_dry_run_changes_no_object() {
    let api = FakeApi::new();
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
    maps(&api).create(&params, &map).await.unwrap();
    assert_eq!(api.get(&format!("{MAPS}/a")), None);
    assert!(api.writes().is_empty());
}

#[tokio::test]
async fn a_forbidden_resource_is_forbidden_in_every_namespace() {
    let api = FakeApi::new();
    api.forbid("configmaps");
    assert_eq!(code(maps(&api).get("a").await.unwrap_err()), 403);
    assert_eq!(
        code(
            Api::<Pod>::default_namespaced(api.client())
                .get("a")
                .await
                .unwrap_err()
        ),
        404
    );
}
