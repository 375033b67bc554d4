//! The keeper with a fake API server and two clocks: the clock for certificates, on which years pass, and tokio's paused clock, which
//! measures how long API servers may take to trust a new CA.

use super::*;
use crate::certs::{CA_LIFE, LEAF_LIFE, can_serve, x509::Certificate};
use crate::install;
use jiff::SignedDuration;
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicI64, Ordering};
use testing::{Behaviour, FakeApi};

const SECRETS: &str = "/api/v1/namespaces/ns/secrets";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

const START: i64 = 1_800_000_000;
const DAY: SignedDuration = SignedDuration::from_hours(24);

struct Scene {
    api: FakeApi,
    seconds: Arc<AtomicI64>,
    keeper: Keeper,
}

impl Scene {
    fn new() -> Self {
        let api = FakeApi::new();
        for name in CONFIGURATIONS {
            install(&api, name, &json!({}));
        }
        apply_secret(&api);
        let seconds = Arc::new(AtomicI64::new(START));
        let told = seconds.clone();
        let clock: Clock = Arc::new(move || Timestamp::from_second(told.load(Ordering::Relaxed)).unwrap());
        let keeper = Keeper::new(api.client(), "ns", clock, Leading::default());
        Self { api, seconds, keeper }
    }

    /// An installation in which all certificates are up to date.
    async fn installed() -> Self {
        let mut scene = Self::new();
        scene.pass().await;
        scene.api.take_writes();
        scene
    }

    async fn pass(&mut self) -> Duration {
        self.keeper.pass().await.unwrap()
    }

    /// Runs passes and waits like the running keeper, until the certificates are up to date.
    async fn rest(&mut self) {
        loop {
            let next = self.pass().await;
            if next == CHECK_EVERY {
                return;
            }
            sleep(next).await;
        }
    }

    fn later(&self, span: SignedDuration) {
        self.seconds.fetch_add(span.as_secs(), Ordering::Relaxed);
    }

    fn now(&self) -> Timestamp {
        (self.keeper.clock)()
    }

    fn stored(&self) -> StoredCertificates {
        StoredCertificates::from_secret(
            &serde_json::from_value(self.api.get(&secret_path()).unwrap()).unwrap(),
        )
    }

    fn write(&self, stored: StoredCertificates) {
        let data: Value = json!(stored.into_data());
        self.api
            .put(&secret_path(), json!({"metadata": {}, "data": data}));
    }

    fn trusted_by(&self, name: &str) -> String {
        let bundle =
            self.api.get(&format!("{WEBHOOKS}/{name}")).unwrap()["webhooks"][0]["clientConfig"]["caBundle"]
                .clone();
        String::from_utf8(serde_json::from_value::<ByteString>(bundle).unwrap().0).unwrap()
    }

    /// The invariant: API servers trust the certificate that the replicas serve.
    fn assert_trusted(&self) {
        let stored = self.stored();
        for name in CONFIGURATIONS {
            let seen = StoredCertificates {
                bundle: self.trusted_by(name),
                ca: String::new(),
                ..stored.clone()
            };
            assert_eq!(
                can_serve(&seen, &service_names("ns"), self.now()),
                Ok(()),
                "{name}"
            );
        }
    }
}

fn secret_path() -> String {
    format!("{SECRETS}/{CERTIFICATE_SECRET}")
}

/// The Secret of config/400-secret.yaml.
fn apply_secret(api: &FakeApi) {
    api.put(&secret_path(), json!({"metadata": {}}));
}

fn install(api: &FakeApi, name: &str, annotations: &Value) {
    let webhook =
        json!({"name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": {}});
    api.put(
        &format!("{WEBHOOKS}/{name}"),
        json!({"metadata": {"annotations": annotations}, "webhooks": [webhook]}),
    );
}

#[tokio::test(start_paused = true)]
async fn a_first_installation_publishes_the_ca_before_the_leaf_without_a_pause() {
    let mut scene = Scene::new();
    assert_eq!(scene.pass().await, CHECK_EVERY);
    let [first, second] = CONFIGURATIONS;
    let expected = [
        format!("PUT {CERTIFICATE_SECRET}"),
        format!("PATCH {first}"),
        format!("PATCH {second}"),
        format!("PUT {CERTIFICATE_SECRET}"),
    ];
    assert_eq!(scene.api.take_writes(), expected);
    scene.assert_trusted();
}

/// A cluster may forbid the owner.
#[tokio::test(start_paused = true)]
async fn the_owner_is_set_after_the_certificates() {
    let mut scene = Scene::new();
    let namespace = json!({"metadata": {"uid": "u1"}});
    scene.api.put("/api/v1/namespaces/ns", namespace);
    scene.pass().await;
    let [first, second] = CONFIGURATIONS;
    let expected = [
        format!("PUT {CERTIFICATE_SECRET}"),
        format!("PATCH {first}"),
        format!("PATCH {second}"),
    ];
    assert_eq!(scene.api.take_writes(), [expected.clone(), expected].concat());
}

#[tokio::test(start_paused = true)]
async fn the_empty_secret_of_the_manifests_is_filled_and_keeps_its_labels() {
    let mut scene = Scene::new();
    scene.api.put(
        &secret_path(),
        json!({"metadata": {"labels": {"theirs": "kept"}}}),
    );
    scene.rest().await;
    scene.assert_trusted();
    assert_eq!(
        scene.api.get(&secret_path()).unwrap()["metadata"]["labels"]["theirs"],
        "kept"
    );
}

#[tokio::test(start_paused = true)]
async fn a_second_pass_writes_nothing() {
    let mut scene = Scene::installed().await;
    assert_eq!(scene.pass().await, CHECK_EVERY);
    assert_eq!(scene.api.take_writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_leaf_that_is_due_is_renewed_by_the_same_ca() {
    let mut scene = Scene::installed().await;
    let before = scene.stored();
    scene.later(LEAF_LIFE * 2 / 3 + DAY);
    scene.rest().await;
    let after = scene.stored();
    assert_eq!((&after.ca, &after.bundle), (&before.ca, &before.bundle));
    assert_ne!(after.leaf, before.leaf);
    scene.assert_trusted();
}

#[tokio::test(start_paused = true)]
async fn a_new_ca_is_trusted_for_the_settle_time_before_it_signs() {
    let mut scene = Scene::installed().await;
    scene.later(CA_LIFE * 2 / 3 - LEAF_LIFE / 3);
    scene.rest().await;
    let before = scene.stored();
    scene.later(LEAF_LIFE / 2);
    let wait = scene.pass().await;
    let during = scene.stored();
    assert!(wait > Duration::from_secs(9) && wait <= SETTLE_TIME, "{wait:?}");
    assert_ne!(during.ca, before.ca);
    assert_eq!(during.leaf, before.leaf);
    assert_eq!(Certificate::all(&scene.trusted_by(install::POD_WEBHOOK)).len(), 2);
    scene.assert_trusted();
    sleep(wait).await;
    scene.rest().await;
    assert_ne!(scene.stored().leaf, before.leaf);
    scene.assert_trusted();
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_during_a_rotation_waits_for_the_settle_time() {
    let mut scene = Scene::installed().await;
    scene.later(CA_LIFE * 2 / 3 + DAY);
    scene.pass().await;
    let before = scene.stored();
    scene.keeper = Keeper::new(
        scene.api.client(),
        "ns",
        scene.keeper.clock.clone(),
        Leading::default(),
    );
    let wait = scene.pass().await;
    assert!(wait > Duration::from_secs(9) && wait <= SETTLE_TIME, "{wait:?}");
    assert_eq!(scene.stored().leaf, before.leaf);
    sleep(wait).await;
    scene.rest().await;
    assert_ne!(scene.stored().leaf, before.leaf);
    scene.assert_trusted();
}

#[tokio::test(start_paused = true)]
async fn a_bundle_that_was_published_without_an_answer_gets_the_settle_time() {
    let mut scene = Scene::installed().await;
    scene.later(CA_LIFE * 2 / 3 + DAY);
    let before = scene.stored();
    scene.api.set_behaviour(Behaviour::Unanswering);
    // The Secret and both configurations are written.
    for _ in 0..3 {
        timeout(PASS_DEADLINE, scene.keeper.pass()).await.unwrap_err();
    }
    scene.api.set_behaviour(Behaviour::Healthy);
    assert_eq!(Certificate::all(&scene.trusted_by(install::POD_WEBHOOK)).len(), 2);
    let wait = scene.pass().await;
    assert!(wait > Duration::from_secs(9) && wait <= SETTLE_TIME, "{wait:?}");
    assert_eq!(scene.stored().leaf, before.leaf);
}

#[tokio::test(start_paused = true)]
async fn the_settle_time_can_be_set() {
    let mut scene = Scene::installed().await;
    scene.keeper = scene.keeper.with_settle_time(Duration::from_secs(2));
    scene.later(CA_LIFE * 2 / 3 + DAY);
    let wait = scene.pass().await;
    assert!(
        wait > Duration::from_secs(1) && wait <= Duration::from_secs(2),
        "{wait:?}"
    );
    scene.rest().await;
    scene.assert_trusted();
}

#[tokio::test(start_paused = true)]
async fn the_leaf_is_trusted_on_each_day_of_two_years() {
    let mut scene = Scene::installed().await;
    for _ in 0..(2 * 365) {
        scene.later(DAY);
        scene.pass().await;
        scene.assert_trusted();
        scene.rest().await;
        scene.assert_trusted();
    }
    assert!(Certificate::all(&scene.stored().bundle).len() <= 2);
}

/// Replicas still serve the lost leaf from memory, so its CA must stay trusted.
#[tokio::test(start_paused = true)]
async fn an_applied_secret_replaces_a_lost_one_and_the_old_leaf_stays_trusted() {
    let mut scene = Scene::installed().await;
    let in_memory = scene.stored();
    scene.api.delete(&secret_path());
    let missing = scene.keeper.pass().await.unwrap_err().to_string();
    assert!(missing.contains("apply the manifests again"), "{missing}");
    apply_secret(&scene.api);
    scene.pass().await;
    assert_eq!(scene.stored().leaf, "");
    let seen = StoredCertificates {
        ca: String::new(),
        bundle: scene.trusted_by(install::POD_WEBHOOK),
        ..in_memory
    };
    assert_eq!(can_serve(&seen, &service_names("ns"), scene.now()), Ok(()));
    scene.rest().await;
    scene.assert_trusted();
}

#[tokio::test(start_paused = true)]
async fn a_corrupt_secret_recovers() {
    type Damage = fn(StoredCertificates) -> StoredCertificates;
    let damages: [Damage; 4] = [
        |stored| StoredCertificates {
            ca: "rubbish".into(),
            ..stored
        },
        |stored| StoredCertificates {
            ca_key: String::new(),
            ..stored
        },
        |stored| StoredCertificates {
            bundle: String::new(),
            ..stored
        },
        |stored| StoredCertificates {
            leaf_key: stored.ca_key.clone(),
            ..stored
        },
    ];
    for damage in damages {
        let mut scene = Scene::installed().await;
        scene.write(damage(scene.stored()));
        scene.rest().await;
        scene.assert_trusted();
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_a_year_ahead_and_back_ends_with_trusted_certificates() {
    let mut scene = Scene::installed().await;
    for jump in [CA_LIFE + DAY, -CA_LIFE - DAY] {
        scene.later(jump);
        scene.rest().await;
        scene.assert_trusted();
    }
}

#[tokio::test(start_paused = true)]
async fn a_removed_bundle_is_restored() {
    let mut scene = Scene::installed().await;
    install(&scene.api, install::POD_WEBHOOK, &json!({}));
    scene.rest().await;
    assert_eq!(
        scene.api.take_writes(),
        [format!("PATCH {}", install::POD_WEBHOOK)]
    );
    scene.assert_trusted();
}

#[tokio::test(start_paused = true)]
async fn certificates_of_cert_manager_are_not_managed() {
    let mut scene = Scene::new();
    install(
        &scene.api,
        install::POD_WEBHOOK,
        &json!({"cert-manager.io/inject-ca-from": "ns/cert"}),
    );
    assert_eq!(scene.pass().await, CHECK_EVERY);
    assert_eq!(scene.api.take_writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn external_certificates_are_not_managed_and_the_namespace_owns_the_configurations() {
    let mut scene = Scene::new();
    scene
        .api
        .put("/api/v1/namespaces/ns", json!({"metadata": {"uid": "u1"}}));
    scene.keeper = scene.keeper.with_external_certificates();
    assert_eq!(scene.pass().await, CHECK_EVERY);
    let expected = CONFIGURATIONS.map(|name| format!("PATCH {name}"));
    assert_eq!(scene.api.take_writes(), expected);
    for name in CONFIGURATIONS {
        let one = scene.api.get(&format!("{WEBHOOKS}/{name}")).unwrap();
        assert_eq!(one["metadata"]["ownerReferences"][0]["uid"], "u1");
    }
    assert_eq!(scene.pass().await, CHECK_EVERY);
    assert_eq!(scene.api.take_writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn the_error_of_a_forbidden_read_names_the_object_and_the_remedy() {
    let mut scene = Scene::new();
    scene.api.set_behaviour(Behaviour::Forbidding);
    let error = scene.keeper.pass().await.unwrap_err().to_string();
    assert!(
        error.contains(install::PIPELINE_RUN_WEBHOOK) && error.contains("check the controller's ClusterRole"),
        "{error}"
    );
}

/// With watch events and the timer: from an empty cluster, over damage, to repaired certificates.
#[tokio::test(start_paused = true)]
async fn a_running_keeper_repairs_damage() {
    let Scene { api, seconds, keeper } = Scene::new();
    let watching = Keeper::new(api.client(), "ns", keeper.clock.clone(), Leading::default());
    let scene = Scene {
        api,
        seconds,
        keeper: watching,
    };
    let running = tokio::spawn(keeper.run());
    sleep(Duration::from_secs(5)).await;
    scene.assert_trusted();
    scene.write(StoredCertificates {
        leaf: String::new(),
        ..scene.stored()
    });
    sleep(Duration::from_secs(5)).await;
    scene.assert_trusted();
    scene.later(LEAF_LIFE * 2 / 3 + DAY);
    let before = scene.stored().leaf;
    sleep(CHECK_EVERY + PAUSE * 2).await;
    assert_ne!(scene.stored().leaf, before);
    running.abort();
}
