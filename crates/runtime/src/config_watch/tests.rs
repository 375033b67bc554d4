//! ConfigMap versions of a fake API server, and the configurations that become active.

use super::*;
use crate::readiness::Readiness;
use placement::config::ReleaseWhen;
use serde_json::{Value, json};
use testing::{Behaviour, FakeApi};
use tokio::time::sleep;

const CONFIG_MAPS: &str = "/api/v1/namespaces/ns/configmaps";

struct Scene {
    api: FakeApi,
    readiness: Readiness,
    watch: ConfigWatch,
}

impl Scene {
    fn begin(config_map: Option<Value>) -> Self {
        let api = FakeApi::new();
        if let Some(data) = config_map {
            put(&api, &data);
        }
        Self::against(api)
    }

    fn against(api: FakeApi) -> Self {
        let readiness = Readiness::default();
        let condition = readiness.condition(CONDITION, "not read yet");
        let watch = ConfigWatch::start(api.client(), "ns", condition, Leading::default());
        Self {
            api,
            readiness,
            watch,
        }
    }

    /// Time is paused, so the pause ends when no other task can run.
    async fn settle(&self) {
        sleep(Duration::from_mins(1)).await;
    }
}

fn put(api: &FakeApi, data: &Value) {
    api.put(
        &format!("{CONFIG_MAPS}/{}", install::CONFIG_MAP),
        json!({"metadata": {"uid": "u1"}, "data": data}),
    );
}

fn invalid() -> Value {
    json!({"release-when": "never"})
}

#[tokio::test(start_paused = true)]
async fn without_a_config_map_the_defaults_are_active() {
    let scene = Scene::begin(None);
    let config = scene.watch.active().await;
    assert_eq!(**config.borrow(), Config::default());
    assert!(scene.readiness.is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_change_becomes_active_and_a_deletion_restores_the_defaults() {
    let scene = Scene::begin(Some(
        json!({"release-when": "created", "_example": "anything: at all"}),
    ));
    let mut config = scene.watch.active().await;
    assert_eq!(config.borrow_and_update().release_when, ReleaseWhen::Created);
    put(&scene.api, &json!({"placeholder-cpu": "75m"}));
    config.changed().await.unwrap();
    assert_eq!(config.borrow_and_update().placeholder_cpu, "75m");
    scene
        .api
        .delete(&format!("{CONFIG_MAPS}/{}", install::CONFIG_MAP));
    let deleted = Instant::now();
    config.changed().await.unwrap();
    assert_eq!(**config.borrow(), Config::default());
    assert!(deleted.elapsed() >= REPLACED_WITHIN);
}

#[tokio::test(start_paused = true)]
async fn a_configmap_that_is_deleted_and_created_again_causes_no_moment_with_the_defaults() {
    let long = json!({"hold-deadline": "2h"});
    let scene = Scene::begin(Some(long.clone()));
    let mut config = scene.watch.active().await;
    scene
        .api
        .delete(&format!("{CONFIG_MAPS}/{}", install::CONFIG_MAP));
    sleep(REPLACED_WITHIN / 2).await;
    put(&scene.api, &long);
    put(&scene.api, &json!({"hold-deadline": "3h"}));
    while config.borrow_and_update().hold_deadline != Duration::from_hours(3) {
        assert_eq!(config.borrow().hold_deadline, Duration::from_hours(2));
        config.changed().await.unwrap();
    }
    sleep(REPLACED_WITHIN * 2).await;
    assert_eq!(config.borrow().hold_deadline, Duration::from_hours(3));
}

#[tokio::test(start_paused = true)]
async fn an_invalid_first_version_keeps_the_process_unready_until_the_correction() {
    let scene = Scene::begin(Some(invalid()));
    scene.settle().await;
    let why = scene.readiness.to_string();
    assert!(
        why.starts_with("[-] configuration: ConfigMap config-pod-affinity is refused: release-when"),
        "{why}"
    );
    put(&scene.api, &json!({"release-when": "created"}));
    let config = scene.watch.active().await;
    assert_eq!(config.borrow().release_when, ReleaseWhen::Created);
    assert!(scene.readiness.is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_later_invalid_version_is_reported_and_the_last_valid_version_stays() {
    let scene = Scene::begin(Some(json!({"release-when": "created"})));
    let config = scene.watch.active().await;
    let mut rejections = scene.watch.faults();
    put(&scene.api, &invalid());
    rejections.changed().await.unwrap();
    let rejection = rejections.borrow_and_update().clone().unwrap();
    assert!(rejection.message.contains("never"), "{}", rejection.message);
    assert_eq!(rejection.config_map.uid.as_deref(), Some("u1"));
    assert_eq!(config.borrow().release_when, ReleaseWhen::Created);
    assert!(scene.readiness.is_ready());
    put(&scene.api, &json!({"release-when": "created"}));
    rejections.changed().await.unwrap();
    assert_eq!(*rejections.borrow(), None);
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_read_keeps_the_process_unready_until_the_read_succeeds() {
    let api = FakeApi::new();
    api.set_behaviour(Behaviour::Forbidding);
    let scene = Scene::against(api);
    scene.settle().await;
    let why = scene.readiness.to_string();
    assert!(
        why.contains("cannot be read") && why.contains("Forbidden"),
        "{why}"
    );
    scene.api.set_behaviour(Behaviour::Healthy);
    scene.watch.active().await;
    assert!(scene.readiness.is_ready());
}

#[tokio::test(start_paused = true)]
async fn the_same_content_notifies_no_receiver() {
    let scene = Scene::begin(Some(json!({"placeholder-cpu": "75m"})));
    let config = scene.watch.active().await;
    put(&scene.api, &json!({"placeholder-cpu": "75m"}));
    scene.settle().await;
    assert!(!config.has_changed().unwrap());
}

/// A rollback to an older release must not stop the controller because of a key that only the newer release knows.
#[tokio::test(start_paused = true)]
async fn a_key_of_another_release_is_reported_and_the_other_keys_are_active() {
    let scene = Scene::begin(Some(json!({"release-when": "created", "key-of-tomorrow": "1"})));
    let config = scene.watch.active().await;
    assert_eq!(config.borrow().release_when, ReleaseWhen::Created);
    assert!(scene.readiness.is_ready());
    let mut faults = scene.watch.faults();
    let reported = faults.borrow_and_update().clone().unwrap();
    assert!(!reported.is_refused && reported.message.starts_with("key-of-tomorrow: unknown key"));
    put(&scene.api, &json!({"release-when": "created"}));
    faults.changed().await.unwrap();
    assert_eq!(*faults.borrow(), None);
}
